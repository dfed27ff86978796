"""Octavo: an inference engine and server for large language models.

    from octavo import LLM, SamplingParams

    llm = LLM()
    print(llm.generate("The capital of France is", SamplingParams(temperature=0))[0].outputs[0].text)

Names are imported when first asked for, so that `import octavo` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.client.answers import Answer, CompletionOutput
    from octavo.client.async_engine import AsyncEngine
    from octavo.client.async_llm import AsyncLLM
    from octavo.client.beam_search import BeamSearchParams
    from octavo.client.llm import LLM
    from octavo.config.schema import CacheConfig, EngineConfig, ModelConfig, RuntimeConfig, SchedulerConfig
    from octavo.constraints import StructuredOutputsParams
    from octavo.errors import OctavoError
    from octavo.params import SamplingParams

__version__ = "0.1.0"

_HOMES = {
    "AsyncEngine": "octavo.client.async_engine",
    "AsyncLLM": "octavo.client.async_llm",
    "Answer": "octavo.client.answers",
    "BeamSearchParams": "octavo.client.beam_search",
    "CompletionOutput": "octavo.client.answers",
    "LLM": "octavo.client.llm",
    "CacheConfig": "octavo.config.schema",
    "EngineConfig": "octavo.config.schema",
    "ModelConfig": "octavo.config.schema",
    "RuntimeConfig": "octavo.config.schema",
    "SchedulerConfig": "octavo.config.schema",
    "OctavoError": "octavo.errors",
    "SamplingParams": "octavo.params",
    "StructuredOutputsParams": "octavo.constraints",
}

__all__ = [
    "LLM",
    "Answer",
    "AsyncEngine",
    "AsyncLLM",
    "BeamSearchParams",
    "CacheConfig",
    "CompletionOutput",
    "EngineConfig",
    "ModelConfig",
    "OctavoError",
    "RuntimeConfig",
    "SamplingParams",
    "SchedulerConfig",
    "StructuredOutputsParams",
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
