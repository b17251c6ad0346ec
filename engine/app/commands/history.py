"""``refold history``: what happened in a run, event by event."""

from __future__ import annotations

import click

from engine.app.output import JsonList, print_events
from engine.app.shell import POSITION, command_options, note, opened_store


@click.command("history")
@click.argument("run")
@click.option("--task", metavar="ID", help="Only events that name this task, in any role.")
@click.option("--type", "types", multiple=True, metavar="NAME", help="Only this type, e.g. task.finished. Repeatable.")
@click.option("--actor", metavar="ID", help="Only events of this actor.")
@click.option("--command-id", metavar="ID", help="Only the events of this command.")
@click.option("--after", type=POSITION, default=0, metavar="N", help="Only events after event N.")
@click.option("--until", type=POSITION, metavar="N", help="Only events up to and including event N.")
@click.option("--newest-first", is_flag=True, help="From the end back.")
@click.option("--limit", type=click.IntRange(0, 2**31), metavar="N", help="At most so many events.")
@command_options
def command(
    run: str,
    task: str | None,
    types: tuple[str, ...],
    actor: str | None,
    command_id: str | None,
    after: int,
    until: int | None,
    newest_first: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the events of a run, the oldest first unless asked otherwise.

    'cause' is the event or command that led to an event. Filters narrow each other. The chain is checked on the way:
    nothing damaged is ever shown.

    \b
    Examples:
      refold history nightly --task fetch
      refold history nightly --type task.finished --after 1000 --json
      refold history nightly --newest-first --limit 10
    """
    from engine.archive import to_json

    with opened_store() as store:
        events = store.history(
            run,
            task=task,
            types=types or None,
            actor=actor,
            command_id=command_id,
            after=after,
            until=until,
            newest_first=newest_first,
            limit=limit,
        )
        if as_json:
            with JsonList() as printed:
                for event in events:
                    printed.add({**event.to_json(), "data": to_json(event.data)})
            return
        found = list(events)
    if found:
        print_events(found)
    else:
        note("no event matches")
