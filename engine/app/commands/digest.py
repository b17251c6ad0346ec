"""``refold digest``: one number for everything a run is."""

from __future__ import annotations

import click

from engine.app.output import print_json, progress_bar
from engine.app.shell import command_options, opened_store, run_argument
from engine.app.times import moment_options, position_in


@click.command("digest")
@run_argument
@moment_options
@command_options
def command(run: str, at: int | None, at_time: int | None, as_json: bool) -> None:
    """Print the digest of a run's state.

    SHA-256 over the deterministic encoding of the whole state: two states have the same digest exactly when they are
    the same, on every machine and however they were restored.

    \b
    Examples:
      refold digest nightly --at 42
      refold digest nightly --at-time 2026-05-01T12:00Z
    """
    with opened_store() as store, progress_bar(f"folding {run}") as progress:
        view = store.view(run, at=position_in(store, run, at, at_time), progress=progress)
        digest = view.digest()
    if as_json:
        print_json({"run": run, "position": view.position, "digest": digest})
    else:
        click.echo(digest)
