"""From a model on disk to a model on the device: open the backend, read the weights, bind them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from octavo.backends.registry import open_backend
from octavo.config.schema import EngineConfig
from octavo.loaders.load import open_weights
from octavo.models.registry import bind
from octavo.ops.interface import Backend, Model
from octavo.specs.model import EncoderSpec, ModelSpec

OnPhase = Callable[[str, float], None]  # called after each phase with its name and its seconds


class LoadedModel(msgspec.Struct, frozen=True):
    """`weight_bytes`: what the backend holds for the weights, in its own layout."""

    backend: Backend
    model: Model
    spec: ModelSpec | EncoderSpec
    weight_bytes: int


def backend_of(config: EngineConfig) -> Backend:
    """Return the configured backend. Raises ConfigError as `open_backend` does."""
    runtime = config.runtime
    return open_backend(runtime.backend, runtime.threads, runtime.isa, few_rows=config.scheduler.performance_mode == "interactivity")


def load_model(config: EngineConfig, path: Path, *, on_phase: OnPhase | None = None) -> LoadedModel:
    """Return the model of `path` (a GGUF file or a safetensors folder) on the configured backend.

    Raises ConfigError for the backend and ModelError for the files."""
    phases = _Phases(on_phase)
    backend = backend_of(config)
    phases.end("open backend")
    checkpoint = open_weights(path)
    phases.end("open model files")
    model = bind(checkpoint.spec, checkpoint.tensors, backend)
    phases.end("load weights")
    return LoadedModel(backend, model, checkpoint.spec, model.weight_bytes)


class _Phases:
    """A stopwatch that reports each lap."""

    def __init__(self, on_phase: OnPhase | None) -> None:
        self._on_phase = on_phase
        self._since = time.perf_counter()

    def end(self, name: str) -> None:
        now = time.perf_counter()
        if self._on_phase is not None:
            self._on_phase(name, now - self._since)
        self._since = now
