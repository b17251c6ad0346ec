"""P4: what a full replay costs, chain verified, against the raw loop and against eventsourcing's aggregates."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.bench.floors import RawLog, raw_fold
from engine.bench.measure import Row, Setting, compare, timed
from engine.bench.workload import commits_of, forest
from engine.checkpoint import CheckpointPolicy
from engine.core.codec import encode
from engine.open_store import Store, open_store
from projections.model import MODEL

if TYPE_CHECKING:
    from eventsourcing.application import Application

__all__ = ["aggregates_of", "filled", "p4_aggregates", "p4_replay"]

_EVENTS = 100


def filled(setting: Setting, tasks: int, name: str = "ours.db") -> Store:
    """Return a store with one run, ``forest``, of ``tasks`` tasks in commits of a hundred, without checkpoints."""
    store = open_store(setting.folder / name, checkpoints=CheckpointPolicy(every_events=None))
    run = store.run("forest")
    for commit in commits_of(forest(tasks), _EVENTS):
        run.ingest(commit)
    return store


def _raw(setting: Setting, tasks: int) -> RawLog:
    raw = RawLog(setting.folder / "raw.db")
    check = MODEL.catalog.check
    version = 0
    for commit in commits_of(forest(tasks), 1000):
        rows = []
        for name, data in commit:
            version += 1
            rows.append(("forest", version, name, encode(check(name, data))))
        raw.append(rows)
    return raw


def p4_replay(setting: Setting) -> Row:
    """Full replay with the chain verified, against: fetch rows, cbor2.loads a tuple, fold on slotted objects."""
    tasks = setting.count(10_000)
    store = filled(setting, tasks)
    raw = _raw(setting, tasks)
    names = {int(event_type.tag): event_type.name for event_type in MODEL.catalog.types}

    def ours() -> float:
        return timed(lambda: store.view("forest", start="genesis"))

    def against() -> float:
        return timed(
            lambda: raw_fold(raw.connection.execute("SELECT state FROM log WHERE id='forest' ORDER BY version"), names)
        )

    left, right = compare(setting.rounds, ours, against)
    store.close()
    raw.close()
    return Row("P4", p4_replay.__doc__ or "", "<=", 0.8, left, right, setting.rounds)


@cache  # eventsourcing takes a class of one name only once
def _task_class() -> Any:
    from eventsourcing.domain import Aggregate, event

    class Task(Aggregate):
        @event("Spawned")
        def __init__(self, name: str) -> None:
            self.name, self.log, self.tokens, self.turns = name, "spawned", 0, 0

        @event("Recorded")
        def record(self, kind: str, data: str) -> None:
            self.log = kind

        @event("UsageReported")
        def usage(self, tokens: int, turns: int) -> None:
            self.tokens += tokens
            self.turns += turns

    return Task


def aggregates_of(path: Path, tasks: int) -> Application[Any]:
    """Return an eventsourcing application on SQLite that holds the forest, an aggregate a task."""
    from eventsourcing.application import Application

    task_class = _task_class()
    application: Application[Any] = Application(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}
    )
    live: dict[str, Any] = {}
    for name, data in forest(tasks):
        task = live.get(data["task_id"])
        if task is None:
            task = live[data["task_id"]] = task_class(data["task_id"])
        elif name == "task.usage_reported":
            task.usage(data["tokens"], data["turns"])
        else:
            task.record(name, json.dumps(data))
    for task in live.values():
        application.save(task)
    return application


def p4_aggregates(setting: Setting) -> Row:
    """Full replay, against eventsourcing's notifications, mapper and an aggregate a task."""
    tasks = setting.count(2_000, 40)  # a fifth of the forest: the peer needs a minute for the whole
    application = aggregates_of(setting.folder / "aggregates.db", tasks)
    store = filled(setting, tasks)

    def ours() -> float:
        return timed(lambda: store.view("forest", start="genesis"))

    def replay() -> None:
        aggregates: dict[Any, Any] = {}
        start = 1
        while True:
            notifications = application.recorder.select_notifications(start, 1000)
            if not notifications:
                return
            for notification in notifications:
                domain_event: Any = application.mapper.to_domain_event(notification)
                aggregates[domain_event.originator_id] = domain_event.mutate(aggregates.get(domain_event.originator_id))
            start = notifications[-1].id + 1

    left, right = compare(setting.rounds, ours, lambda: timed(replay))
    store.close()
    application.close()
    return Row("P4b", p4_aggregates.__doc__ or "", ">=", 12, left, right, setting.rounds)
