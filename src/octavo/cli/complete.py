"""`octavo complete`: the continuation of a text, streamed to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from octavo.cli.answering import Options, answering_parser, open_answerer, show
from octavo.config.flag_parser import flag_type
from octavo.errors import ConfigError
from octavo.units import parse_int

DEFAULT_MAX_TOKENS = 128


def complete_main(argv: Sequence[str]) -> int:
    parser = answering_parser("octavo complete", "Continue a text.", "octavo complete [TEXT] [FLAGS]")
    parser.add_argument("text", nargs="?", metavar="TEXT", help="what to continue; - or nothing reads it from standard input")
    parser.add_argument(
        "--max-tokens", type=flag_type(parse_int), default=DEFAULT_MAX_TOKENS, metavar="N", help=f"longest answer [{DEFAULT_MAX_TOKENS}]"
    )
    args = parser.parse(argv)
    text = sys.stdin.read() if args.text in (None, "-") else args.text
    if not text:
        raise ConfigError("there is no text to continue; give it as an argument or on standard input")
    given = parser.given(args)
    answerer = open_answerer(args.url, args.model_name, given)
    try:
        answer = answerer.complete(text, Options(args.max_tokens, args.temperature, given.get("seed")), show)
        print()
        if args.stats:
            print(f"[{answer.figures()}]", file=sys.stderr)
        return 0
    finally:
        answerer.close()
