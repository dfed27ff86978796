"""`TemplateEnvironment`: Jinja for chat templates that came with a model, and are therefore not trusted.

A template may compute, never reach out or run away. Reaching out: Jinja's immutable sandbox, no loader, and short lists
of filters, functions and methods. Running away: every loop turn, call, operator, filter and comparison is charged to
the budget of the rendering, as is every character made; what could grow in one step is refused before it is computed.
So `range(10**9)`, nested loops and `"a" * 10**9` end in `LimitExceeded` within a fraction of a second.

Charges (template_budget.py) are put in by rewriting the parsed template (`_Charging`), where a template cannot see or shadow them.
Constant folding is off, so nothing runs while compiling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from octavo.text.template_budget import LimitExceeded, budget, charge, charge_value, check_bits, check_chars
from octavo.text.template_functions import check_replace, join_texts, template_filters, template_globals, text_of

MAX_SOURCE_CHARS = 256 * 1024
_RISKY_FORMAT = re.compile(r"%[^a-zA-Z%]*(\d{4,}|\*|c)")  # huge widths, widths from arguments, characters from numbers

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


@jinja2.pass_context  # also keeps Jinja from evaluating outputs while compiling
def _finalize(context: Context, value: Any) -> str:
    text = text_of(value)
    charge_value(text)
    return text


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
        self.filters = template_filters()
        self.globals = template_globals()
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
                check_chars(size)
                texts.append(text)
            return "".join(texts)

    def concat(self, texts: Iterable[str]) -> str:  # bodies of macros and {% set %} blocks
        return join_texts("", texts)

    def charged_items(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            charge()
            yield item

    def charged_value(self, value: Any) -> Any:
        charge_value(value)
        return value

    def concatenated(self, *values: Any) -> str:
        text = join_texts("", values)
        charge_value(text)
        return text

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        charge()
        if operator in ("+", "*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            check_bits(bits)
        elif operator == "*":
            check_chars(_extent(left) * abs(right) if isinstance(right, int) else _extent(right) * abs(left))
        elif operator == "%" and isinstance(left, str):
            if _RISKY_FORMAT.search(left):
                raise LimitExceeded("a format with a width of more than three digits")
            check_chars(len(left) + left.count("%") * (charge_value(right) + 1000))
        elif operator == "+":
            check_chars(_extent(left) + _extent(right))
        result = super().call_binop(context, operator, left, right)
        charge_value(result)
        return result

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # Jinja's own names
        charge()
        owner = getattr(__obj, "__self__", None)
        if owner is __self or isinstance(owner, LoopContext) or isinstance(__obj, Undefined):
            return super().call(__context, __obj, *args, **kwargs)
        if id(__obj) in __self._functions or isinstance(__obj, Macro):
            charge_value((args, kwargs))
            return super().call(__context, __obj, *args, **kwargs)
        if __obj.__name__ not in _METHODS.get(type(owner), ()):
            raise SecurityError("the template calls something that chat templates may not call")
        if isinstance(owner, str):
            if __obj.__name__ == "join":
                return __self.charged_value(join_texts(owner, *args, **kwargs))
            if __obj.__name__ == "replace":
                check_replace(owner, *args[:2])
        return __self.charged_value(super().call(__context, __obj, *args, **kwargs))


def _extent(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0
