"""``refold history``: what happened in a run, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from engine.app.output import JsonList, print_events
from engine.app.shell import POSITION, Failed, command_options, note, opened_store, run_argument
from engine.app.times import Time

if TYPE_CHECKING:
    from engine.changes import FieldChange
    from engine.core.envelope import Event

    Row = tuple[Event, tuple[FieldChange, ...] | None]

ROWS_A_TABLE = 1_000
"""Rows that are laid out together; a longer history comes in several tables, so that memory stays bounded."""


def _cause(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """Return a cause as events hold it: a number is an event, ``text:12`` the text 12."""
    if value is None or not (value.isascii() and value.isdigit()):
        return None if value is None else value.removeprefix("text:")
    return int(value) if len(value) < 19 else value


def _types(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from engine.app.model import named_model

    try:
        names = [event_type.name for event_type in named_model().catalog.types]
    except Failed:
        return []
    known = (*dict.fromkeys(name.partition(".")[0] for name in names), *names)
    return [name for name in known if name.startswith(incomplete)]


@click.command("history")
@run_argument
@click.option("--task", metavar="ID", help="Only events that name this task, in any role.")
@click.option("--context", metavar="ID", help="Only events of this conversation.")
@click.option("--graph", metavar="ID", help="Only events of this task graph.")
@click.option("--node", type=click.IntRange(0, 2**32 - 1), metavar="N", help="Only events of this node of a graph.")
@click.option("--worker", type=click.IntRange(0, 2**64 - 1), metavar="N", help="Only events of this swarm worker.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="NAME",
    shell_complete=_types,
    help="Only this type, e.g. task.finished, or all of task. Repeatable.",
)
@click.option("--actor", metavar="ID", help="Only events of this actor.")
@click.option("--command-id", metavar="ID", help="Only the events of this command.")
@click.option("--cause", callback=_cause, metavar="N|ID", help="Only what this event, command or text led to.")
@click.option("--after", type=POSITION, default=0, metavar="N", help="Only events after event N.")
@click.option("--until", type=POSITION, metavar="N", help="Only events up to and including event N.")
@click.option("--since", type=Time("up"), metavar="TIME", help="Only events recorded at this time or later.")
@click.option("--before", type=Time("up"), metavar="TIME", help="Only events recorded before this time.")
@click.option("--newest-first", "--reverse", is_flag=True, help="From the end back.")
@click.option("--limit", type=click.IntRange(0, 2**31), metavar="N", help="At most so many events.")
@click.option("--changes", "changed", is_flag=True, help="Show what each event changed, field by field.")
@command_options
def command(
    run: str,
    types: tuple[str, ...],
    since: int | None,
    before: int | None,
    newest_first: bool,
    limit: int | None,
    changed: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """Show the events of a run, the oldest first unless asked otherwise.

    'cause' is the event or command that led to an event. Filters narrow each other. A TIME is Unix milliseconds or
    ISO 8601, in UTC when it names no zone. The next page of N events begins --after the last one shown, or going
    back, --until the last one less 1. The chain is checked on the way: nothing damaged is ever shown.

    With --changes each row says what became of which field; --json has it as a list under 'changes', each with kind,
    id, field, before and after.

    \b
    Examples:
      refold history nightly --task fetch --changes
      refold history nightly --type task.finished --after 1000 --json
      refold history nightly --since 2026-05-01T12:00 --before 2026-05-01T15:00+02:00
      refold history nightly --task fetch --newest-first --limit 1
    """
    with opened_store() as store:
        filters: dict[str, Any] = {
            **wanted,
            "types": types or None,
            "newest_first": newest_first,
            "limit": limit,
            "since_ms": since,
            "until_ms": None if before is None else before - 1,
        }
        rows: Iterator[Row]
        rows = store.changes(run, **filters) if changed else ((event, None) for event in store.history(run, **filters))
        if as_json:
            _print_json(rows)
        else:
            _print(rows, changed)


def _print_json(rows: Iterable[Row]) -> None:
    from engine.archive import to_json

    with JsonList() as printed:
        for event, changes in rows:
            shape = {**event.to_json(), "data": to_json(event.data)}
            if changes is not None:
                shape["changes"] = [change.to_json() for change in changes]
            printed.add(shape)


def _print(rows: Iterator[Row], changed: bool) -> None:
    from engine.app.tables import print_changes

    shown = 0
    while table := list(islice(rows, ROWS_A_TABLE)):
        if changed:
            print_changes([(event, changes or ()) for event, changes in table])
        else:
            print_events([event for event, _ in table])
        shown += len(table)
    if not shown:
        note("no event matches")
