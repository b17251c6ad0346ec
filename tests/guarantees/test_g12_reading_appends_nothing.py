"""G12: Reading, listing, diffing and verifying append nothing."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine import open_store
from engine.changes import changes
from engine.diff import diff
from engine.documents import document
from engine.moments import position_at
from engine.open_store import Store
from engine.why import why_task
from tests.guarantees.domain import TASKS_DOMAIN, play


def _journal_rows(path: Path) -> list[tuple[Any, ...]]:
    """Return every row of every table, as SQLite itself tells them."""
    with sqlite3.connect(path) as connection:
        tables = sorted(name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'"))
        return [(name, *row) for name in tables for row in connection.execute(f"SELECT * FROM {name}")]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with a run of tasks, a conversation, a graph and a swarm, with checkpoints, and a fork of it."""
    path = tmp_path_factory.mktemp("g12") / "refold.db"
    with TASKS_DOMAIN.store(path) as store:
        run = store.run("r", actor="tester")
        play(TASKS_DOMAIN, Random(12), run, 40)
        run.contexts.create("chat", model_window=100)
        run.contexts.append("chat", {"role": "user", "text": "hello"})
        run.graphs.create("plan", "goal", [{"id": 0, "title": "a", "description": "do a", "status": "pending"}])
        run.graphs.start("plan")
        run.swarm.start(worker_count=2, max_ticks=10, failure_threshold=3)
        run.checkpoint()
        play(TASKS_DOMAIN, Random(13), run, 10)
        store.fork("r", "f", at=20)
    return path


def _empty_batch(store: Store) -> int:
    run = store.run("r")
    with run.batch():
        pass
    return run.position


READS: dict[str, Callable[[Store], Any]] = {
    "runs": lambda store: store.runs(),
    "view": lambda store: store.view("r").digest(),
    "view from genesis": lambda store: store.view("r", start="genesis").state_bytes(),
    "view of the past": lambda store: store.view("r", at=7).tasks.rows(),
    "open a run": lambda store: store.run("r").digest(),
    "open a run that is not there": lambda store: store.run("nobody").position,
    "run.at": lambda store: store.run("r").at(5).digest(),
    "refresh": lambda store: store.run("r").refresh(),
    "history": lambda store: list(store.history("r")),
    "history backwards": lambda store: list(store.history("r", newest_first=True, limit=5)),
    "history of a fork": lambda store: list(store.history("f")),
    "changes": lambda store: list(changes(store.journal, store.checkpoints, store.model, "r", after=10)),
    "why": lambda store: why_task(
        store.journal, store.model, store.view("r"), "r", store.view("r").tasks.rows()[0].task_id
    ),
    "diff": lambda store: diff(document(store.view("r", at=3)), document(store.view("r"))),
    "time": lambda store: position_at(store.journal, "r", 1_000),
    "verify": lambda store: store.verify("r"),
    "verify a fork": lambda store: store.verify("f"),
    "export": lambda store: list(store.export_lines("r")),
    "queries": lambda store: [
        (run := store.run("r")).tasks.rows(),
        run.tasks.live(),
        run.contexts.get("chat"),
        run.contexts.to_wire("chat"),
        run.graphs.get("plan"),
        run.graphs.ready("plan"),
        run.swarm.context(),
    ],
    "close a run": lambda store: store.run("r").close(),
    "a batch of nothing": lambda store: _empty_batch(store),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_leaves_the_file_as_it_was(read: Callable[[Store], Any], filled: Path) -> None:
    """G12: whatever is only asked, answered twice the same, leaves every byte of the store file and every row alone."""
    before, rows = _digest(filled), _journal_rows(filled)
    with open_store(filled, create=False, checkpoints=None) as store:
        first = read(store)
        again = read(store)
    if not isinstance(first, list | tuple | str | bytes | int):
        first = again = None
    assert first == again
    assert _journal_rows(filled) == rows
    assert _digest(filled) == before


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_works_where_writing_is_refused(read: Callable[[Store], Any], filled: Path) -> None:
    """G12: the same questions are answered by a store that is open for reading only, which could not append if it
    tried."""
    with open_store(filled, read_only=True) as store:
        read(store)


def test_a_read_writes_nothing_beside_a_live_writer(filled: Path, tmp_path: Path) -> None:
    """G12: readers never move the head under a live writer: its next command has the next position, with no
    conflict."""
    path = tmp_path / "refold.db"
    path.write_bytes(filled.read_bytes())
    with TASKS_DOMAIN.store(path) as writing, open_store(path, create=False) as reading:
        run = writing.run("r")
        for number in range(5):
            before = run.position
            for read in READS.values():
                read(reading)
            run.contexts.append("chat", {"role": "user", "text": f"message {number}"})
            assert run.position == before + 1
        assert writing.verify("r").ok
