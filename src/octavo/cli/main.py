"""The `octavo` command: finds the subcommand and runs it. Each one is imported only when it is asked for.

Exit codes: 0 done; 1 it failed; 2 a flag or a setting is wrong; 3 it cannot start; 70 the engine died while serving;
130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from octavo import __version__

EXIT_FAILED, EXIT_USAGE, EXIT_STARTUP, EXIT_INTERRUPTED = 1, 2, 3, 130

COMMANDS = {
    "serve": ("octavo.cli.serve", "serve a model over the OpenAI API"),
    "chat": ("octavo.cli.chat", "talk with a model in the terminal; needs no server"),
    "complete": ("octavo.cli.complete", "continue a text"),
    "run-batch": ("octavo.cli.run_batch", "answer an OpenAI batch file"),
    "pull": ("octavo.cli.pull", "download a model"),
    "models": ("octavo.cli.pull", "list the catalogue and what is on disk"),
    "bench": ("octavo.cli.bench", "measure latency or throughput"),
    "plan": ("octavo.cli.plan", "size a model on paper: memory, speed, cost"),
    "simulate": ("octavo.cli.simulate", "what a fleet would do under given traffic, on a fake clock"),
    "doctor": ("octavo.cli.doctor", "name what limits a running server, and the way out"),
    "tune": ("octavo.cli.tune", "search the flags for this machine and a workload"),
    "completion": ("octavo.cli.completion", "complete commands and flags in your shell"),
    "collect-env": ("octavo.cli.collect_env", "print what this machine is, for a bug report"),
}

_SECTIONS = {
    "Use a model": ("serve", "chat", "complete", "run-batch"),
    "Models on disk": ("pull", "models"),
    "Measure and report": ("plan", "simulate", "bench", "doctor", "tune", "collect-env", "completion"),
}


def main(argv: Sequence[str] | None = None) -> int:
    _open_standard_files()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if words else EXIT_USAGE
    if words[0] in ("-v", "-V", "--version"):
        print(f"octavo {__version__}")
        return 0
    return _run(words[0], words[1:])


def _run(name: str, argv: list[str]) -> int:
    from octavo.errors import ConfigError, OctavoError, StartupError, did_you_mean

    try:
        if name not in COMMANDS:
            raise ConfigError(f"there is no command {name!r}{did_you_mean(name, COMMANDS)}; see octavo --help")
        command = import_module(COMMANDS[name][0])
        code: int = getattr(command, f"{name.replace('-', '_')}_main")(argv)
        return code
    except OctavoError as error:
        print(f"octavo: {error.message}", file=sys.stderr)
        if isinstance(error, ConfigError):
            return EXIT_USAGE
        return EXIT_STARTUP if isinstance(error, StartupError) else EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as in `octavo models | head`
        sys.stderr.close()
        return EXIT_FAILED
    except OSError as error:  # as when the disk is full that our output goes to
        print(f"octavo: {error}", file=sys.stderr)
        return EXIT_FAILED


def _open_standard_files() -> None:
    """Open those of 0, 1 and 2 that our starter has closed, on /dev/null: no socket of ours may get such a number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def _help() -> str:
    lines = ["Octavo: an inference engine and server for large language models.", "", "usage: octavo COMMAND [ARGUMENTS]"]
    for title, names in _SECTIONS.items():
        lines += ["", f"{title}:", *(f"  {name:<12} {COMMANDS[name][1]}" for name in names)]
    return "\n".join([*lines, "", "octavo COMMAND --help tells about one; octavo --version prints the version."])


if __name__ == "__main__":
    sys.exit(main())
