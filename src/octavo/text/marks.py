"""Marks: control tokens of a chat template's own literals, told apart from anything that a request brings.

A mark is one lone surrogate, a character that no valid text holds. Before compiling, each control token in the literals
of a template is replaced by its mark (`MarkLiterals`); lone surrogates in requests become U+FFFD (`without_surrogates`).
So in rendered text a mark can only come from the template, while content went through every trim, split and test of
the template as the ordinary text that it is. Literals that are only compared with content, or searched for in it, stay.

Some templates build a token around a role: '<|' + role + '|>'. The two halves are marked as halves, and make the token
only when a role, and nothing else, lies between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from octavo.text.conversation import ROLES

_FIRST, _LAST = 0xD800, 0xDFFE
_SURROGATE = re.compile("[\ud800-\udfff]")

END = "\udfff"  # no token: set behind text whose place in the rendered prompt is to be found


class Marks:
    """The marks of one template, given out as its literals are met."""

    def __init__(self, control_tokens: Mapping[str, int]) -> None:
        self._ids = control_tokens
        self._texts: dict[str, str] = {}  # mark -> the text that it stands for
        self._marks: dict[str, str] = {}
        longest_first = sorted(control_tokens, key=len, reverse=True)
        self._token = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        around_role = [token.partition(role) for token in control_tokens for role in ROLES if role in token]
        self._openers = sorted({before for before, _, after in around_role if before and after}, key=len, reverse=True)
        self._closers = sorted({after for before, _, after in around_role if before and after}, key=len, reverse=True)

    def mark(self, literal: str) -> str:
        """Return `literal` with marks for the control tokens in it, and for half ones at its ends."""
        text = self._token.sub(lambda match: self._mark_of(match.group()), literal)
        opener = next((half for half in self._openers if text.endswith(half)), "")
        if opener:
            text = text.removesuffix(opener) + self._mark_of(opener)
        closer = next((half for half in self._closers if text.startswith(half)), "")
        if closer:
            text = self._mark_of(closer) + text.removeprefix(closer)
        return text

    def segments(self, rendered: str) -> list[str | int]:
        """Return rendered text as runs of plain text (never empty, never neighbours) and control token ids."""
        text = self._join_halves(rendered)
        segments: list[str | int] = []
        run = ""
        end = 0
        for match in _SURROGATE.finditer(text):
            run += text[end : match.start()]
            end = match.end()
            meaning = self._texts.get(match.group(), "")
            if meaning in self._ids:
                if run:
                    segments.append(run)
                    run = ""
                segments.append(self._ids[meaning])
            else:
                run += meaning
        run += text[end:]
        return [*segments, run] if run else segments

    def restored(self, text: str) -> str:
        """Return `text` with every mark written out."""
        return _SURROGATE.sub(lambda match: self._texts.get(match.group(), ""), text)

    def _mark_of(self, text: str) -> str:
        mark = self._marks.get(text)
        if mark is None:
            if _FIRST + len(self._marks) > _LAST:
                raise ValueError("a chat template names too many control tokens")
            mark = self._marks[text] = chr(_FIRST + len(self._marks))
            self._texts[mark] = text
        return mark

    def _join_halves(self, text: str) -> str:
        openers = "".join(self._marks[half] for half in self._openers if half in self._marks)
        closers = "".join(self._marks[half] for half in self._closers if half in self._marks)
        if not openers or not closers:
            return text

        def joined(match: re.Match[str]) -> str:
            token = self._texts[match[1]] + match[2] + self._texts[match[3]]
            return self._mark_of(token) if token in self._ids else match[0]

        return re.sub(f"([{openers}])({'|'.join(ROLES)})([{closers}])", joined, text)


class MarkLiterals(NodeTransformer):
    """Marks the literals of a parsed template that can get into its output."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.TemplateData:
        return nodes.TemplateData(self._marks.mark(node.data), lineno=node.lineno)

    def visit_Const(self, node: nodes.Const) -> nodes.Const:
        if isinstance(node.value, str):
            return nodes.Const(self._marks.mark(node.value), lineno=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Test:
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Getitem:
        node.node = self.visit(node.node)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Pair:
        node.value = self.visit(node.value)
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Call:
        if isinstance(node.node, nodes.Getattr) and node.node.attr != "join":  # a method: content.split('...')
            node.node.node = self.visit(node.node.node)
            return node
        self.generic_visit(node)
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Filter:
        if node.name in ("join", "default", "d"):
            self.generic_visit(node)
        elif node.node is not None:  # content | replace('...', '...')
            node.node = self.visit(node.node)
        return node


def without_surrogates(value: Any) -> Any:
    """Return a JSON value with every lone surrogate in its texts replaced by U+FFFD."""
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in value]
    return value
