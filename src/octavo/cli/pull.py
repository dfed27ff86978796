"""`octavo pull NAME` and `octavo models`: the command line of loaders/store.py."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.config.flag_parser import FlagParser


def pull_main(argv: Sequence[str]) -> int:
    parser = FlagParser("octavo pull", "Download a model and check it; once pulled, nothing touches the network.")
    parser.add_argument("name", metavar="NAME", help="a name of the catalogue (octavo models), hf:ORG/REPO[@REV], or a path")
    parser.add_argument("--force", action="store_true", help="download again even if it is there")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    args = parser.parse(argv)

    from octavo.cli.models import pull_command

    return pull_command(args.name, force=args.force, quiet=args.quiet)


def models_main(argv: Sequence[str]) -> int:
    FlagParser("octavo models", "List the catalogue and what is on disk.").parse(argv)

    from octavo.cli.models import models_command

    return models_command()
