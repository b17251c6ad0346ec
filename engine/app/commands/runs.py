"""``refold runs``: which runs the store holds. Reads the ends of runs only; exit code 1 when one contradicts itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine.app.output import print_json, print_table, printable
from engine.app.shell import command_options, note, opened_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.open_store import RunSummary


@click.command("runs")
@command_options
def command(as_json: bool) -> int:
    """List the runs of the store.

    Shows each run's position (its number of events), its checkpoints, for a fork the run and the position that it left
    (its origin), and its link: the end of its hash chain, which stands for everything that ever happened in it. A run
    whose end is damaged is named on standard error, and makes the exit code 1.

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
                    **({} if run.damage is None else {"damage": run.damage}),
                }
                for run in found
            ]
        )
    elif not found:
        note("the store holds no runs; 'refold import FILE --run ID' brings one in")
    else:
        _print(found)
    return 1 if any(run.damage is not None for run in found) else 0


def _print(found: Sequence[RunSummary]) -> None:
    rows = [(run.run, run.position, len(run.checkpoints), _origin(run), run.link) for run in found]
    print_table(("run", "position", "checkpoints", "origin", "link"), rows, right=("position", "checkpoints"))
    for run in found:
        if run.damage is not None:
            note(printable(f"{run.damage}; 'refold doctor' says more"))


def _origin(run: RunSummary) -> str | None:
    return None if run.origin is None else f"{run.origin}@{run.origin_position}"
