"""``refold runs``: which runs the store holds. Reads their heads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine.app.output import print_json, print_table
from engine.app.shell import command_options, note, opened_store

if TYPE_CHECKING:
    from engine.open_store import RunSummary


@click.command("runs")
@command_options
def command(as_json: bool) -> None:
    """List the runs of the store.

    Shows each run's position (its number of events), its checkpoints, for a fork the run and the position that it left
    (its origin), and its link: the end of its hash chain, which stands for everything that ever happened in it.

    \b
    Example:
      refold --store agents.db runs
    """
    with opened_store() as store:
        found = store.runs()
    if as_json:
        print_json(
            [
                {
                    "run": run.run,
                    "position": run.position,
                    "link": run.link,
                    "checkpoints": list(run.checkpoints),
                    "origin": run.origin,
                    "origin_position": run.origin_position,
                }
                for run in found
            ]
        )
        return
    if not found:
        note("the store holds no runs; 'refold import FILE --run ID' brings one in")
        return
    rows = [(run.run, run.position, len(run.checkpoints), _origin(run), run.link) for run in found]
    print_table(("run", "position", "checkpoints", "origin", "link"), rows, right=("position", "checkpoints"))


def _origin(run: RunSummary) -> str | None:
    return None if run.origin is None else f"{run.origin}@{run.origin_position}"
