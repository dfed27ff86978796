"""The table of formats, and which one a chat template teaches."""

from pathlib import Path

import pytest

from octavo.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, recognise_tool_format

TEMPLATES = {
    "hermes": r"""{{- "XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}" }}""",
    "mistral": "{{- '[TOOL_CALLS] [' }}",
    "deepseek_v3": "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + name + '\\n' + '```json'}}",
    "deepseek_v31": "{{'<｜tool▁call▁begin｜>'+ name + '<｜tool▁sep｜>' + arguments}}",
    "qwen3_coder": "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>",
    "deepseek_v32": 'Write <｜DSML｜function_calls>\n<｜DSML｜invoke name="$FUNCTION_NAME">',
    "glm45": "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>",
    "minimax_m2": '{{ "<minimax:tool_call>" }}\n<invoke name="tool-name-1">\n<parameter name="param-key-1">',
    "granite": "{{ '<|start_of_role|>assistant<|tool_call|>' }}",
    "llama3_json": """{{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}""",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_that_teaches_one_format_is_recognised(name):
    assert recognise_tool_format(TEMPLATES[name]) == name


@pytest.mark.parametrize("template", ["", "{{ messages }}", "<tool_call>", TEMPLATES["hermes"] + TEMPLATES["mistral"]])
def test_a_template_that_may_be_any_is_not(template):
    assert recognise_tool_format(template) is None


def test_the_page_about_tools_names_every_format():
    page = (Path(__file__).parents[3] / "docs" / "tools.md").read_text()
    assert [name for name in (*TOOL_FORMATS, *REASONING_FORMATS) if f"`{name}`" not in page] == []
