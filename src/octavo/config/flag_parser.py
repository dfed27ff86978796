"""`FlagParser`: a command line over the table of flags.

`_` and `-` are the same in a flag's name, switches have a `--no-` form, integers may be written 4k or 4K (units.parse_int).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from octavo.config.flag_docs import describe
from octavo.config.flag_files import expand_files
from octavo.config.flags import Flag, Group, flags_in
from octavo.errors import ConfigError, did_you_mean


class FlagParser(argparse.ArgumentParser):
    """argparse over the table. Mistakes raise ConfigError and name the nearest right flag."""

    def __init__(self, prog: str, description: str, groups: Sequence[Group] = (), usage: str | None = None) -> None:
        super().__init__(prog=prog, description=description, usage=usage, allow_abbrev=False, formatter_class=_HelpFormatter)
        self._flags = flags_in(groups)
        for group in groups:
            section = self.add_argument_group(group)
            for flag in flags_in((group,)):
                _add(section, flag)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return the parsed arguments. Raises ConfigError."""
        namespace, rest = self.parse_known_args([_dashed(word) for word in expand_files(argv)])
        for word in rest:
            if word.startswith("-") and len(word) > 1:
                name = word.split("=", 1)[0]
                known = [option for option in self._option_string_actions if option.startswith("--")]
                raise ConfigError(f"unknown flag {name}{did_you_mean(name, known)}")
        if rest:
            raise ConfigError(f"unexpected argument {rest[0]!r}; see {self.prog} --help")
        return namespace

    def given(self, namespace: argparse.Namespace) -> dict[str, Any]:
        """Return the flags of the table that the command line gave: name -> value."""
        return {flag.name: getattr(namespace, flag.dest) for flag in self._flags if hasattr(namespace, flag.dest)}

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def _add(section: argparse._ArgumentGroup, flag: Flag) -> None:
    if flag.switch:
        section.add_argument(flag.option, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=describe(flag))
    else:
        section.add_argument(
            flag.option,
            metavar=flag.metavar,
            type=flag_type(flag.parse),
            action="append" if flag.repeatable else "store",
            default=argparse.SUPPRESS,
            help=describe(flag).replace("%", "%%"),
        )


def flag_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return `parse` for argparse, which wants its own exception and then puts the flag's name before the message."""

    def typed(text: str) -> Any:
        try:
            return parse(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(error.message) from error

    return typed


def _dashed(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


class _HelpFormatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=110)
