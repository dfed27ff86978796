"""What an evaluation harness reads: the log-probabilities of a text under the model, against transformers on the same weights."""

import numpy as np
import pytest
from tests.fakes.history_worker import make_request
from tests.fakes.tiny_llama import VOCAB, write_tiny_llama

from octavo.config.schema import CacheConfig, EngineConfig, ModelConfig, RuntimeConfig
from octavo.engine.startup import start_engine

PROMPT = [(7 * i * i + 3 * i + 1) % VOCAB for i in range(90)]
BOUNDS = {"reference": 1e-3, "native": 0.3}  # native: weights as they are, activations in 8-bit groups, K and V in half precision


def scores(folder, backend):
    """Return the TokenLogprobs of the prompt's tokens from the second on, and of the token that follows it."""
    config = EngineConfig(
        model=ModelConfig(model=str(folder)), cache=CacheConfig(num_gpu_blocks_override=40), runtime=RuntimeConfig(backend=backend)
    )
    core, _ = start_engine(config)
    core.add(make_request("r", PROMPT, max_tokens=1, temperature=0.0, logprobs=1, prompt_logprobs=3))
    of_prompt, of_answer = [], []
    while core.has_work:
        for delta in core.step().deltas:
            of_prompt += delta.prompt_logprobs or []
            of_answer += delta.logprobs or []
    return of_prompt, of_answer


@pytest.mark.reference
@pytest.mark.parametrize("backend", BOUNDS)
def test_they_equal_the_log_softmax_of_transformers(tmp_path, backend):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = write_tiny_llama(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        expected = torch.log_softmax(model(torch.tensor([PROMPT])).logits[0].double(), dim=-1).numpy()
    of_prompt, (of_answer,) = scores(folder, backend)
    actual = [entry.logprob for entry in of_prompt]
    np.testing.assert_allclose(actual, expected[np.arange(89), PROMPT[1:]], rtol=0, atol=BOUNDS[backend])
    assert abs(of_answer.logprob - expected[-1].max()) < BOUNDS[backend]
    if backend == "reference":
        for position, entry in enumerate(of_prompt):
            assert entry.rank == 1 + np.count_nonzero(expected[position] > expected[position, PROMPT[position + 1]])
            assert entry.top_ids == np.argsort(-expected[position])[:3].tolist()
