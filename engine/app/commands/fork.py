"""``refold fork``: a new run from a point of another's history."""

from __future__ import annotations

import click

from engine.app.output import print_json, printable
from engine.app.shell import command_options, opened_store, run_argument
from engine.app.times import moment_options, position_in


@click.command("fork")
@run_argument
@click.argument("new")
@moment_options
@command_options
def command(run: str, new: str, at: int | None, at_time: int | None, as_json: bool) -> None:
    """Make NEW a run that shares RUN's history up to an event or a time, and goes on by itself.

    No event is copied: a fork costs the same few bytes wherever it leaves. It is verified across the joint, and
    'refold runs' shows where it came from. Go on in it with store.run("NEW"); 'refold diff RUN NEW' then shows what
    would have happened.

    \b
    Examples:
      refold fork nightly what-if-2 --at 42
      refold fork nightly before-noon --at-time 2026-05-01T12:00
    """
    from engine.fork import fork_run

    with opened_store(read_only=False) as store:
        position = position_in(store, run, at, at_time)
        if position is None:
            position = store.journal.existing_head(run).position
        forked = fork_run(store.journal, run, new, position)
    if as_json:
        print_json(forked.to_json())
        return
    shared = f"{forked.position} events of run {printable(forked.origin)}"
    click.echo(f"run {printable(forked.run)}: a fork that shares {shared}")
