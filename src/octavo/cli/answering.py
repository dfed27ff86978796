"""What `chat` and `complete` need of a model, whether it runs here (local.py) or behind a URL (remote.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from octavo.config.flag_parser import FlagParser
from octavo.config.flags import ENGINE_GROUPS
from octavo.config.resolve import resolve

Message = dict[str, str]
Write = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """None: the model's own default. `max_tokens` None: up to the end of the context."""

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None

    def fields(self) -> dict[str, Any]:
        stated = {"max_tokens": self.max_tokens, "temperature": self.temperature, "seed": self.seed}
        return {name: value for name, value in stated.items() if value is not None}


@dataclass(frozen=True)
class Answered:
    """One answer, whole. Seconds are wall time; `first_token_s` is 0 when there was no token."""

    text: str
    num_prompt_tokens: int
    num_output_tokens: int
    first_token_s: float
    total_s: float

    def figures(self) -> str:
        decode_s = self.total_s - self.first_token_s
        rate = (self.num_output_tokens - 1) / decode_s if self.num_output_tokens > 1 and decode_s > 0 else 0.0
        return (
            f"{self.num_prompt_tokens:,} prompt + {self.num_output_tokens:,} output tokens · "
            f"first after {1e3 * self.first_token_s:,.0f} ms · {rate:,.1f} tok/s"
        )


class Answerer(Protocol):
    """A model that answers. `write` gets the text as it comes; KeyboardInterrupt ends that answer and is raised."""

    model_name: str

    def chat(self, messages: list[Message], options: Options, write: Write) -> Answered: ...
    def complete(self, prompt: str, options: Options, write: Write) -> Answered: ...
    def close(self) -> None: ...


def answering_parser(prog: str, description: str, usage: str) -> FlagParser:
    """Return a parser with the flags that `chat` and `complete` share, those of the engine among them."""
    parser = FlagParser(prog, description, ENGINE_GROUPS, usage=usage)
    parser.add_argument(
        "--url",
        metavar="URL",
        help="use the server at URL (http://127.0.0.1:8000) instead of loading a model; its key is OCTAVO_API_KEY",
    )
    parser.add_argument("--model-name", metavar="NAME", help="model to ask that server for [its first]")
    parser.add_argument("--temperature", type=float, metavar="T", help="0 takes the most likely token each time [the model's own]")
    parser.add_argument("--stats", action="store_true", help="print tokens and speed after each answer")
    return parser


def open_answerer(url: str | None, model_name: str | None, given: dict[str, Any]) -> Answerer:
    """Return a model behind `url`, or one loaded here with the engine flags `given`. Raises StartupError."""
    if url is not None:
        from octavo.cli.remote import RemoteAnswerer

        return RemoteAnswerer(url, model_name)
    from octavo.cli.local import LocalAnswerer

    return LocalAnswerer(resolve(given).engine)


def show(text: str) -> None:
    """Print a piece of an answer as it comes."""
    print(text, end="", flush=True)
