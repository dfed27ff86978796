"""A worker over a tiny random model on the reference backend, and a few steps to drive it by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from octavo.backends.reference.backend import ReferenceBackend
from octavo.loaders.tensor_names import expected_shapes
from octavo.messages.step import NewRow, RowStep, StepPlan, StepResult
from octavo.models.registry import bind
from octavo.params import SamplingParams
from octavo.specs.model import ModelSpec, RopeSpec
from octavo.specs.tensors import Format, RawTensor
from octavo.units import cdiv
from octavo.worker.runner import LoadedModel
from octavo.worker.worker import Worker

VOCAB_SIZE = 50
BLOCK_SIZE = 16
NUM_BLOCKS = 24
MAX_TOKENS = 64
MAX_ROWS = 6


@pytest.fixture(scope="session")
def loaded() -> LoadedModel:
    spec = ModelSpec("qwen3", 2, 16, 24, 4, 2, 4, VOCAB_SIZE, 256, 1e-5, RopeSpec(dim=4), tie_embeddings=True, qk_norm=True)
    random = np.random.RandomState(3)
    tensors = {
        name: RawTensor(name, shape, Format.F32, memoryview(random.standard_normal(shape).astype(np.float32).tobytes()))
        for name, shape in expected_shapes(spec).items()
    }
    backend = ReferenceBackend()
    model = bind(spec, tensors, backend)
    return LoadedModel(backend, model, spec, model.weight_bytes)


@dataclass
class Driver:
    """Sends plans to a worker, handing out blocks in turn; keeps what each request got."""

    worker: Worker
    free_blocks: list[int] = field(default_factory=lambda: list(range(1, NUM_BLOCKS)))
    blocks: dict[str, list[int]] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)  # tokens known, prompt and output
    computed: dict[str, int] = field(default_factory=dict)
    output: dict[str, list[int]] = field(default_factory=dict)
    logprobs: dict[str, list] = field(default_factory=dict)
    step_id: int = 0

    def open(
        self, request_id: str, token_ids: list[int], params: SamplingParams, num_tokens: int | None = None, num_prompt: int | None = None
    ):
        """Return the parts of a plan that open a row and compute its first `num_tokens` tokens."""
        self.known[request_id], self.computed[request_id] = len(token_ids), 0
        self.blocks[request_id] = []
        self.output.setdefault(request_id, [])
        self.logprobs.setdefault(request_id, [])
        step = self.step(request_id, num_tokens)
        new = NewRow(
            request_id=request_id,
            token_ids=token_ids,
            num_prompt_tokens=num_prompt or len(token_ids),
            params=params,
            block_ids=step.new_block_ids,
        )
        return new, RowStep(request_id=request_id, start=0, num_tokens=step.num_tokens, new_block_ids=[], wants_sample=step.wants_sample)

    def step(self, request_id: str, num_tokens: int | None = None) -> RowStep:
        """Return a step of up to num_tokens of what a row has not computed yet (None: all of it)."""
        start = self.computed[request_id]
        count = min(num_tokens or MAX_TOKENS, self.known[request_id] - start)
        needed = cdiv(start + count, BLOCK_SIZE) - len(self.blocks[request_id])
        taken, self.free_blocks = self.free_blocks[:needed], self.free_blocks[needed:]
        self.blocks[request_id] += taken
        self.computed[request_id] = start + count
        return RowStep(
            request_id=request_id, start=start, num_tokens=count, new_block_ids=taken, wants_sample=start + count == self.known[request_id]
        )

    def release(self, request_id: str) -> list[str]:
        """Take a row's blocks back, to be used first by the next; return the plan's list of released rows."""
        self.free_blocks = self.blocks.pop(request_id) + self.free_blocks
        return [request_id]

    def run(self, new_rows=(), rows=(), released=()) -> StepResult:
        self.step_id += 1
        result = self.worker.execute(StepPlan(step_id=self.step_id, new_rows=list(new_rows), rows=list(rows), released=list(released)))
        for sampled in result.sampled:
            self.output[sampled.request_id] += sampled.token_ids
            self.logprobs[sampled.request_id] += sampled.logprobs or []
            self.known[sampled.request_id] += len(sampled.token_ids)
        return result

    def generate(self, request_id: str, token_ids: list[int], params: SamplingParams, count: int, chunk: int | None = None) -> list[int]:
        """Run one request alone, `chunk` tokens a step, until it has `count` output tokens; leave its row open."""
        new, step = self.open(request_id, token_ids, params, chunk)
        self.run([new], [step])
        while len(self.output[request_id]) < count:
            self.run(rows=[self.step(request_id, chunk)])
        return self.output[request_id]


@pytest.fixture
def make_driver(loaded):
    def make(enforce_eager: bool = False, kv_dtype: str = "bf16") -> Driver:
        return Driver(Worker(loaded, loaded.spec.kv_spec(kv_dtype, BLOCK_SIZE), NUM_BLOCKS, MAX_TOKENS, MAX_ROWS, enforce_eager))

    return make


@pytest.fixture
def driver(make_driver) -> Driver:
    return make_driver()
