"""`stateferry completion`: prints the script by which a shell completes commands, options and choices.

The script is made from the parsers and has all words in it, so the shell doesn't start Python for each of them. Zsh
runs the script of bash.
"""

from __future__ import annotations

import argparse
import shlex
import sys

from stateferry.cli.parser import Parser

HELP = "print what completes commands and options in a shell"
DESCRIPTION = """\
Print the script by which a shell completes commands, options and their choices; paths are completed as usual.

  bash: echo 'eval "$(stateferry completion bash)"' >> ~/.bashrc
  zsh:  echo 'eval "$(stateferry completion zsh)"' >> ~/.zshrc
"""
# Zsh begins with this.
_BASH_IN_ZSH = "autoload -U +X compinit && compinit; autoload -U +X bashcompinit && bashcompinit\n"
_SCRIPT = """\
_stateferry() {{
  local word before command= words=
  word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  [ "$COMP_CWORD" -gt 1 ] && command=${{COMP_WORDS[1]}}
  case "$command" in
{options}
  esac
  case "$command $before" in
{after}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _stateferry stateferry
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash or zsh")


def run(options: argparse.Namespace) -> int:
    sys.stdout.write((_BASH_IN_ZSH if options.shell == "zsh" else "") + _script(options.parser))
    return 0


def _script(parser: Parser) -> str:
    choices, values = [], []
    words = [_case([""], [*parser.commands, *_options(parser)])]
    for name, command in parser.commands.items():
        command.complete()
        for action in command._actions:
            after = [f"{name} {option}" for option in action.option_strings]
            if after and action.choices:
                choices.append(_case(after, list(map(str, action.choices))))
            elif after and action.nargs != 0:
                values += after
        offered = _places(command) or _options(command)
        words.append(_case([name], offered, only_options=offered[0].startswith("-") and _has_paths(command)))
    return _SCRIPT.format(after="\n".join([*choices, _case(values, [])]), options="\n".join(words))


def _has_paths(command: Parser) -> bool:
    """Whether arguments without an option are paths, as far as can be known here."""
    return any(not action.option_strings for action in command._actions)


def _places(command: Parser) -> list[str]:
    """The choices of arguments without an option."""
    return [str(one) for action in command._actions if not action.option_strings for one in action.choices or ()]


def _options(parser: Parser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings if name.startswith("--")]


def _case(patterns: list[str], words: list[str], *, only_options: bool = False) -> str:
    """What to offer; with `only_options` only for a word that begins as an option does."""
    if_option = "[[ $word != -* ]] || " if only_options else ""
    return f"  {'|'.join(map(shlex.quote, patterns))}) {if_option}words={shlex.quote(' '.join(words))} ;;"
