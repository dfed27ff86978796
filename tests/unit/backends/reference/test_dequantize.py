"""What blocks of each format mean, bit for bit: golden blocks here, random ones against the gguf package."""

from pathlib import Path

import numpy as np
import pytest

from octavo.backends.reference.dequantize import dequantize, from_bfloat16, to_bfloat16
from octavo.specs.tensors import Format, RawTensor

BLOCKS = np.load(Path(__file__).parents[3] / "golden" / "blocks.npz")
QUANTISED = [format for format in Format if format.block_values > 1]


def tensor(format: Format, data: np.ndarray) -> RawTensor:
    rows = len(data)
    num_values = data.nbytes // format.block_bytes * format.block_values
    return RawTensor("x", (rows, num_values // rows), format, memoryview(data.tobytes()))


@pytest.mark.parametrize("format", QUANTISED, ids=lambda format: format.label)
def test_golden_blocks_give_their_golden_values_bit_for_bit(format):
    name = format.name
    values = dequantize(tensor(format, BLOCKS[f"{name}_bytes"]))
    assert np.array_equal(values.view(np.uint32), BLOCKS[f"{name}_values"].view(np.uint32))


@pytest.mark.reference
@pytest.mark.parametrize("format", QUANTISED, ids=lambda format: format.label)
def test_random_blocks_mean_what_the_gguf_package_says_bit_for_bit(format):
    gguf = pytest.importorskip("gguf")
    data = np.random.RandomState(11).randint(0, 256, (64, 4 * format.block_bytes)).astype(np.uint8)
    with np.errstate(all="ignore"):  # random scales may be infinite or NaN
        expected = gguf.dequantize(data, gguf.GGMLQuantizationType[format.name])
        assert np.array_equal(dequantize(tensor(format, data)).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize(("format", "dtype"), [(Format.F32, np.float32), (Format.F16, np.float16)])
def test_plain_floats_are_read_exactly(format, dtype):
    x = np.array([[0.0, -1.5, 65504.0], [1e-7, np.inf, 3.0]], dtype)
    assert np.array_equal(dequantize(tensor(format, x)), x.astype(np.float32))


def test_bfloat16_is_the_upper_half_of_float32():
    assert from_bfloat16(np.array([0x3F80, 0xC000, 0x7F80], np.uint16)).tolist() == [1.0, -2.0, np.inf]


def test_rounding_to_bfloat16_goes_to_nearest_and_ties_to_even():
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF808000], np.uint32)
    assert to_bfloat16(bits.view(np.float32)).tolist() == [0x3F80, 0x3F82, 0x3F81, 0x3F80, 0xBF80]


def test_rounding_to_bfloat16_overflows_to_infinity_and_keeps_nan():
    x = np.array([np.finfo(np.float32).max, np.nan, -np.inf], np.float32)
    back = from_bfloat16(to_bfloat16(x))
    assert back[0] == np.inf and np.isnan(back[1]) and back[2] == -np.inf


def test_a_nan_whose_payload_lies_in_the_lower_half_stays_nan():
    assert np.isnan(from_bfloat16(to_bfloat16(np.array([0x7F800001], np.uint32).view(np.float32))))[0]
