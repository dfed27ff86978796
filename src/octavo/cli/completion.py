"""`octavo completion bash|zsh|fish`: a script that completes commands and the flags of `octavo serve`, made from their tables."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.config.flag_parser import FlagParser
from octavo.config.flags import ALL_GROUPS, flags_in
from octavo.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")


def completion_main(argv: Sequence[str]) -> int:
    about = 'Print a script for your shell: eval "$(octavo completion bash)", or octavo completion fish | source.'
    parser = FlagParser("octavo completion", about, usage="octavo completion bash|zsh|fish")
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="your shell")
    shell = parser.parse(argv).shell
    if shell is None:
        raise ConfigError(f"which shell? octavo completion {'|'.join(SHELLS)}")
    print(_fish() if shell == "fish" else _bash(is_zsh=shell == "zsh"))
    return 0


def _bash(*, is_zsh: bool) -> str:
    """zsh runs bash's script after bashcompinit."""
    from octavo.cli.main import COMMANDS

    head = "autoload -Uz bashcompinit && bashcompinit\n" if is_zsh else ""
    return head + "\n".join(
        (
            "_octavo() {",
            "  local word=${COMP_WORDS[COMP_CWORD]}",
            "  if [ $COMP_CWORD -eq 1 ]; then",
            f'    COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$word"))',
            '  elif [[ ${COMP_WORDS[1]} == serve && "$word" == -* ]]; then',
            f'    COMPREPLY=($(compgen -W "{" ".join(_options())}" -- "$word"))',
            "  else",
            '    COMPREPLY=($(compgen -f -- "$word"))',
            "  fi",
            "}",
            "complete -F _octavo octavo",
        )
    )


def _fish() -> str:
    from octavo.cli.main import COMMANDS

    lines = ["complete -c octavo -n __fish_use_subcommand -f"]
    lines += [f"complete -c octavo -n __fish_use_subcommand -f -a {name} -d {_quoted(about)}" for name, (_, about) in COMMANDS.items()]
    for flag in flags_in(ALL_GROUPS):
        takes = "" if flag.switch else " -r"
        lines.append(f"complete -c octavo -n '__fish_seen_subcommand_from serve' -l {flag.name}{takes} -d {_quoted(flag.help)}")
    return "\n".join(lines)


def _options() -> list[str]:
    return [option for flag in flags_in(ALL_GROUPS) for option in ((flag.option, f"--no-{flag.name}") if flag.switch else (flag.option,))]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
