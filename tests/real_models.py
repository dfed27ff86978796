"""Models that tests run on when they are on this disk."""

from pathlib import Path

import pytest

from octavo.errors import OctavoError
from octavo.loaders.store import resolve_model

SMOLLM2 = "smollm2-135m-instruct"


def path_or_skip(name: str = SMOLLM2) -> Path:
    try:
        return resolve_model(name)
    except OctavoError as error:
        pytest.skip(str(error))
