"""``refold delete``: take a run out of the store; what its forks need stays, out of sight."""

from __future__ import annotations

import sys

import click

from engine.app.output import print_json, printable
from engine.app.shell import command_options, is_terminal, opened_store, run_argument


@click.command("delete")
@run_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@command_options
def command(run: str, yes: bool, as_json: bool) -> None:
    """Delete a run and its checkpoints. There is no way back but an export.

    Events that forks of the run share with it are kept for them, and its name stays taken as long as they are; with
    the last of these forks they go as well.

    \b
    Example:
      refold delete nightly --yes
    """
    with opened_store(read_only=False) as store:
        position = store.journal.existing_head(run).position
        if not yes:
            if as_json or not is_terminal(sys.stdin):
                raise click.UsageError(f"deleting {run!r} cannot be undone: give --yes")
            click.confirm(f"Delete run {printable(run)} with its {position} events?", abort=True, err=True)
        deleted = store.delete(run)
    if as_json:
        print_json(deleted.to_json())
        return
    kept = ""
    if deleted.needed_by:
        forks = ", ".join(map(printable, deleted.needed_by))
        kept = f"; its events up to {deleted.kept_until} are kept for {forks}"
    click.echo(f"run {printable(run)} is deleted{kept}")
    if deleted.released:
        gone = ", ".join(map(printable, deleted.released))
        click.echo(f"deleted before and kept for forks, now gone as well: {gone}")
