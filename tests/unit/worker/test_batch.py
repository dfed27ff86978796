"""A step as arrays."""

import numpy as np
from msgspec.structs import asdict, replace

from octavo.messages.step import NewRow, RowStep
from octavo.params import SamplingParams
from octavo.worker.batch import build_batch
from octavo.worker.rows import IntList, Row


def row(request_id: str, num_tokens: int, block_ids: list[int]) -> Row:
    params = SamplingParams(seed=0)
    tokens = list(range(100, 100 + num_tokens))
    return Row(NewRow(request_id=request_id, token_ids=tokens, num_prompt_tokens=num_tokens, params=params, block_ids=block_ids), 1000)


def step(request_id: str, start: int, num_tokens: int, wants_sample: bool) -> RowStep:
    return RowStep(request_id=request_id, start=start, num_tokens=num_tokens, new_block_ids=[], wants_sample=wants_sample)


def test_a_chunk_and_a_decode_become_flat_tokens():
    chunk = (row("a", 9, [7, 2, 5]), step("a", 3, 3, wants_sample=False))
    decode = (row("b", 5, [3, 6]), step("b", 4, 1, wants_sample=True))
    batch = build_batch([chunk, decode], block_size=4)
    assert batch.token_ids.tolist() == [103, 104, 105, 104]
    assert batch.positions.tolist() == [3, 4, 5, 4]
    assert batch.query_start.tolist() == [0, 3, 4]
    assert batch.context_len.tolist() == [6, 5]
    assert batch.block_table.tolist() == [[7, 2, 5], [3, 6, 0]]
    assert batch.slot_mapping.tolist() == [7 * 4 + 3, 2 * 4, 2 * 4 + 1, 6 * 4]
    assert batch.sample_rows.tolist() == [3]


def test_arrays_are_contiguous_and_of_the_promised_types():
    batch = build_batch([(row("a", 2, [1]), step("a", 0, 2, wants_sample=True))], block_size=4)
    assert batch.token_types is None
    for name, array in asdict(replace(batch, token_types=batch.positions)).items():
        assert array.flags.c_contiguous, name
        assert array.dtype == (np.int64 if name == "slot_mapping" else np.int32), name


def test_a_list_grows_past_its_first_buffer():
    numbers = IntList([1, 2])
    for value in range(200):
        numbers.append(value)
    numbers.extend(range(1000))
    assert numbers.values.tolist() == [1, 2, *range(200), *range(1000)]


def test_one_token_each_is_what_it_is_beside_a_longer_row():
    alone = [(row("a", 9, [7, 2, 5]), step("a", 8, 1, wants_sample=True)), (row("b", 5, [3, 6]), step("b", 4, 1, wants_sample=False))]
    alone.append((row("c", 4, [9, 0, 0, 1]), step("c", 3, 1, wants_sample=True)))
    longer = (row("d", 6, [4, 8]), step("d", 0, 6, wants_sample=True))
    one, mixed = build_batch(alone, block_size=4), build_batch([*alone, longer], block_size=4)
    for name in ("token_ids", "positions", "context_len", "block_table", "slot_mapping"):
        assert getattr(one, name).tolist() == getattr(mixed, name)[:3].tolist(), name
        assert getattr(one, name).dtype == getattr(mixed, name).dtype, name
        assert getattr(one, name).flags.c_contiguous, name
    assert one.query_start.tolist() == mixed.query_start[:4].tolist()
    assert one.sample_rows.tolist() == [0, 2]
    assert mixed.sample_rows.tolist() == [0, 2, 8]
