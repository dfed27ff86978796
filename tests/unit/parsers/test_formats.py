"""The table of formats, and which one a chat template teaches."""

import pytest

from octavo.parsers.formats import recognise_tool_format

TEMPLATES = {
    "hermes": r"""{{- "XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}" }}""",
    "mistral": "{{- '[TOOL_CALLS] [' }}",
    "deepseek_v3": "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + name + '\\n' + '```json'}}",
    "deepseek_v31": "{{'<｜tool▁call▁begin｜>'+ name + '<｜tool▁sep｜>' + arguments}}",
    "qwen3_coder": "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>",
    "granite": "{{ '<|start_of_role|>assistant<|tool_call|>' }}",
    "llama3_json": """{{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}""",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_that_teaches_one_format_is_recognised(name):
    assert recognise_tool_format(TEMPLATES[name]) == name


@pytest.mark.parametrize("template", ["", "{{ messages }}", "<tool_call>", TEMPLATES["hermes"] + TEMPLATES["mistral"]])
def test_a_template_that_may_be_any_is_not(template):
    assert recognise_tool_format(template) is None
