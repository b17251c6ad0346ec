"""``refold completion``: the script that lets a shell complete commands, options and the names of runs."""

from __future__ import annotations

from typing import Final

import click

from engine.app.output import print_json
from engine.app.shell import command_options

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_REFOLD_COMPLETE"
"""What the script sets when it asks the command for words; click looks for it under this name."""


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@command_options
def command(shell: str, as_json: bool) -> None:
    """Print the completion script of a shell.

    Names of runs are completed from the store that the command line names so far, else from $REFOLD_STORE.

    \b
    Examples:
      refold completion bash > refold-completion.sh
      refold completion zsh
      refold completion fish

    \b
    To use it:
      bash   add to .bashrc:                   eval "$(refold completion bash)"
      zsh    add to .zshrc, after compinit:    eval "$(refold completion zsh)"
      fish   refold completion fish > ~/.config/fish/completions/refold.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    script = kind(click.get_current_context().find_root().command, {}, "refold", VARIABLE)
    text = script.source_template % script.source_vars()  # source() would also look for a bash on this machine
    if as_json:
        print_json({"shell": shell, "script": text})
    else:
        click.echo(text)
