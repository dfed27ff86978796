"""`TemplateEnvironment`: Jinja for chat templates that came with a model, and are therefore not trusted.

A template may compute, never reach out or run away. Reaching out: Jinja's immutable sandbox, no loader, and short lists
of filters, functions and methods. Running away: every loop turn, call, operator, filter and comparison is charged to
the budget of the rendering, as is every character made; what could grow in one step is refused before it is computed.
So `range(10**9)`, nested loops and `"a" * 10**9` end in `LimitExceeded` within a fraction of a second.

Charges are put in by rewriting the parsed template (`_Charging`), where a template cannot see or shadow them.
Constant folding is off, so nothing runs while compiling. The budget counts the CPU time of the rendering thread alone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_SOURCE_CHARS = 256 * 1024
MAX_TEXT_CHARS = 8 * 1024 * 1024  # of any one text, and of the whole output
MAX_RANGE = 100_000
MAX_INT_BITS = 1024
MAX_WORK = 2_000_000  # one step, or 64 characters made, is one
MAX_CPU_S = 0.5

_CHARS_PER_WORK = 64
_WORK_PER_CLOCK_READ = 256
_RISKY_FORMAT = re.compile(r"%[^a-zA-Z%]*(\d{4,}|\*|c)")  # huge widths, widths from arguments, characters from numbers

_FILTERS = frozenset(
    {
        "abs",
        "capitalize",
        "count",
        "d",
        "default",
        "dictsort",
        "first",
        "float",
        "groupby",
        "int",
        "items",
        "join",
        "last",
        "length",
        "list",
        "lower",
        "map",
        "max",
        "min",
        "reject",
        "rejectattr",
        "replace",
        "reverse",
        "select",
        "selectattr",
        "sort",
        "string",
        "title",
        "trim",
        "unique",
        "upper",
    }
)
_STR_METHODS = frozenset(
    {
        "capitalize",
        "count",
        "endswith",
        "find",
        "index",
        "isalnum",
        "isalpha",
        "isascii",
        "isdecimal",
        "isdigit",
        "islower",
        "isnumeric",
        "isspace",
        "istitle",
        "isupper",
        "join",
        "lower",
        "lstrip",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rfind",
        "rindex",
        "rpartition",
        "rsplit",
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
        "swapcase",
        "title",
        "upper",
    }
)
_METHODS: dict[type, frozenset[str]] = {
    str: _STR_METHODS,
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
}


class LimitExceeded(Exception):
    """The template takes more work or memory than a rendering is given."""


class TemplateRaised(Exception):
    """The template itself refused the conversation (raise_exception)."""


class _Budget:
    def __init__(self) -> None:
        self._work_left = MAX_WORK
        self._work_to_clock = _WORK_PER_CLOCK_READ
        self._deadline_s = time.thread_time() + MAX_CPU_S

    def charge(self, work: int) -> None:
        self._work_left -= work
        self._work_to_clock -= work
        if self._work_left < 0:
            raise LimitExceeded("too many steps")
        if self._work_to_clock < 0:
            self._work_to_clock = _WORK_PER_CLOCK_READ
            if time.thread_time() > self._deadline_s:
                raise LimitExceeded("too much time")


_budget: ContextVar[_Budget] = ContextVar("budget")


@contextmanager
def budget() -> Iterator[None]:
    """Give what runs inside, on this thread, one fresh budget."""
    token = _budget.set(_Budget())
    try:
        yield
    finally:
        _budget.reset(token)


def _charge(work: int = 1) -> None:
    _budget.get().charge(work)


def _charge_value(value: Any) -> int:
    """Charge for a value just made, all of it if it is a container; return its size in characters."""
    if isinstance(value, str):
        _check_chars(len(value))
        _charge(1 + len(value) // _CHARS_PER_WORK)
        return len(value)
    _charge()
    size = 0
    if isinstance(value, dict):
        for key, item in value.items():
            size += _charge_value(key) + _charge_value(item)
    elif isinstance(value, list | tuple):
        for item in value:
            size += _charge_value(item)
    _check_chars(size)
    return size + 8


def _check_chars(count: int) -> None:
    if count > MAX_TEXT_CHARS:
        raise LimitExceeded(f"a text of {count:,} characters; the limit is {MAX_TEXT_CHARS:,}")


def _check_bits(bits: int) -> None:
    if bits > MAX_INT_BITS:
        raise LimitExceeded(f"a number of {bits:,} bits; the limit is {MAX_INT_BITS:,}")


def _raise_exception(message: object = "") -> None:
    raise TemplateRaised(str(message)[:1000])


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if numbers and abs(numbers[-1] - numbers[0]) // abs(numbers.step) >= MAX_RANGE:  # len() overflows on the largest
        raise LimitExceeded(f"a range of more than {MAX_RANGE:,} numbers")
    return numbers


def _strftime_now(form: str) -> str:
    _check_chars(len(form) * 64)
    return datetime.now().strftime(form)


class _Namespace(Namespace):
    def __repr__(self) -> str:  # not its values: namespaces may hold each other
        return "<namespace>"


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    """Return JSON as Hugging Face's templates expect it: not escaped for HTML."""
    _charge_value(value)
    if indent is not None and indent > 16:
        raise LimitExceeded(f"JSON indented by {indent}; the limit is 16")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    _check_chars(len(text) + (text.count("\n") + 1) * (len(width) if isinstance(width, str) else width))
    indented: str = FILTERS["indent"](text, width, first, blank)
    return indented


def _check_replace(text: str, old: str, new: str) -> None:
    _check_chars(len(text) + (text.count(old) if old else len(text) + 1) * len(new))


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = str(text), str(old), str(new)
    _check_replace(text, old, new)
    replaced: str = text.replace(old, new, -1 if count is None else count)
    return replaced


def _join_texts(separator: str, values: Iterable[Any]) -> str:
    texts = []
    size = 0
    for value in values:
        text = _text_of(value)
        size += len(text) + len(separator)
        _check_chars(size)
        _charge()
        texts.append(text)
    return separator.join(texts)


def _text_of(value: Any) -> str:
    if not isinstance(value, str):
        _charge_value(value)
    return str(value)


@jinja2.pass_environment
def _join(environment: jinja2.Environment, values: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        values = [environment.getitem(value, attribute) for value in values]
    return _join_texts(d, values)


@jinja2.pass_context  # also keeps Jinja from evaluating outputs while compiling
def _finalize(context: Context, value: Any) -> str:
    text = _text_of(value)
    _charge_value(text)
    return text


def _charged(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)  # keeps Jinja's mark of what the function wants passed
    def charged(*args: Any, **kwargs: Any) -> Any:
        _charge()
        result = function(*args, **kwargs)
        _charge_value(result)
        return result

    return charged


class _GenerationBlock(Extension):
    """{% generation %} ... {% endgeneration %} marks what a model says, for training; here its body simply counts."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Charging(NodeTransformer):
    """Puts the charges into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        if node.recursive:
            raise jinja2.TemplateSyntaxError("recursive loops are not allowed in chat templates", node.lineno)
        node.iter = _call_environment("charged_items", [node.iter])
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        return _call_environment("concatenated", node.nodes)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Call:
        self.generic_visit(node)
        return _call_environment("charged_value", [node])

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        return self._container(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        return self._container(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        if node.ctx != "load":  # {% set a, b = ... %}
            return node
        return self._container(node)

    def _container(self, node: nodes.Expr) -> nodes.Expr:
        self.generic_visit(node)
        return _call_environment("charged_value", [node])


def _call_environment(method: str, arguments: Sequence[nodes.Node]) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method), list(arguments), [], None, None)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and runs chat templates with the settings that they are written for (Hugging Face's)."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=_finalize, extensions=[loopcontrols, _GenerationBlock]
        )
        filters: dict[str, Callable[..., Any]] = {name: FILTERS[name] for name in _FILTERS}
        filters |= {"tojson": _tojson, "indent": _indent, "replace": _replace, "join": _join, "safe": str}
        self.filters = {name: _charged(function) for name, function in filters.items()}
        self.globals = {
            "range": _range,
            "namespace": _Namespace,
            "dict": dict,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        self._functions = frozenset(id(function) for function in self.globals.values())

    def compile_charged(self, tree: nodes.Template) -> jinja2.Template:
        """Return the runnable template of a parsed one, which is rewritten."""
        _Charging().visit(tree)
        tree.set_environment(self)
        code = self.compile(tree)
        return jinja2.Template.from_code(self, code, self.make_globals(None))

    def run(self, template: jinja2.Template, variables: dict[str, Any]) -> str:
        """Return the text that `template` makes of `variables`.

        Raises LimitExceeded, TemplateRaised, and whatever else a template stumbles over.
        """
        with budget():
            size = 0
            texts = []
            for text in template.root_render_func(template.new_context(variables)):
                size += len(text)
                _check_chars(size)
                texts.append(text)
            return "".join(texts)

    def concat(self, texts: Iterable[str]) -> str:  # bodies of macros and {% set %} blocks
        return _join_texts("", texts)

    def charged_items(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            _charge()
            yield item

    def charged_value(self, value: Any) -> Any:
        _charge_value(value)
        return value

    def concatenated(self, *values: Any) -> str:
        text = _join_texts("", values)
        _charge_value(text)
        return text

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _charge()
        if operator in ("+", "*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            _check_bits(bits)
        elif operator == "*":
            _check_chars(_extent(left) * abs(right) if isinstance(right, int) else _extent(right) * abs(left))
        elif operator == "%" and isinstance(left, str):
            if _RISKY_FORMAT.search(left):
                raise LimitExceeded("a format with a width of more than three digits")
            _check_chars(len(left) + left.count("%") * (_charge_value(right) + 1000))
        elif operator == "+":
            _check_chars(_extent(left) + _extent(right))
        result = super().call_binop(context, operator, left, right)
        _charge_value(result)
        return result

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # Jinja's own names
        _charge()
        owner = getattr(__obj, "__self__", None)
        if owner is __self or isinstance(owner, LoopContext) or isinstance(__obj, Undefined):
            return super().call(__context, __obj, *args, **kwargs)
        if id(__obj) in __self._functions or isinstance(__obj, Macro):
            _charge_value((args, kwargs))
            return super().call(__context, __obj, *args, **kwargs)
        if __obj.__name__ not in _METHODS.get(type(owner), ()):
            raise SecurityError("the template calls something that chat templates may not call")
        if isinstance(owner, str):
            if __obj.__name__ == "join":
                return __self.charged_value(_join_texts(owner, *args, **kwargs))
            if __obj.__name__ == "replace":
                _check_replace(owner, *args[:2])
        return __self.charged_value(super().call(__context, __obj, *args, **kwargs))


def _extent(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0
