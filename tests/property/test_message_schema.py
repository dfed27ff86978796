"""What /openapi.json says of messages is what is taken: neither more nor less."""

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from octavo.errors import InvalidRequest
from octavo.server.openai.messages_schema import MESSAGES_SCHEMA
from octavo.text.conversation import validate_messages

DESCRIBED = Draft202012Validator(MESSAGES_SCHEMA)
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKED = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]

odd = st.sampled_from([None, True, 0, -1, 1.5, "", "a", "a b", "<|", [], [1], {}, {"a": 1}, [{}], ["a"], "x" * 300])
either = st.one_of


def mostly(good):
    return st.integers(0, 7).flatmap(lambda dice: odd if dice == 0 else good)


parts = st.fixed_dictionaries(
    {"type": mostly(st.sampled_from(["text", "input_text", "output_text"])), "text": mostly(st.text(max_size=4))},
    optional={
        "annotations": mostly(st.just([])),
        "logprobs": mostly(st.just([{}])),
        "cache_control": mostly(st.just({"type": "ephemeral"})),
        "extra": odd,
    },
)
functions = st.fixed_dictionaries({"name": mostly(st.just("f"))}, optional={"arguments": mostly(st.sampled_from(["{}", "no", {}]))})
calls = st.fixed_dictionaries(
    {"id": mostly(st.just("c")), "function": mostly(functions)}, optional={"type": mostly(st.just("function")), "index": odd}
)
FIELDS = {
    "name": odd,
    "tool_calls": mostly(st.lists(mostly(calls), max_size=2)),
    "reasoning_content": mostly(st.text(max_size=3)),
    "reasoning": mostly(st.text(max_size=3)),
    "refusal": odd,
    "annotations": odd,
    "audio": odd,
    "function_call": odd,
    "unheard_of": odd,
}
fields = st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names})
)
call_ids = either(st.just({}), st.sampled_from([None, 3, "", "c", []]).map(lambda value: {"tool_call_id": value}))
contents = either(st.just({}), mostly(st.text(max_size=4) | st.lists(mostly(parts), max_size=2)).map(lambda value: {"content": value}))
roles = mostly(st.sampled_from(["system", "developer", "user", "assistant", "assistant", "tool"])).map(lambda role: {"role": role})
messages = st.tuples(roles, contents, call_ids, fields).map(lambda pieces: pieces[0] | pieces[1] | pieces[2] | pieces[3])


@settings(max_examples=700, deadline=None, derandomize=True)
@given(mostly(messages))
def test_a_message_is_taken_exactly_if_its_description_holds(message):
    conversation = [*ASKED, message]
    try:
        validate_messages(conversation)
        is_taken = True
    except InvalidRequest:
        is_taken = False
    assert is_taken == DESCRIBED.is_valid(conversation)
