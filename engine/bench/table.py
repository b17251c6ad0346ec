"""P6 and P7: costs follow what changed, not how large the table is."""

from __future__ import annotations

from typing import Any

from engine.bench.measure import Row, Setting, compare, timed
from engine.core.handle import Outcome
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from engine.store import capture

__all__ = ["live_tasks", "p6_flat", "p6_saver", "p7_delta"]


def live_tasks(store: Store, run_id: str, tasks: int) -> LiveRun:
    """Return a run whose table holds ``tasks`` running tasks under one root."""
    run = store.run(run_id)
    run.tasks.open_root("root")
    run.tasks.start("root")
    for start in range(0, tasks, 500):
        facts: list[Any] = []
        for number in range(start, min(start + 500, tasks)):
            task = f"task-{number:06d}"
            facts += [
                (
                    "task.spawned",
                    {
                        "task_id": task,
                        "parent_task_id": "root",
                        "role": "custom",
                        "isolation": "shared",
                        "context_inheritance": "none",
                        "capability_ids": [],
                        "attempt": 1,
                    },
                ),
                ("task.launch_published", {"task_id": task, "attempt": 1}),
                ("task.launch_acknowledged", {"task_id": task, "attempt": 1}),
            ]
        run.ingest(facts)
    return run


def _report(run: LiveRun, tasks: int, many: int) -> float:
    report = run.tasks.report_usage

    def work() -> None:
        last: Outcome | None = None
        for number in range(many):
            last = report(f"task-{number * 7919 % tasks:06d}", tokens=40, turns=1)
        assert last is not None

    return timed(work) / many


def p6_flat(setting: Setting) -> Row:
    """An append with 10,000 live tasks, against one with 100."""
    large, small = setting.count(10_000, 200), 100
    store = open_store(setting.folder / "ours.db")
    big, little = live_tasks(store, "big", large), live_tasks(store, "little", small)
    many = setting.count(500, 50)
    left, right = compare(setting.rounds, lambda: _report(big, large, many), lambda: _report(little, small, many))
    store.close()
    return Row("P6", p6_flat.__doc__ or "", "<=", 1.1, left, right, setting.rounds)


def p6_saver(setting: Setting) -> Row:
    """An append with 10,000 live tasks, against langgraph's SqliteSaver.put of the same table."""
    try:
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError:
        what = "An append with 10,000 live tasks, against SqliteSaver.put (not installed: pip install 'refold[bench]')"
        return Row("P6b", what, ">=", 30, None, None, 0)
    large = setting.count(10_000, 200)
    store = open_store(setting.folder / "ours.db")
    run = live_tasks(store, "big", large)
    rows = [row.to_json() for row in run.tasks.rows()]
    many = setting.count(200, 20)
    with SqliteSaver.from_conn_string(str(setting.folder / "saver.db")) as saver:
        saver.setup()

        def against() -> float:
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"tasks": rows}
            checkpoint["channel_versions"] = {"tasks": 1}
            config: Any = {"configurable": {"thread_id": "nightly", "checkpoint_ns": ""}}
            return timed(
                lambda: saver.put(config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, {"tasks": 1})
            )

        left, right = compare(setting.rounds, lambda: _report(run, large, many), against)
    store.close()
    return Row("P6b", p6_saver.__doc__ or "", ">=", 30, left, right, setting.rounds)


def p7_delta(setting: Setting) -> Row:
    """A checkpoint after 100 changed tasks of 10,000, against a full one: capture and encode, the write left out of
    both."""
    large = setting.count(10_000, 1_000)
    store = open_store(setting.folder / "ours.db")
    run = live_tasks(store, "big", large)
    run.checkpoint(full=True)
    changed = max(1, large // 100)
    for number in range(changed):
        run.tasks.report_usage(f"task-{number * 7919 % large:06d}", tokens=40, turns=1)
    link = bytes(32)

    def delta() -> float:
        return run.ask(lambda state: timed(lambda: capture(state, "big", link, (1, link))))

    def full() -> float:
        return run.ask(lambda state: timed(lambda: capture(state, "big", link, None)))

    left, right = compare(setting.rounds, delta, full)
    store.close()
    return Row("P7", p7_delta.__doc__ or "", "<=", 0.03, left, right, setting.rounds)
