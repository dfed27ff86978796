"""Sampling in C++ (csrc/sampler.cpp), one row a thread at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.backends.native import _native
from octavo.ops.interface import Sampled, SamplingBatch


def sample(sampler: _native.Sampler, logits: npt.NDArray[np.float32], how: SamplingBatch) -> Sampled:
    """Return one token per row of logits [S, V]; see SamplingBatch and Sampled. Raises ValueError for ids beyond V."""
    num_rows = len(logits)
    num_top = max(0, int(how.num_logprobs.max(initial=0)))
    result = Sampled(
        token_ids=np.zeros(num_rows, np.int32),
        is_nan=np.zeros(num_rows, np.bool_),
        logprob=np.full(num_rows, -np.inf, np.float32),
        rank=np.zeros(num_rows, np.int32),
        top_ids=np.full((num_rows, num_top), -1, np.int32),
        top_logprobs=np.full((num_rows, num_top), -np.inf, np.float32),
    )
    sampler.sample(
        logits,
        how.temperature,
        how.top_k,
        how.top_p,
        how.min_p,
        how.repetition_penalty,
        how.presence_penalty,
        how.frequency_penalty,
        how.seed,
        how.position,
        how.num_logprobs,
        how.typical_p,
        how.top_n_sigma,
        how.xtc_probability,
        how.xtc_threshold,
        how.wants_processed,
        how.given,
        how.banned_start,
        how.banned_ids,
        how.bias_start,
        how.bias_ids,
        how.bias_values,
        how.seen_start,
        how.seen_ids,
        how.seen_counts,
        how.allowed_row,
        how.allowed,
        result.token_ids,
        result.is_nan,
        result.logprob,
        result.rank,
        result.top_ids,
        result.top_logprobs,
    )
    return result
