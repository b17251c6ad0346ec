"""P8: a restore costs what lies after the checkpoint, not how long the run is."""

from __future__ import annotations

from engine.bench.measure import Row, Setting, compare, timed
from engine.bench.replay import filled
from engine.bench.workload import commits_of, forest
from engine.checkpoint import CheckpointPolicy
from engine.open_store import open_store

__all__ = ["p8_long_run", "p8_restore"]


def p8_restore(setting: Setting) -> Row:
    """Restore from a checkpoint and the last tenth of the events, against a full replay."""
    tasks = setting.count(10_000)
    facts = list(forest(tasks))
    store = open_store(setting.folder / "ours.db", checkpoints=CheckpointPolicy(every_events=None))
    run = store.run("forest")
    nine_tenths = len(facts) * 9 // 10
    for commit in commits_of(iter(facts[:nine_tenths]), 100):
        run.ingest(commit)
    run.checkpoint()
    for commit in commits_of(iter(facts[nine_tenths:]), 100):
        run.ingest(commit)
    left, right = compare(
        setting.rounds,
        lambda: timed(lambda: store.view("forest")),
        lambda: timed(lambda: store.view("forest", start="genesis")),
    )
    store.close()
    return Row("P8", p8_restore.__doc__ or "", "<=", 0.4, left, right, setting.rounds)


def p8_long_run(setting: Setting) -> Row:
    """Restore of a run of 1,000,000 events with a fresh checkpoint, against one of 10,000 events with the same
    table."""
    tasks = setting.count(1_000, 40)
    store = filled(setting, tasks)
    short = store.run("forest")
    short.checkpoint()
    long = store.run("long")
    for commit in commits_of(forest(tasks), 100):
        long.ingest(commit)
    extra = setting.count(990_000, 1_000)
    usage = [("task.usage_reported", {"task_id": "root", "tokens": 0, "turns": 0})] * 1000
    for start in range(0, extra, 1000):
        long.ingest(usage[: min(1000, extra - start)])
    long.checkpoint()
    left, right = compare(
        setting.rounds, lambda: timed(lambda: store.view("long")), lambda: timed(lambda: store.view("forest"))
    )
    store.close()
    return Row("P8b", p8_long_run.__doc__ or "", "<=", 1.2, left, right, setting.rounds)
