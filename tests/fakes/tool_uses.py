"""What requests with tools come to, and which texts that lets a model write."""

import itertools

from tests.fakes.grammars import vocabulary
from tests.fakes.vocabularies import byte_level_tokenizer

from octavo.config.server_schema import StructuredOutputsConfig
from octavo.grammar.compile import compile_constraint
from octavo.grammar.sandbox import GrammarSandbox
from octavo.parsers.calls import ToolCallParser, ToolSet
from octavo.parsers.formats import TOOL_FORMATS
from octavo.server.openai.schemas import ChatRequest
from octavo.server.tool_use import read_tool_use

TOKENIZER = byte_level_tokenizer()
SANDBOX = GrammarSandbox()
USUAL = StructuredOutputsConfig()
WORDS = vocabulary(TOKENIZER)
PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}


def use(calls="hermes", usual=USUAL, **fields):
    """`calls`: a format or the name of one."""
    body = ChatRequest(model="m", messages=[{"role": "user", "content": "hi"}], **fields)
    grammar = TOOL_FORMATS.get(calls) if calls is None or isinstance(calls, str) else calls
    return read_tool_use(body, grammar, TOKENIZER, usual, SANDBOX)


def tool(name, parameters=PLACE, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def fits(constraint, text):
    """Whether text can begin an answer, and whether it is a whole one. In it a control token may stand."""
    matcher = compile_constraint(constraint, WORDS).open()
    for token_id in TOKENIZER.encode(text, add_special_tokens=False, parse_special=True):
        if matcher.is_complete:
            return False, False
        matcher.accept(token_id)
    if matcher.error is not None:
        return False, False
    matcher.accept(TOKENIZER.eos_token_ids[0])
    return True, matcher.error is None


def parser(found, max_calls=None):
    """The parser that reads the answers to a request."""
    counter = itertools.count()
    schemas = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in found.callable}
    return ToolCallParser(found.calls, ToolSet(schemas, lambda: f"call_{next(counter)}", max_calls, found.calls_lead))
