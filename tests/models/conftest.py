"""Lets the tests of this folder import tiny.py and hf_tiny.py beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
