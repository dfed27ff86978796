"""Write tiny_logits.npz: transformers' float32 logits of the tiny models of tests/models/tiny.py.

PYTHONPATH=src:tests/models python tests/golden/make_tiny_golden.py        (needs torch and transformers)
"""

import hf_tiny
import numpy as np
import tiny

golden = {name: hf_tiny.logits(spec, tiny.tensors(spec), tiny.token_ids()) for name, spec in tiny.CASES.items()}
np.savez_compressed(tiny.GOLDEN, **golden)
