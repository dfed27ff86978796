"""JSON for arguments: every value a text that any encoder takes."""

from __future__ import annotations

import json
from typing import Any


def json_text(value: Any) -> str:
    """Return `value` as JSON, with letters as they are; escapes only where a text holds half a surrogate pair."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
