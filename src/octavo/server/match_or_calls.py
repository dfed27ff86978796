"""A format beside tools that may be called: the answer is a match or calls, and which of them its beginning tells.

Calls are written as the model writes them, behind their mark. Where a model may leave the mark out, a call without it is taken as one only
where no match can look like it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from octavo.constraints import Calls, StructuredOutputsParams
from octavo.errors import InvalidRequest
from octavo.grammar.calls import bare_call_schema, call_to_lark, tight_head
from octavo.grammar.sandbox import GrammarSandbox
from octavo.parsers.calls import Grammar
from octavo.parsers.json_calls import JsonCalls
from octavo.server.structured import check_constraint, tools_constraint
from octavo.text.tokenizer import Tokenizer


def match_or_calls(
    asked: StructuredOutputsParams,
    schemas: dict[str, Any],
    calls: Grammar,
    max_calls: int,
    tokenizer: Tokenizer,
    sandbox: GrammarSandbox,
    param: str,
) -> tuple[Grammar, StructuredOutputsParams]:
    """Return how calls are read beside a match, and what the answer must be: a match of `asked`, or calls of the tools of these schemas
    (name -> schema of the arguments). `param`: the field that `asked` came in. Raises InvalidRequest."""
    marks = [_as_mark(text, tokenizer) for text in (*calls.openers[:1], *calls.closers[:1])]
    if not isinstance(calls, JsonCalls) or not calls.openers or None in marks:
        raise InvalidRequest(
            "with this model's way of writing calls an answer cannot be held to be either calls or a match; "
            f"send tool_choice none or required, or leave {param} out",
            code="unsupported_value",
            param=param,
        )
    call = call_to_lark(schemas, calls.key)
    tools_constraint(call, sandbox)
    is_tag = asked.structural_tag is not None
    opener = calls.openers[0]
    beside = Calls(
        open=marks[0] or "",
        close=marks[1] if len(marks) > 1 else None,
        call=call,
        bare=None,
        max_calls=max_calls,
        begins=(opener if is_tag else opener[0],),
    )
    marked = replace(calls, openers=(opener,), is_bare=False, fences=())
    if calls.is_bare and asked.json is not None and not asked.whitespace_pattern:
        heads = (tight_head(name, calls.key) for name in schemas)
        try:
            schema = msgspec.json.encode(bare_call_schema(schemas, calls.key)).decode()
            bare = replace(beside, bare=schema, begins=(*beside.begins, *heads))
            return replace(marked, is_bare=True, is_exact=True), _checked(asked, bare, sandbox, param)
        except (InvalidRequest, ValueError):  # a match may look like such a call, or the schemas do not go into one
            pass
    return marked, _checked(asked, beside, sandbox, param)


def _checked(asked: StructuredOutputsParams, calls: Calls, sandbox: GrammarSandbox, param: str) -> StructuredOutputsParams:
    constraint = replace(asked, calls=calls)
    check_constraint(constraint, sandbox, None if param == "structured_outputs" else param)
    return constraint


def _as_mark(text: str, tokenizer: Tokenizer) -> str | int | None:
    """Return a mark as the model writes it: as a control token, or in letters; None where it would take more tokens than one."""
    token_id = tokenizer.control_tokens.get(text)
    if token_id is not None:
        return token_id
    return None if any(token in text for token in tokenizer.control_tokens) else text
