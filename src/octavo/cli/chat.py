"""`octavo chat`: a conversation in the terminal, streamed. Loads the model itself, or uses a server with --url.

Ctrl-C ends the answer that is being written, not the program; Ctrl-D or /quit ends the program.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from octavo.cli.answering import Answered, Answerer, Message, Options, Write, answering_parser, open_answerer, show
from octavo.config.flag_parser import flag_type
from octavo.errors import RequestError, did_you_mean
from octavo.units import parse_int

HELP = """\
/help            this
/reset           forget the conversation
/system [TEXT]   set the system prompt and forget the conversation; without TEXT, none
/stats           tokens and speed of the last answer
/quit            end (also Ctrl-D)
Ctrl-C stops an answer."""
COMMANDS = ("/help", "/reset", "/system", "/stats", "/quit")


def chat_main(argv: Sequence[str]) -> int:
    parser = answering_parser("octavo chat", "Talk with a model in the terminal.", "octavo chat [MODEL] [FLAGS]")
    parser.add_argument("model_tag", nargs="?", metavar="MODEL", help="model to load (the same as --model)")
    parser.add_argument("-q", "--quick", metavar="MESSAGE", help="answer MESSAGE and end")
    parser.add_argument("--system-prompt", metavar="TEXT", help="what the model is told first")
    parser.add_argument("--max-tokens", type=flag_type(parse_int), metavar="N", help="longest answer [to the end of the context]")
    args = parser.parse(argv)
    given = parser.given(args) | ({"model": args.model_tag} if args.model_tag else {})
    options = Options(args.max_tokens, args.temperature, given.get("seed"))
    answerer = open_answerer(args.url, args.model_name, given)
    try:
        talk = Conversation(answerer, options, args.system_prompt, show)
        if args.quick is not None:
            talk.say(args.quick)
            print()
            _print_stats(talk.last if args.stats else None)
        else:
            _read_and_answer(talk, args.stats)
        return 0
    finally:
        answerer.close()


class Conversation:
    """The messages so far. An answer that was stopped, or failed, leaves no trace in them."""

    def __init__(self, answerer: Answerer, options: Options, system_prompt: str | None, write: Write) -> None:
        self._answerer = answerer
        self._options = options
        self.show = write
        self.model_name = answerer.model_name
        self.last: Answered | None = None
        self.reset(system_prompt)

    def reset(self, system_prompt: str | None) -> None:
        self.system_prompt = system_prompt
        self.messages: list[Message] = [{"role": "system", "content": system_prompt}] if system_prompt else []

    def say(self, text: str) -> None:
        """Write the model's answer to `text`. Raises what the answerer raises."""
        asked = [*self.messages, {"role": "user", "content": text}]
        self.last = self._answerer.chat(asked, self._options, self.show)
        self.messages = [*asked, {"role": "assistant", "content": self.last.text}]


def obey(talk: Conversation, line: str) -> str | None:
    """Do what a /command line says and return what to print; None ends the program."""
    command, _, rest = line.partition(" ")
    if command == "/quit":
        return None
    if command == "/help":
        return HELP
    if command == "/reset":
        talk.reset(talk.system_prompt)
        return "The conversation begins anew."
    if command == "/system":
        talk.reset(rest.strip() or None)
        return "The system prompt is set." if rest.strip() else "There is no system prompt now."
    if command == "/stats":
        return talk.last.figures() if talk.last else "There was no answer yet."
    return f"There is no command {command}{did_you_mean(command, COMMANDS)} (/help lists them)"


def _read_and_answer(talk: Conversation, stats: bool) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (gives input() line editing and history)
    if sys.stdin.isatty():
        print(f"{talk.model_name}. /help lists commands, Ctrl-D ends.")
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            print()
            continue
        if line.startswith("/"):
            reply = obey(talk, line)
            if reply is None:
                return
            print(reply)
        elif line:
            _answer(talk, line, stats)


def _answer(talk: Conversation, line: str, stats: bool) -> None:
    try:
        talk.say(line)
    except KeyboardInterrupt:
        print(" [stopped]")
        return
    except RequestError as error:
        print(f"octavo: {error.message}", file=sys.stderr)
        return
    print()
    _print_stats(talk.last if stats else None)


def _print_stats(answer: Answered | None) -> None:
    if answer is not None:
        print(f"[{answer.figures()}]", file=sys.stderr)
