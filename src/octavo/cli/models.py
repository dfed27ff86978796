"""`octavo pull` and `octavo models`: what the store does, shown to a person.

Results go to standard output, progress to standard error: a bar on a terminal, else a line at each tenth of the way.
Errors are ModelErrors for the command's main to print.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.loaders.catalogue import find_model
from octavo.loaders.load import open_weights
from octavo.loaders.progress import OnProgress, PullProgress
from octavo.loaders.store import list_models, pull
from octavo.specs.model import ModelSpec
from octavo.units import format_bytes


def pull_command(name: str, *, force: bool = False, quiet: bool = False) -> int:
    """Bring the model `name` to this disk, or check the file or folder that it is the path of; return the exit status.

    Prints what the model is and how to serve it; `quiet` leaves out progress and all but errors. Raises ModelError.
    """
    if quiet:
        pull(name, force=force)
        return 0
    if model := find_model(name):
        print(f"{model.name}: {model.description} ({model.licence}, {format_bytes(model.size)})", file=sys.stderr)
    with _shown_progress() as on_progress:
        path = pull(name, on_progress=on_progress, force=force)
    print(f"{name}: {_describe(path)}. Ready: octavo serve {name}")
    return 0


def models_command() -> int:
    """Print the models of the catalogue and those pulled from the hub, one a line; return the exit status."""
    models = list_models()
    width = max(len(model.name) for model in models)
    for model in models:
        state = "on disk" if model.path else "-"
        print(f"{model.name:<{width}}  {state:<7}  {format_bytes(model.num_bytes):>9}  {model.licence:<10}  {model.description}")
    print("\nFetch one with `octavo pull NAME`; hf:OWNER/NAME takes safetensors models from the Hugging Face Hub.")
    return 0


def _describe(path: Path) -> str:
    checkpoint = open_weights(path)
    spec = checkpoint.spec
    heads = f"{spec.num_heads} heads"
    if isinstance(spec, ModelSpec):
        heads += f" ({spec.num_kv_heads} KV)"
    return (
        f"{spec.family}, {spec.num_layers} layers of {spec.hidden_size:,}, {heads}, vocabulary {spec.vocab_size:,}, "
        f"context {spec.max_position:,}, weights {format_bytes(checkpoint.num_bytes)}"
    )


@contextmanager
def _shown_progress() -> Iterator[OnProgress]:
    if not sys.stderr.isatty():
        yield _ProgressLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description:<11}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = {}

        def on_progress(progress: PullProgress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bar.add_task(progress.stage, total=None)
            bar.update(tasks[progress.stage], completed=progress.done_bytes, total=progress.total_bytes or None)

        yield on_progress


class _ProgressLines:
    """Prints a line when a stage begins and at each further tenth of it, with the mean speed and the time left."""

    def __init__(self) -> None:
        self.stage = ""
        self.tenth = 0
        self.started_s = 0.0
        self.first_bytes = 0

    def __call__(self, progress: PullProgress) -> None:
        done, total = progress.done_bytes, progress.total_bytes
        tenth = done * 10 // total if total else 0
        if progress.stage != self.stage:
            self.stage, self.tenth, self.started_s, self.first_bytes = progress.stage, tenth, time.monotonic(), done
            print(progress.stage + (f" {format_bytes(total)}" if total else ""), file=sys.stderr, flush=True)
        elif tenth > self.tenth:
            self.tenth = tenth
            speed = max(done - self.first_bytes, 1) / max(time.monotonic() - self.started_s, 1e-3)
            left = f", {format_bytes(speed)}/s, {(total - done) / speed:.0f} s left" if done < total else ""
            print(f"{progress.stage} {tenth * 10} % of {format_bytes(total)}{left}", file=sys.stderr, flush=True)
