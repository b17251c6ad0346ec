"""``refold diff``: what changed between two states, with a proof."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, NamedTuple

import click

from engine.app.output import print_json, printable, progress_bar
from engine.app.shell import command_options, known_runs, opened_store
from engine.app.times import Where, moment_options, parse_where, position_in

if TYPE_CHECKING:
    from engine.open_store import Store
    from engine.runs import RunView


class Side(NamedTuple):
    """One side of a comparison: a run, and a place in it."""

    run: str
    where: Where


@click.command("diff")
@click.argument("run", metavar="RUN[@WHERE]", shell_complete=known_runs)
@click.argument("others", metavar="[A B | OTHER[@WHERE]]", nargs=-1)
@click.option("--with", "file", type=click.File("rb"), metavar="FILE", help="Compare with the state in a JSON file.")
@click.option("--checkpoints", is_flag=True, help="Compare the last two checkpoints of the run.")
@moment_options
@click.option("--exit-code", is_flag=True, help="End with 1 when there is a difference.")
@command_options
def command(
    run: str,
    others: tuple[str, ...],
    file: IO[bytes] | None,
    checkpoints: bool,
    at: int | None,
    at_time: int | None,
    exit_code: bool,
    as_json: bool,
) -> int:
    """Show what changed: between two places of a run, between two runs, between a run and its fork, or between a run
    and a state that another program wrote to a FILE.

    A place (A, B, WHERE) is the number of an event, a time in ISO 8601, or 'now'. With --at or --at-time alone: from
    there to now. A FILE is what 'refold show --json' prints, a list of task rows, or records by kind and id; kinds that
    it leaves out are not compared.

    With --json: the changes, and a JSON Patch (RFC 6902); 'proved' says that patching the first state gave the second.

    \b
    Examples:
      refold diff nightly 10 42
      refold diff nightly 10 2026-05-01T12:00 --json
      refold diff nightly --at-time 2026-05-01T12:00
      refold diff nightly --checkpoints
      refold diff nightly@42 what-if
      refold diff nightly --with state.json --exit-code
    """
    here = Where(at, at_time)
    if sum((file is not None, checkpoints, bool(others), here != Where() and file is None)) != 1 or len(others) > 2:
        raise click.UsageError("name two places, or another run, or one of --with, --checkpoints, --at and --at-time")
    with opened_store() as store:
        if file is not None:
            from engine.read_json import read_all, read_json

            label = str(getattr(file, "name", "-"))
            theirs = read_json(read_all(file, label), label)
            name, view = _view(store, _side(run) if here == Where() else Side(run, here))
            names, found = (name, label), view.diff_with(theirs)
        else:
            one, other = _sides(store, run, others, here, checkpoints)
            (name, before), (other_name, after) = _view(store, one), _view(store, other)
            names, found = (name, other_name), before.diff_with(after)
    if as_json:
        print_json(
            {
                "changes": [change.to_json() for change in found.changes],
                "patch": list(found.patch),
                "proved": found.proved,
            }
        )
    elif not found:
        click.echo(f"no difference between {printable(names[0])} and {printable(names[1])}")
    else:
        from engine.app.tables import print_differences

        click.echo(f"from {printable(names[0])} to {printable(names[1])}\n")
        print_differences(found.changes)
    return 1 if found and exit_code else 0


def _sides(store: Store, run: str, others: tuple[str, ...], here: Where, checkpoints: bool) -> tuple[Side, Side]:
    """Return the two sides of a comparison within the store. Raises NotFound for too few checkpoints."""
    if checkpoints:
        return _last_checkpoints(store, run)
    if len(others) == 2:
        return Side(run, _where(others[0])), Side(run, _where(others[1]))
    if others:
        return _side(run), _side(others[0])
    return Side(run, here), Side(run, Where())


def _last_checkpoints(store: Store, run: str) -> tuple[Side, Side]:
    from engine.core.errors import NotFound

    store.journal.existing_head(run)
    positions = store.checkpoints.positions(run)[:2]
    if len(positions) < 2:
        raise NotFound(
            f"run {run!r} has {len(positions)} checkpoints, and it takes two to compare",
            hint="'refold checkpoint RUN' writes one; 'refold diff RUN A B' compares any two positions",
        )
    newer, older = positions
    return Side(run, Where(at=older)), Side(run, Where(at=newer))


def _where(text: str) -> Where:
    try:
        return parse_where(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _side(text: str) -> Side:
    """Return the side that RUN[@WHERE] names: what is behind the last @ is a place if it can be one, else part of the
    run's id."""
    run, at, where = text.rpartition("@")
    try:
        return Side(run, parse_where(where)) if at and run else Side(text, Where())
    except ValueError:
        return Side(text, Where())


def _view(store: Store, side: Side) -> tuple[str, RunView]:
    """Return what to call a side, and its state."""
    with progress_bar(f"folding {side.run}") as progress:
        view = store.view(side.run, at=position_in(store, side.run, *side.where), progress=progress)
    return f"{side.run}@{view.position}", view
