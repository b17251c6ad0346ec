"""The command ``refold``: finds the command that was named, and turns what it raises into a message and an exit code.
It must never let a traceback stand for an answer that the user could act on."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

from engine.app.shell import Failed, store_option
from engine.core.errors import EngineError

__all__ = ["Refold", "main", "refold"]

COMMANDS: Final = (
    "demo",
    "import",
    "export",
    "runs",
    "show",
    "history",
    "why",
    "diff",
    "fork",
    "delete",
    "sql",
    "restore",
    "checkpoint",
    "digest",
    "verify",
    "doctor",
    "explain",
    "completion",
    "bench",
)
"""In the order of the help. The command NAME is ``engine.app.commands.NAME.command``, with ``import_`` for import."""

INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""What a shell reports for a program ended by SIGINT or SIGPIPE; we end quietly and say the same."""


class Refold(click.Group):
    """The group of all commands. A command's module is loaded when it is used; help loads them all, and they are
    light."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = "import_" if cmd_name == "import" else cmd_name
        command: click.Command = import_module(f"engine.app.commands.{module}").command
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line and end the process with its exit code; without ``standalone_mode`` return or raise
        instead."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        argv = list(sys.argv[1:] if args is None else args)
        sys.exit(self._run(argv, prog_name or "refold", complete_var, extra))

    def _run(self, argv: list[str], prog_name: str, complete_var: str | None, extra: dict[str, Any]) -> int:
        as_json = "--json" in argv
        try:
            code = super().main(argv, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except BrokenPipeError:
            _forget_output()
            return BROKEN_PIPE
        except (click.Abort, KeyboardInterrupt):
            return INTERRUPTED
        except EngineError as error:
            return Failed.by(error).show(as_json=as_json)
        except Failed as failed:
            return failed.show(as_json=as_json)
        except click.ClickException as error:
            return Failed.used_wrongly(error, prog_name).show(as_json=as_json)
        except OSError as error:
            return Failed.at_file(error).show(as_json=as_json)
        except Exception as error:
            if not as_json:
                traceback.print_exc()
            return Failed.by_a_bug(error).show(as_json=as_json)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click answers it with exit 1, which here means a finding
            _forget_output()
            ctx.exit(BROKEN_PIPE)


def _forget_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not complain when it flushes at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file: there is nothing to redirect
        return


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("refold")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "(source tree)"


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"refold {_version()}")
        ctx.exit()


@click.group(
    cls=Refold,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@store_option
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version, help="Show the version."
)
@click.pass_context
def refold(ctx: click.Context) -> None:
    """Checkpoints and exact restores for agent and task runtimes, by event sourcing.

    Every change of a run is an appended event; a state is a fold of its events, so a restored run is the run that was
    lost, byte for byte, and any position of the past can be looked at.

    \b
    Start here:
      refold demo                        kill a writer in mid-run, restore it, prove it identical
      refold import run.json --run r1    bring in the recording of a run
      refold show r1 --tasks --at 12     the task table as of event 12
      refold why r1 root                 what a task is waiting for, and what led there
      refold demo --tour                 all of it, step by step
      refold COMMAND --help              what a command does, with an example
      refold explain CODE                what an error or a finding means, and what to do

    \b
    Exit codes:
      0  good
      1  a finding: 'verify' or 'doctor' a fault, 'diff --exit-code' a difference, 'demo' could not prove something
      2  wrong usage: an option, a file or a value that cannot be used; a run or position that is not there
      3  store trouble: missing, not a store, damaged, locked, full, written by a newer refold
     70  a bug in refold, with its traceback
    With --json an error is {"error": {"code", "message", "hint"}} on standard error.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run ``refold`` with the arguments of this process; does not return."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal that cannot show a character shows its number, it does not fail
            reconfigure(errors="backslashreplace")
    refold(prog_name="refold")
