"""The formats by name: how each model family writes tool calls and reasoning. Sources: the families' chat templates."""

from __future__ import annotations

from octavo.parsers.calls import Grammar
from octavo.parsers.json_calls import JsonCalls
from octavo.parsers.named_calls import MistralCalls, NamedCalls
from octavo.parsers.python_calls import PythonCalls
from octavo.parsers.reasoning import Thinking
from octavo.parsers.xml_calls import XmlCalls

# Small models of these families forget the tags, and write the object alone or as a block of code.
_HERMES = JsonCalls(
    openers=("<tool_call>",), closers=("</tool_call>", "```"), is_bare=True, separators=",", fences=("```json", "```xml", "```", "<tools>")
)
_QWEN_XML = XmlCalls(sections=("<tool_call>",), closers=("</tool_call>",))
_GLM = XmlCalls(
    sections=(),
    function="<tool_call>",
    after_name="",
    parameter="<arg_key>",
    after_key=("</arg_key>", "<arg_value>"),
    value_ends=("</arg_value>",),
    function_end="</tool_call>",
)
_LLAMA_JSON = JsonCalls(openers=("<|python_tag|>",), is_bare=True, separators=";,", key="parameters")

TOOL_FORMATS: dict[str, Grammar] = {
    "deepseek_v3": NamedCalls(
        section="<｜tool▁calls▁begin｜>",
        call="<｜tool▁call▁begin｜>",
        before_name="function<｜tool▁sep｜>",
        after_name="\n```json\n",
        after_arguments="```",
        closers=("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
    ),
    "deepseek_v31": NamedCalls(
        section="<｜tool▁calls▁begin｜>",
        call="<｜tool▁call▁begin｜>",
        after_name="<｜tool▁sep｜>",
        closers=("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
    ),
    "deepseek_v32": XmlCalls(
        sections=("<｜DSML｜function_calls>",),
        function='<｜DSML｜invoke name="',
        after_name='">',
        parameter='<｜DSML｜parameter name="',
        after_key=('">',),
        after_text_key='" string="true">',
        after_json_key='" string="false">',
        value_ends=("</｜DSML｜parameter>",),
        function_end="</｜DSML｜invoke>",
        closers=("</｜DSML｜function_calls>",),
    ),
    "ernie45": JsonCalls(openers=("<tool_call>",), closers=("</tool_call>",)),
    "glm45": _GLM,
    "glm47": _GLM,
    "granite": JsonCalls(openers=("<|tool_call|>", "<tool_call>"), closers=("</tool_call>",)),
    "granite-20b-fc": JsonCalls(openers=("<function_call>",)),
    "granite4": JsonCalls(openers=("<tool_call>",), closers=("</tool_call>",)),
    "hermes": _HERMES,
    "hunyuan_a13b": JsonCalls(openers=("<tool_calls>",), closers=("</tool_calls>",)),
    "internlm": JsonCalls(openers=("<|action_start|><|plugin|>",), closers=("<|action_end|>",)),
    "jamba": JsonCalls(openers=("<tool_calls>",), closers=("</tool_calls>",)),
    "kimi_k2": NamedCalls(
        section="<|tool_calls_section_begin|>",
        call="<|tool_call_begin|>",
        before_name="functions.",
        after_name="<|tool_call_argument_begin|>",
        closers=("<|tool_call_end|>", "<|tool_calls_section_end|>"),
        numbers_calls=True,
    ),
    "lfm2": PythonCalls(openers=("<|tool_call_start|>",), closers=("<|tool_call_end|>",)),
    "llama3_json": _LLAMA_JSON,
    "llama4_json": _LLAMA_JSON,
    "llama4_pythonic": PythonCalls(openers=("<|python_start|>",), closers=("<|python_end|>",), is_bare=True),
    "longcat": JsonCalls(openers=("<longcat_tool_call>",), closers=("</longcat_tool_call>",)),
    "mimo": _QWEN_XML,
    "minimax_m2": XmlCalls(
        sections=("<minimax:tool_call>",),
        function='<invoke name="',
        after_name='">',
        parameter='<parameter name="',
        after_key=('">',),
        value_ends=("</parameter>",),
        function_end="</invoke>",
        closers=("</minimax:tool_call>",),
    ),
    "mistral": MistralCalls(),
    "olmo3": PythonCalls(openers=("<function_calls>",), closers=("</function_calls>",), in_list=False),
    "phi4_mini_json": JsonCalls(openers=("functools",)),
    "pythonic": PythonCalls(is_bare=True),
    "qwen3_coder": _QWEN_XML,
    "qwen3_xml": _QWEN_XML,
    "seed_oss": XmlCalls(sections=("<seed:tool_call>",), closers=("</seed:tool_call>",)),
    "step3": XmlCalls(
        sections=("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>function<｜tool_sep｜>"),
        function='<steptml:invoke name="',
        after_name='">',
        parameter='<steptml:parameter name="',
        after_key=('">',),
        value_ends=("</steptml:parameter>",),
        function_end="</steptml:invoke>",
        closers=("<｜tool_call_end｜>", "<｜tool_calls_end｜>"),
    ),
    "step3p5": _QWEN_XML,
    "xlam": JsonCalls(openers=("<tool_call>", "[TOOL_CALLS]"), closers=("</tool_call>", "```"), is_bare=True, fences=("```json", "```")),
}

REASONING_FORMATS: dict[str, Thinking] = {
    "deepseek_r1": Thinking(begins_inside=True),
    "deepseek_v3": Thinking(),
    "ernie45": Thinking(frame=("<response>", "</response>")),
    "glm45": Thinking(),
    "glm47": Thinking(),
    "granite": Thinking(open="Here is my thought process:", close="Here is my response:"),
    "holo2": Thinking(),
    "hunyuan_a13b": Thinking(frame=("<answer>", "</answer>")),
    "kimi_k2": Thinking(),
    "mimo": Thinking(),
    "minimax_m2": Thinking(begins_inside=True),
    "mistral": Thinking(open="[THINK]", close="[/THINK]"),
    "nemotron_v3": Thinking(),
    "olmo3": Thinking(),
    "qwen3": Thinking(),
    "seed_oss": Thinking(open="<seed:think>", close="</seed:think>"),
    "step3": Thinking(begins_inside=True),
    "step3p5": Thinking(),
}

# What a chat template says when it teaches a format: all of these texts, and none of those.
_SIGNATURES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "deepseek_v3": (("<｜tool▁call▁begin｜>", "```json"), ()),
    "deepseek_v31": (("<｜tool▁call▁begin｜>",), ("```json",)),
    "deepseek_v32": (("<｜DSML｜",), ()),
    "glm45": (("<arg_key>", "<arg_value>"), ()),
    "granite": (("<|tool_call|>",), ()),
    "hermes": (("<tool_call>", '"name": <function-name>'), ("<function=",)),
    "kimi_k2": (("<|tool_calls_section_begin|>",), ()),
    "lfm2": (("<|tool_call_start|>",), ()),
    "llama3_json": (('{"name": function name, "parameters": dictionary of argument name and its value}',), ()),
    "minimax_m2": (("<minimax:tool_call>",), ()),
    "mistral": (("[TOOL_CALLS]",), ()),
    "qwen3_coder": (("<function=", "<parameter="), ("<seed:tool_call>",)),
    "seed_oss": (("<seed:tool_call>",), ()),
}


def recognise_tool_format(chat_template: str) -> str | None:
    """Return the format that a chat template teaches, or None unless it is surely one."""
    template = chat_template.replace('\\"', '"')
    found = [
        name
        for name, (wanted, unwanted) in _SIGNATURES.items()
        if all(text in template for text in wanted) and not any(text in template for text in unwanted)
    ]
    return found[0] if len(found) == 1 else None
