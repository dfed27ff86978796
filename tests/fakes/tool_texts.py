"""The same two calls as each format writes them, and what a client makes of a parser's deltas."""

import itertools
import json
from dataclasses import dataclass, field

from octavo.parsers.calls import ToolCallParser, ToolSet
from octavo.parsers.deltas import CallArguments, CallBegin, Content, Reasoning
from octavo.parsers.formats import TOOL_FORMATS

SCHEMAS = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "units": {"type": ["string", "null"]},
            "where": {"type": "object"},
        },
    },
    "stop": {"type": "object", "properties": {}},
    "math.add": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"anyOf": [{"type": "number"}, {"type": "null"}]}}},
}
ARGUMENTS = {"city": 'Saint-"Denis" {x} [y]\n</p> é', "days": 3, "units": None, "where": {"lat": [1.5, -2], "ok": True}}
CALLS = [("get_weather", ARGUMENTS), ("stop", {}), ("math.add", {"a": 1, "b": 2.5})]


def as_json(name, arguments, key="arguments"):
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


def as_texts(arguments):
    """Return values as they stand between tags: a text as it is, all else as JSON."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}


def as_xml(name, arguments):
    parameters = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in as_texts(arguments).items())
    return f"<function={name}>\n{parameters}</function>"


def as_python(name, arguments):
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def wrapped(opener, closer, write):
    return lambda calls: "\n".join(f"{opener}\n{write(*call)}\n{closer}" for call in calls)


def deepseek_v3(calls):
    one = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
    inner = "\n".join(one.format(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls)
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def deepseek_v31(calls):
    one = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
    inner = "".join(one.format(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls)
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def kimi_k2(calls):
    one = "<|tool_call_begin|>functions.{}:{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
    inner = "".join(one.format(name, i, json.dumps(arguments)) for i, (name, arguments) in enumerate(calls))
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


def json_list(calls):
    return json.dumps([{"name": name, "arguments": arguments} for name, arguments in calls])


def python_list(calls):
    return f"[{', '.join(as_python(*call) for call in calls)}]"


def mistral_names(calls):
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments)}" for name, arguments in calls)


def llama(calls):
    return "; ".join(as_json(*call, key="parameters") for call in calls)


def hermes(calls):
    return wrapped("<tool_call>", "</tool_call>", as_json)(calls)


def qwen_xml(calls):
    return wrapped("<tool_call>", "</tool_call>", as_xml)(calls)


def glm(calls):
    def one(name, arguments):
        pairs = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n" for key, text in as_texts(arguments).items())
        return f"<tool_call>{name}\n{pairs}</tool_call>"

    return "\n".join(one(*call) for call in calls)


def glm_in_one_line(calls):
    return glm(calls).replace(">\n<", "><").replace("\n<arg_key>", "<arg_key>").replace("stop\n", "stop")


def invocations(prefix, before="", after="", key_end=None):
    """As several families write them: <invoke name="f"><parameter name="k">v</parameter></invoke>, with a prefix of their own."""

    def one(name, arguments):
        texts = as_texts(arguments)
        pairs = "".join(
            f'<{prefix}parameter name="{key}"{key_end(arguments[key]) if key_end else ""}>{text}</{prefix}parameter>\n'
            for key, text in texts.items()
        )
        return f'{before}<{prefix}invoke name="{name}">\n{pairs}</{prefix}invoke>{after}'

    return lambda calls: "\n".join(one(*call) for call in calls)


def says_kind(value):
    return f' string="{"true" if isinstance(value, str) else "false"}"'


def around(opener, closer, write):
    return lambda calls: f"{opener}\n{write(calls)}\n{closer}"


WRITERS = [
    ("deepseek_v32", around("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", invocations("｜DSML｜", key_end=says_kind))),
    ("ernie45", hermes),
    ("glm45", glm),
    ("glm47", glm_in_one_line),
    ("hunyuan_a13b", lambda calls: f"<tool_calls>{json_list(calls)}</tool_calls>"),
    ("internlm", lambda calls: "".join(f"<|action_start|><|plugin|>\n{as_json(*call, key='parameters')}<|action_end|>" for call in calls)),
    ("mimo", qwen_xml),
    ("minimax_m2", around("<minimax:tool_call>", "</minimax:tool_call>", invocations(""))),
    (
        "step3",
        around(
            "<｜tool_calls_begin｜>",
            "<｜tool_calls_end｜>",
            invocations("steptml:", "<｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_end｜>"),
        ),
    ),
    ("step3p5", qwen_xml),
    ("xlam", json_list),
    ("xlam", lambda calls: f"```json\n{json_list(calls)}\n```"),
    ("deepseek_v3", deepseek_v3),
    ("deepseek_v31", deepseek_v31),
    ("granite", lambda calls: "<|tool_call|>" + json_list(calls)),
    ("granite", hermes),
    ("granite-20b-fc", lambda calls: "".join(f"<function_call> {as_json(*call)}" for call in calls)),
    ("granite4", hermes),
    ("hermes", hermes),
    ("jamba", lambda calls: f"<tool_calls>{json_list(calls)}</tool_calls>"),
    ("kimi_k2", kimi_k2),
    ("lfm2", lambda calls: f"<|tool_call_start|>{python_list(calls)}<|tool_call_end|>"),
    ("llama3_json", llama),
    ("llama3_json", lambda calls: "<|python_tag|>" + llama(calls)),
    ("llama4_json", llama),
    ("llama4_pythonic", lambda calls: f"<|python_start|>{python_list(calls)}<|python_end|>"),
    ("longcat", wrapped("<longcat_tool_call>", "</longcat_tool_call>", as_json)),
    ("mistral", lambda calls: "[TOOL_CALLS] " + json_list(calls)),
    ("mistral", mistral_names),
    ("olmo3", lambda calls: "<function_calls>\n" + "\n".join(as_python(*call) for call in calls) + "\n</function_calls>"),
    ("phi4_mini_json", lambda calls: "functools" + json_list(calls)),
    ("pythonic", python_list),
    ("qwen3_coder", qwen_xml),
    ("qwen3_coder", lambda calls: "\n".join(as_xml(*call) for call in calls)),
    ("qwen3_xml", qwen_xml),
    ("seed_oss", wrapped("<seed:tool_call>", "</seed:tool_call>", as_xml)),
]


@dataclass
class Folded:
    """What a client has at the end."""

    content: str = ""
    reasoning: str = ""
    calls: list = field(default_factory=list)  # [name, arguments as JSON text]


def fold(deltas):
    folded = Folded()
    for delta in deltas:
        match delta:
            case Content(text):
                folded.content += text
            case Reasoning(text):
                folded.reasoning += text
            case CallBegin(index, call_id, name):
                assert index == len(folded.calls) and call_id == f"call_{index}"
                folded.calls.append([name, ""])
            case CallArguments(index, text):
                assert index == len(folded.calls) - 1
                folded.calls[index][1] += text
        assert isinstance(delta, CallBegin) or delta.text, "an empty delta"
    return folded


def make_parser(name, **changes):
    counter = itertools.count()
    return ToolCallParser(TOOL_FORMATS[name], ToolSet(SCHEMAS, lambda: f"call_{next(counter)}", **changes))


def parse(parser, pieces):
    return fold([delta for piece in pieces for delta in parser.push(piece)] + parser.finish())
