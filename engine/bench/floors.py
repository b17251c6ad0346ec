"""What is compared against: the leanest raw code that does the same work without refold's promises."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import cbor2

__all__ = ["RawLog", "raw_fold"]


class RawLog:
    """A bare sqlite3 file with one row per event under UNIQUE(text id, version), in WAL mode with synchronous=FULL."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.execute(
            "CREATE TABLE log (id TEXT, version INTEGER, topic TEXT, state BLOB, UNIQUE (id, version))"
        )
        self._insert = "INSERT INTO log VALUES (?,?,?,?)"

    def append(self, rows: Sequence[tuple[str, int, str, bytes]]) -> None:
        """Insert ready-made rows as one durable transaction."""
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        self.connection.executemany(self._insert, rows)
        execute("COMMIT")

    def append_one(self, row: tuple[str, int, str, bytes]) -> None:
        """Insert one ready-made row, autocommitted."""
        self.connection.execute(self._insert, row)

    def close(self) -> None:
        self.connection.close()


class _Task:
    __slots__ = ("attempt", "lifecycle", "parent", "termination", "tokens", "turns", "waiting_on")

    def __init__(self, parent: str | None, lifecycle: str) -> None:
        self.parent = parent
        self.lifecycle = lifecycle
        self.termination: str | None = None
        self.tokens = self.turns = 0
        self.attempt = 1
        self.waiting_on: dict[str, None] = {}


def raw_fold(rows: Iterable[tuple[bytes]], names: dict[int, str]) -> dict[str, _Task]:
    """Return the task table of CBOR rows ``(tag, 0, field...)``: loads a tuple, dispatch on its tag, change a slotted
    object.

    The shortest fold that gives the same rows: no chain, no positions, no notes of what changed, no index of children.
    """
    tasks: dict[str, _Task] = {}

    def opened(wire: Any) -> None:
        tasks[wire[2]] = _Task(None, "ready")

    def spawned(wire: Any) -> None:
        tasks[wire[2]] = _Task(wire[3], "pending_launch")

    def lifecycle(label: str) -> Callable[[Any], None]:
        def change(wire: Any) -> None:
            tasks[wire[2]].lifecycle = label

        return change

    def suspended(wire: Any) -> None:
        task = tasks[wire[2]]
        task.lifecycle = "suspended"
        task.waiting_on = dict.fromkeys(wire[4])

    def usage(wire: Any) -> None:
        task = tasks[wire[2]]
        task.tokens += wire[3]
        task.turns += wire[4]

    def finished(wire: Any) -> None:
        task = tasks[wire[2]]
        task.lifecycle = "done"
        task.termination = wire[3]
        parent = tasks[task.parent] if task.parent is not None else None
        if parent is not None and wire[2] in parent.waiting_on:
            del parent.waiting_on[wire[2]]
            if not parent.waiting_on:
                parent.lifecycle = "running"

    by_name = {
        "task.root_opened": opened,
        "task.spawned": spawned,
        "task.started": lifecycle("running"),
        "task.launch_published": lifecycle("starting"),
        "task.launch_acknowledged": lifecycle("running"),
        "task.suspended": suspended,
        "task.usage_reported": usage,
        "task.finished": finished,
    }
    handlers = {tag: by_name[name] for tag, name in names.items() if name in by_name}
    loads = cbor2.loads
    for (state,) in rows:
        wire = loads(state)
        handlers[wire[0]](wire)
    return tasks
