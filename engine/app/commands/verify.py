"""``refold verify``: is the record intact? Exit code 1 says no."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine.app.output import print_json, print_table, printable, progress_bar
from engine.app.shell import command_options, known_runs, note, opened_store

if TYPE_CHECKING:
    from engine.open_store import Store
    from engine.verify import Verdict


@click.command("verify")
@click.argument("run", required=False, shell_complete=known_runs)
@click.option("--all", "every", is_flag=True, help="Verify every run of the store.")
@command_options
def command(run: str | None, every: bool, as_json: bool) -> int:
    """Check a run's record: the chain, the order, the canonical bytes, the fields of every event, that every event
    folds, and every checkpoint against the fold.

    Names every fault with its position, what was expected and what was found; exit code 1 when there is one. With
    --all --json the answer is a list, one verdict a run. Nothing is changed or repaired.

    \b
    Examples:
      refold verify nightly
      refold verify --all --json
    """
    from engine.core.errors import InvalidValue, NotFound

    if (run is None) == (not every):
        raise click.UsageError("name one run, or give --all")
    with opened_store() as store:
        names = [summary.run for summary in store.runs()] if run is None else [run]
        verdicts = []
        for name in names:
            with progress_bar(f"verifying {name}") as progress:
                try:
                    verdicts.append(store.verify(name, progress=progress))
                except (NotFound, InvalidValue):
                    if run is not None:
                        raise
                    verdicts += _listed_only(store, name)
    if as_json:
        shapes = [verdict.to_json() for verdict in verdicts]
        print_json(shapes if every else shapes[0])
    else:
        for verdict in verdicts:
            _print(verdict)
        if not verdicts:
            note("the store holds no runs")
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def _listed_only(store: Store, name: str) -> list[Verdict]:
    """Return the verdict on a run that the list names and nobody finds: its head record was damaged. None when it was
    deleted meanwhile."""
    from engine.verify import Fault, Verdict

    if name not in {summary.run for summary in store.runs()}:
        return []
    hint = "the name in a head record was changed; the run it belonged to is listed without one"
    fault = Fault(0, "missing_head", "a head record under the name of a run", f"one under {name!r:.60}", hint)
    return [Verdict(name, 0, 0, 0, (fault,))]


def _print(verdict: Verdict) -> None:
    name = printable(verdict.run)
    read = f"{verdict.events} events, {verdict.checkpoints} checkpoints"
    if verdict.outdated:
        read += f", {len(verdict.outdated)} of them by code of another version: restores pass them by"
    if verdict.ok:
        click.echo(f"{name}: intact ({read})")
        return
    count = len(verdict.faults)
    click.echo(f"{name}: {count} fault{'s' if count > 1 else ''}, intact up to position {verdict.position} ({read})")
    rows = [(fault.seq, fault.code, fault.expected, fault.found, fault.hint) for fault in verdict.faults]
    print_table(("position", "fault", "expected", "found", "hint"), rows, right=("position",))
