"""The offline LLM with the real model: what it takes as prompts, parameters and settings, and what it says to the rest."""

import numpy as np
import pytest
from tests.real_models import path_or_skip

from octavo import LLM, SamplingParams
from octavo.errors import ConfigError, InvalidRequest

pytestmark = pytest.mark.model

PARAMS = SamplingParams(max_tokens=3, temperature=0)


@pytest.fixture(scope="module")
def llm():
    path = path_or_skip()
    return LLM(path, max_model_len=64, num_gpu_blocks_override=8)


@pytest.mark.parametrize(
    "prompts", [[1, 2, 3], (1, 2, 3), np.array([1, 2, 3]), [np.array([1, 2, 3])], (ids for ids in [[1, 2, 3]])], ids=lambda _: ""
)
def test_token_ids_may_come_in_any_sequence(llm, prompts):
    (answer,) = llm.generate(prompts, PARAMS)
    assert answer.prompt_token_ids == [1, 2, 3]
    assert answer.outputs == llm.generate([[1, 2, 3]], PARAMS)[0].outputs


@pytest.mark.parametrize("prompts", [None, 5, b"text", [b"text"], [None], [[1.5]], [["a"]], [[]]], ids=repr)
def test_what_is_no_prompt_is_refused(llm, prompts):
    with pytest.raises(InvalidRequest):
        llm.generate(prompts, PARAMS)


@pytest.mark.parametrize("params", [{"max_tokens": 3}, ["x"], 5, [PARAMS, PARAMS]], ids=repr)
def test_what_are_no_parameters_is_refused(llm, params):
    with pytest.raises(InvalidRequest) as raised:
        llm.generate([[1]], params)
    assert raised.value.param == "sampling_params"


def test_tools_are_checked_and_refused_where_the_template_takes_none(llm):
    messages = [{"role": "user", "content": "hi"}]
    for name, param in (("f", "tools"), ("a b", "tools[0].function.name")):
        with pytest.raises(InvalidRequest) as raised:
            llm.chat(messages, PARAMS, tools=[{"type": "function", "function": {"name": name}}])
        assert raised.value.param == param


@pytest.mark.parametrize(("name", "value"), [("max_model_len", "8k"), ("enforce_eager", "no"), ("max_num_seqs", 1.5), ("modle", "x")])
def test_a_setting_of_a_wrong_type_or_name_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=name):
        LLM("no-such-model", **{name: value})
