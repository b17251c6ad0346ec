"""G12: Reading, listing, diffing and verifying append nothing."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine import open_store
from engine.checkpoint import CheckpointPolicy
from engine.moments import position_at
from engine.open_store import Store
from engine.slider import Slider
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


def _slide(slider: Slider) -> list[str]:
    return [slider.digest() for _ in range(5) if slider.back(3)] + [
        slider.digest() for _ in range(5) if slider.forward(2)
    ]


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
    "changes": lambda store: list(store.changes("r", after=10)),
    "changes up to a position of the past": lambda store: list(store.view("r", at=20).changes(newest_first=True)),
    "why": lambda store: store.view("r").why(store.view("r").tasks.rows()[0].task_id).to_json(),
    "why of a node, a conversation and a worker": lambda store: [
        store.view("r").why(node=("plan", 0)).answer,
        store.view("r").why(context="chat").answer,
        store.view("r").why(worker=1).answer,
    ],
    "diff": lambda store: store.view("r", at=3).diff_with(store.view("r")).patch,
    "diff with a fork": lambda store: store.run("r").diff_with(store.view("f")).patch,
    "a slider": lambda store: _slide(store.slider("r")),
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


def test_time_travel_never_disturbs_a_writer_at_work(filled: Path, tmp_path: Path) -> None:
    """G12: while a writer appends as fast as it can and takes checkpoints, readers of its past, each over a connection
    of its own, get what was there, and it meets no conflict and no lock."""
    path = tmp_path / "refold.db"
    path.write_bytes(filled.read_bytes())
    past = 40
    with open_store(path, read_only=True) as store:
        expected = [store.view("r", at=at, start="genesis").digest() for at in range(past)]
    done, failed = threading.Event(), []

    def read(seed: int) -> None:
        random = Random(seed)
        try:
            with open_store(path, read_only=True) as reading:
                slider = reading.slider("r", at=past - 1)
                while not done.is_set():
                    at = random.randrange(past)
                    assert reading.view("r", at=at).digest() == expected[at]
                    assert slider.to(at) == at and slider.digest() == expected[at]
                    assert [event.seq for event in reading.view("r", at=at).history()] == list(range(1, at + 1))
                    head = reading.view("r")
                    assert len(list(head.history(newest_first=True, limit=10))) == 10
                    reading.view("r", at=at).diff_with(head)
        except BaseException as error:
            failed.append(error)
            raise

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    policy = CheckpointPolicy(every_events=20)
    with TASKS_DOMAIN.store(path, policy=policy) as writing:
        run = writing.run("r")
        for reader in readers:
            reader.start()
        try:
            for number in range(150):
                before = run.position
                run.contexts.append("chat", {"role": "user", "text": f"message {number}"})
                assert run.position == before + 1 and run.checkpoint_error is None
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert not failed
        assert writing.verify("r").ok and writing.view("r", start="genesis").digest() == run.digest()
