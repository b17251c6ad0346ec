"""G13: Cost of an append, of its memory and of a checkpoint follows what changed, not how large the table or how long
the run is.

Counted, never timed: function calls, statements, bytes and records are the same on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from engine import open_store
from engine.checkpoint import CheckpointPolicy
from engine.open_store import Store
from engine.runs import LiveRun
from engine.store import capture

NEVER = CheckpointPolicy(every_events=None)


def _calls(work: Callable[[], Any]) -> int:
    """Return how many function calls, Python's and C's, ``work`` makes."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    work()  # once for nothing: caches that fill up
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _statements(store: Store, work: Callable[[], Any]) -> tuple[int, int]:
    """Return how many statements ``work`` runs and how many bytes they carry."""
    datastore = store._backend._datastore  # type: ignore[attr-defined]
    seen: list[int] = []
    write = datastore.write

    def noted(statements: Any, **options: Any) -> None:
        for _, values in statements:
            seen.append(sum(len(value) for value in values if isinstance(value, bytes | str)))
        write(statements, **options)

    datastore.write = noted
    try:
        work()
    finally:
        del datastore.write
    return len(seen), sum(seen)


def _with_tasks(store: Store, run_id: str, tasks: int) -> LiveRun:
    run = store.run(run_id)
    run.tasks.open_root("root")
    run.tasks.start("root")
    for start in range(0, tasks, 500):
        with run.batch():
            for number in range(start, min(tasks, start + 500)):
                task = f"t{number:05d}"
                run.tasks.spawn(task, parent="root")
                run.tasks.publish_launch(task)
                run.tasks.acknowledge_launch(task, attempt=1)
    return run


def _with_messages(store: Store, run_id: str, messages: int) -> LiveRun:
    run = store.run(run_id)
    run.contexts.create("chat", model_window=10_000_000)
    for start in range(0, messages, 500):
        some = [{"role": "user", "text": "hello there"} for _ in range(start, min(messages, start + 500))]
        run.contexts.append_all("chat", some)
    return run


def _with_nodes(store: Store, run_id: str, nodes: int) -> LiveRun:
    run = store.run(run_id)
    plan = [
        {"id": n, "title": "t", "description": "d", "status": "pending", "depends_on": [n - 1] if n % 2 else []}
        for n in range(nodes)
    ]
    run.graphs.create("plan", "goal", plan)
    run.graphs.start("plan")
    return run


def _usage(run: LiveRun) -> Callable[[], Any]:
    return lambda: run.tasks.report_usage("t00007", tokens=5, turns=1)


def _message(run: LiveRun) -> Callable[[], Any]:
    return lambda: run.contexts.append("chat", {"role": "user", "text": "hello there"})


def _node(run: LiveRun) -> Callable[[], Any]:
    numbers = iter(range(0, 100, 2))

    def work() -> None:
        node = next(numbers)
        run.graphs.dispatch("plan", node, handle="h")
        run.graphs.complete("plan", node, attempt=1, result="done")

    return work


KINDS = {
    "tasks": (_with_tasks, _usage),
    "messages": (_with_messages, _message),
    "nodes": (_with_nodes, _node),
}
Maker = Callable[[Store, str, int], LiveRun]
Worker = Callable[[LiveRun], Callable[[], Any]]


@pytest.mark.parametrize(("make", "work"), KINDS.values(), ids=KINDS)
def test_a_command_makes_as_many_steps_at_ten_thousand_as_at_a_hundred(make: Maker, work: Worker) -> None:
    """G13: the calls that a command makes do not grow with the table; a scan of it would make thousands more."""
    with open_store("memory:", checkpoints=NEVER, clock=lambda: 1_000) as store:
        few, many = make(store, "few", 100), make(store, "many", 10_000)
        at_few, at_many = _calls(work(few)), _calls(work(many))
    assert at_many <= at_few * 1.1 + 20, (at_few, at_many)


@pytest.mark.parametrize(("make", "work"), KINDS.values(), ids=KINDS)
def test_a_command_writes_as_much_at_a_thousand_as_at_a_hundred(make: Maker, work: Worker, tmp_path: Path) -> None:
    """G13: an append writes one row and one head whatever the table holds and however long the run is."""
    with open_store(tmp_path / "refold.db", checkpoints=NEVER, clock=lambda: 1_000) as store:
        few, many = make(store, "few", 100), make(store, "mny", 1_000)
        (count, size), (many_count, many_size) = (_statements(store, work(run)) for run in (few, many))
    assert many_count == count
    assert many_size <= size + 24 * count  # numbers grow by some digits


@pytest.mark.parametrize(("make", "work"), KINDS.values(), ids=KINDS)
def test_a_checkpoint_holds_what_changed(make: Maker, work: Worker) -> None:
    """G13: a checkpoint after one command is as large with 10,000 records as with 100, while a full one is a hundred
    times larger."""
    sizes = {}
    with open_store("memory:", checkpoints=NEVER, clock=lambda: 1_000) as store:
        for name, number in (("few", 100), ("mny", 10_000)):
            run = make(store, name, number)
            run.checkpoint(full=True)
            work(run)()
            taken = run.checkpoint()
            assert taken is not None and not taken.full
            full = run.ask(lambda state, run=run: len(capture(state, run.id, bytes(32), None)))  # type: ignore[misc]
            sizes[name] = (taken.size_bytes, taken.records, full)
    (few, few_records, few_full), (many, many_records, many_full) = sizes.values()
    assert many_records == few_records
    assert many <= few + 60
    assert many_full > 50 * few_full


def test_the_length_of_the_run_is_no_cost_either() -> None:
    """G13: after 20,000 events on one small table a command makes the steps it made after 200."""
    with open_store("memory:", checkpoints=NEVER, clock=lambda: 1_000) as store:
        run = _with_tasks(store, "r", 20)
        early = _calls(_usage(run))
        for _ in range(40):
            run.ingest([("task.usage_reported", {"task_id": "t00003", "tokens": 1, "turns": 0})] * 500)
        assert run.position > 20_000
        assert _calls(_usage(run)) <= early + 20


def test_what_a_commit_keeps_in_memory_is_what_it_changed() -> None:
    """G13: the notes for going back hold the records that a batch touched, and are gone when it is written."""
    with open_store("memory:", checkpoints=NEVER) as store:
        run = _with_tasks(store, "r", 2_000)
        run.checkpoint(full=True)
        table = run.ask(lambda state: state.tables["tasks.tasks"])
        with run.batch():
            run.tasks.report_usage("t00001", tokens=1, turns=1)
            run.tasks.report_usage("t00002", tokens=1, turns=1)
            run.tasks.report_usage("t00001", tokens=1, turns=1)
            assert table._undo is not None and sorted(table._undo) == ["t00001", "t00002"]
        assert table._undo is None
        assert sorted(table.changed) == ["t00001", "t00002"]
