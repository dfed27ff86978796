"""How near to its floor a measured run came: floor time over measured time of the same requests.

Reads the results of `octavo bench throughput` and `octavo bench serve`: how many requests, tokens in and out, seconds, and how
many requests were in flight at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.errors import ConfigError
from octavo.planner.floors import decode_floor, prefill_floor
from octavo.planner.sizing import Deployment, size


def measured_efficiency(deployment: Deployment, result: Mapping[str, Any]) -> float:
    """Return the floor's seconds over the measured ones, in (0, 1].

    Raises ConfigError for a result of another kind, and for one faster than the floor: then it was not this device or model.
    """
    requests, given, made, seconds, at_once = _figures(result)
    batch = max(1, min(round(at_once), size(deployment).max_num_seqs))
    prompt, answer = max(1, round(given / requests)), made / requests
    prefill_s = prefill_floor(deployment, prompt).seconds * requests
    decode_s = decode_floor(deployment, batch, prompt + round(answer / 2)).step_s * made / batch
    efficiency = (prefill_s + decode_s) / deployment.dp / seconds
    if efficiency > 1:
        raise ConfigError(
            f"the run took {seconds:.2f} s, and the floor is {(prefill_s + decode_s) / deployment.dp:.2f} s: it was not measured with this "
            "model on this device; give the --device it ran on"
        )
    return efficiency


def _figures(result: Mapping[str, Any]) -> tuple[float, float, float, float, float]:
    """Return (requests, input tokens, output tokens, seconds, requests at once)."""
    if "output_tokens_per_second" in result:  # bench throughput: all requests are given at once
        requests, seconds = _number(result, "num_requests"), _number(result, "elapsed_time")
        made = _number(result, "output_tokens_per_second") * seconds
        return requests, _number(result, "total_num_tokens") - made, made, seconds, requests
    if "total_output_tokens" in result:  # bench serve
        return (
            _number(result, "completed"),
            _number(result, "total_input_tokens"),
            _number(result, "total_output_tokens"),
            _number(result, "duration"),
            _number(result, "max_concurrent_requests"),
        )
    raise ConfigError("the file is no result of octavo bench throughput or octavo bench serve")


def _number(result: Mapping[str, Any], name: str) -> float:
    value = result.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ConfigError(f"the bench result's {name} is {repr(value)[:40]}; it must be more than 0")
    return float(value)
