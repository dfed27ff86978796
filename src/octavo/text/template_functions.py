"""The functions and filters that chat templates have: a short list, each of them charged to the budget of the rendering."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from typing import Any

import jinja2
from jinja2.filters import FILTERS
from jinja2.utils import Namespace

from octavo.text.template_budget import LimitExceeded, charge, charge_value, check_chars

MAX_RANGE = 100_000

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


class TemplateRaised(Exception):
    """The template itself refused the conversation (raise_exception)."""


def _raise_exception(message: object = "") -> None:
    raise TemplateRaised(str(message)[:1000])


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if numbers and abs(numbers[-1] - numbers[0]) // abs(numbers.step) >= MAX_RANGE:  # len() overflows on the largest
        raise LimitExceeded(f"a range of more than {MAX_RANGE:,} numbers")
    return numbers


def _strftime_now(form: str) -> str:
    check_chars(len(form) * 64)
    return datetime.now().strftime(form)


class _Namespace(Namespace):
    def __repr__(self) -> str:  # not its values: namespaces may hold each other
        return "<namespace>"


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    """Return JSON as Hugging Face's templates expect it: not escaped for HTML."""
    charge_value(value)
    if indent is not None and indent > 16:
        raise LimitExceeded(f"JSON indented by {indent}; the limit is 16")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    check_chars(len(text) + (text.count("\n") + 1) * (len(width) if isinstance(width, str) else width))
    indented: str = FILTERS["indent"](text, width, first, blank)
    return indented


def check_replace(text: str, old: str, new: str) -> None:
    check_chars(len(text) + (text.count(old) if old else len(text) + 1) * len(new))


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = str(text), str(old), str(new)
    check_replace(text, old, new)
    replaced: str = text.replace(old, new, -1 if count is None else count)
    return replaced


def join_texts(separator: str, values: Iterable[Any]) -> str:
    texts = []
    size = 0
    for value in values:
        text = text_of(value)
        size += len(text) + len(separator)
        check_chars(size)
        charge()
        texts.append(text)
    return separator.join(texts)


def text_of(value: Any) -> str:
    if not isinstance(value, str):
        charge_value(value)
    return str(value)


@jinja2.pass_environment
def _join(environment: jinja2.Environment, values: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        values = [environment.getitem(value, attribute) for value in values]
    return join_texts(d, values)


def _charged(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)  # keeps Jinja's mark of what the function wants passed
    def charged(*args: Any, **kwargs: Any) -> Any:
        charge()
        result = function(*args, **kwargs)
        charge_value(result)
        return result

    return charged


def template_filters() -> dict[str, Callable[..., Any]]:
    """Return the filters by name."""
    filters: dict[str, Callable[..., Any]] = {name: FILTERS[name] for name in _FILTERS}
    filters |= {"tojson": _tojson, "indent": _indent, "replace": _replace, "join": _join, "safe": str}
    return {name: _charged(function) for name, function in filters.items()}


def template_globals() -> dict[str, object]:
    """Return the functions by name. They are not charged by themselves: a call is (TemplateEnvironment.call)."""
    return {
        "range": _range,
        "namespace": _Namespace,
        "dict": dict,
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }
