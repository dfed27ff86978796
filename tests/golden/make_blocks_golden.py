"""Write blocks.npz: random blocks of every quantised format, and the values that the gguf package gives them.

python tests/golden/make_blocks_golden.py        (needs gguf and numpy)
"""

from pathlib import Path

import gguf
import numpy as np

FORMATS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
SCALE_BYTES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def blocks(name: str, num_blocks: int, seed: int) -> np.ndarray:
    """Return random blocks [num_blocks, block bytes] with finite float16 scales."""
    random = np.random.RandomState(seed)
    block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    data = random.randint(0, 256, (num_blocks, block_bytes)).astype(np.uint8)
    for at in SCALE_BYTES[name]:
        data[:, at : at + 2] = random.standard_normal((num_blocks, 1)).astype(np.float16).view(np.uint8)
    return data


if __name__ == "__main__":
    golden = {}
    for name in FORMATS:
        golden[f"{name}_bytes"] = data = blocks(name, 2, seed=3)
        golden[f"{name}_values"] = gguf.dequantize(data, gguf.GGMLQuantizationType[name])
    np.savez_compressed(Path(__file__).parent / "blocks.npz", **golden)
