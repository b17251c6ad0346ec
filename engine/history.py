"""History: the events of a run as people read them, filtered. Reads never append and never disturb a live writer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.core.decider import Model
from engine.core.envelope import Event, events_of
from engine.store import Journal

__all__ = ["history", "subjects"]


def history(
    journal: Journal,
    model: Model,
    run_id: str,
    *,
    task: str | None = None,
    types: frozenset[str] | None = None,
    actor: str | None = None,
    command_id: str | None = None,
    after: int = 0,
    until: int | None = None,
) -> Iterator[Event]:
    """Yield events with ``after < seq <= until`` that match every filter given, in order, in bounded memory.

    ``task`` keeps events that name the task in any role; ``types`` holds event names with or without version. Raises
    NotFound, CorruptJournal,
    SchemaError.
    """
    journal.existing_head(run_id)
    for commit in journal.commits(run_id, until=until):
        if commit.last <= after:
            continue
        for event in events_of(commit, model.catalog, after, until):
            if types is not None and event.type not in types and event.type.partition("/")[0] not in types:
                continue
            if actor is not None and event.actor != actor:
                continue
            if command_id is not None and event.command_id != command_id:
                continue
            if task is not None and task not in subjects(event):
                continue
            yield event


_TASK_FIELDS = ("task_id", "parent_task_id", "task")
_TASK_LISTS = ("waiting_on", "added", "wakes", "detached", "task_ids")


def subjects(event: Event) -> frozenset[str]:
    """Return the ids of the tasks that an event names, in any role."""
    named: set[str] = set()
    data: dict[str, Any] = event.data
    for field in _TASK_FIELDS + _TASK_LISTS:
        value = data.get(field)
        if isinstance(value, str):
            named.add(value)
        elif isinstance(value, list):
            named.update(item for item in value if isinstance(item, str))
    return frozenset(named)
