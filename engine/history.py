"""History: the events of a run as people read them, filtered, forwards or backwards. Reads never append and never
disturb a live writer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypedDict

from engine.core.believed import believing
from engine.core.envelope import Event, events_of
from engine.core.model import Model
from engine.store import Journal

__all__ = ["HistoryFilter", "Wanted", "history", "subjects"]

_TASK_FIELDS: Final = ("task_id", "parent_task_id", "wakes", "because", "waiting_on", "task")


class Wanted(TypedDict, total=False):
    """The filters of :class:`HistoryFilter` but ``types``, as keyword arguments."""

    task: str | None
    context: str | None
    graph: str | None
    node: int | None
    worker: int | None
    actor: str | None
    command_id: str | None
    cause: int | str | None
    after: int
    until: int | None
    since_ms: int | None
    until_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFilter:
    """Which events to show; None and the defaults let everything pass, and all that is given must match.

    ``task`` in any role (the task itself, its parent, who it waits on, whom it wakes), ``context``, ``graph`` (with
    ``node``),
    ``worker``; ``types`` with or without version, or a projection's prefix (``task``); ``actor``; ``command_id``;
    ``cause`` as shown (a seq
    or a text); ``after < seq <= until``; ``since_ms <= recorded_at_ms <= until_ms``.
    """

    task: str | None = None
    context: str | None = None
    graph: str | None = None
    node: int | None = None
    worker: int | None = None
    types: frozenset[str] | None = None
    actor: str | None = None
    command_id: str | None = None
    cause: int | str | None = None
    after: int = 0
    until: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, event: Event) -> bool:
        """Return whether the event is to be shown."""
        name = event.type.partition("/")[0]
        prefix = name.partition(".")[0]
        data = event.data
        return (
            (self.types is None or not self.types.isdisjoint((event.type, name, prefix)))
            and (self.actor is None or event.actor == self.actor)
            and (self.command_id is None or event.command_id == self.command_id)
            and (self.cause is None or event.cause == self.cause)
            and (self.since_ms is None or event.recorded_at_ms >= self.since_ms)
            and (self.until_ms is None or event.recorded_at_ms <= self.until_ms)
            and (self.context is None or (prefix == "context" and data.get("context") == self.context))
            and (self.graph is None or (prefix in ("graph", "node") and data.get("graph") == self.graph))
            and (self.node is None or (prefix in ("graph", "node") and data.get("node") == self.node))
            and (self.worker is None or (prefix == "swarm" and data.get("worker") == self.worker))
            and (self.task is None or self.task in subjects(event))
        )


def history(
    journal: Journal,
    model: Model,
    run_id: str,
    wanted: HistoryFilter | None = None,
    *,
    newest_first: bool = False,
    limit: int | None = None,
) -> Iterator[Event]:
    """Yield the events of a run that match, in order of seq or from the newest back, at most ``limit``, in bounded
    memory.

    For the next page forwards take the last seq as ``after``; backwards, the last seq less one as ``until``. Raises
    NotFound,
    CorruptJournal, SchemaError.
    """
    journal.existing_head(run_id)
    wanted = wanted or HistoryFilter()
    events = _backwards(journal, model, run_id, wanted) if newest_first else _forwards(journal, model, run_id, wanted)
    return islice((event for event in events if wanted.matches(event)), limit)


def _forwards(journal: Journal, model: Model, run_id: str, wanted: HistoryFilter) -> Iterator[Event]:
    for commit in journal.commits(run_id, until=wanted.until):
        if commit.last > wanted.after:
            with believing(run_id, commit.first):
                yield from events_of(commit, model.catalog, wanted.after, wanted.until)


def _backwards(journal: Journal, model: Model, run_id: str, wanted: HistoryFilter) -> Iterator[Event]:
    for commit in journal.commits_backwards(run_id, until=wanted.until):
        if commit.last <= wanted.after:
            return
        with believing(run_id, commit.first):
            yield from reversed(list(events_of(commit, model.catalog, wanted.after, wanted.until)))


def subjects(event: Event) -> frozenset[str]:
    """Return the ids of the tasks that an event names, in any role."""
    if event.type.startswith("swarm."):  # its "task" is what the swarm is for, not an id
        return frozenset()
    named: set[str] = set()
    data: dict[str, Any] = event.data
    for field in _TASK_FIELDS:
        value = data.get(field)
        if isinstance(value, str):
            named.add(value)
        elif isinstance(value, list):
            named.update(item for item in value if isinstance(item, str))
    return frozenset(named)
