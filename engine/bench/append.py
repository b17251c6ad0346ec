"""P1 and P2: what a durable append costs, in commits of a hundred and one by one."""

from __future__ import annotations

from itertools import islice

from engine.bench.floors import RawLog
from engine.bench.measure import Row, Setting, compare, timed
from engine.bench.workload import commits_of, forest
from engine.checkpoint import CheckpointPolicy
from engine.core.codec import encode
from engine.open_store import open_store
from engine.run import Fact
from engine.runs import LiveRun
from projections.model import MODEL

__all__ = ["p1_append", "p2_command"]

_EVENTS = 100


def _raw_rows(run_id: str, facts: list[Fact], first: int) -> list[tuple[str, int, str, bytes]]:
    check = MODEL.catalog.check
    return [(run_id, first + index, name, encode(check(name, data))) for index, (name, data) in enumerate(facts)]


def p1_append(setting: Setting) -> Row:
    """100 events a commit, checked, chained and folded, against executemany of ready-made rows; both durable, in 200
    runs."""
    runs = [f"run-{number:04d}" for number in range(setting.count(200, 4))]
    tasks = 2 * _EVENTS * (setting.rounds + 1) * 100 // 925 + 4  # a hundred tasks give 925 events; two commits a round
    store = open_store(setting.folder / "ours.db", checkpoints=CheckpointPolicy(every_events=None))
    raw = RawLog(setting.folder / "raw.db")
    mine: list[list[tuple[LiveRun, list[Fact]]]] = []
    theirs: list[list[list[tuple[str, int, str, bytes]]]] = []
    live = {run_id: store.run(run_id) for run_id in runs}
    for number, commit in enumerate(commits_of(forest(tasks), _EVENTS)):
        if len(commit) == _EVENTS:  # the n-th commit of every run, run after run: as many writers at once would give
            mine.append([(live[run_id], commit) for run_id in runs])
            theirs.append([_raw_rows(run_id, commit, number * _EVENTS + 1) for run_id in runs])
    per_round = len(mine) // (setting.rounds + 1)
    my_turns, their_turns = iter(mine), iter(theirs)

    def ours() -> float:
        turns = [pair for turn in islice(my_turns, per_round) for pair in turn]

        def append() -> None:
            for run, commit in turns:
                run.ingest(commit)

        return timed(append) / len(turns)

    def against() -> float:
        turns = [rows for turn in islice(their_turns, per_round) for rows in turn]

        def append() -> None:
            for rows in turns:
                raw.append(rows)

        return timed(append) / len(turns)

    left, right = compare(setting.rounds, ours, against)
    store.close()
    raw.close()
    return Row("P1", p1_append.__doc__ or "", "<=", 0.8, left, right, setting.rounds)


def p2_command(setting: Setting) -> Row:
    """One command, one durable commit, against an autocommitted insert of a ready-made row."""
    store = open_store(setting.folder / "ours.db")
    raw = RawLog(setting.folder / "raw.db")
    run = store.run("nightly", actor="planner")
    run.tasks.open_root("root")
    run.tasks.start("root")
    row = encode([1, 0, "root", 40, 1])
    versions = iter(range(10**9))
    many = setting.count(500, 50)

    def ours() -> float:
        report = run.tasks.report_usage

        def work() -> None:
            for _ in range(many):
                report("root", tokens=40, turns=1)

        return timed(work) / many

    def against() -> float:
        rows = [("nightly", version, "task.usage_reported", row) for version in islice(versions, many)]

        def work() -> None:
            for ready in rows:
                raw.append_one(ready)

        return timed(work) / many

    left, right = compare(setting.rounds, ours, against)
    store.close()
    raw.close()
    return Row("P2", p2_command.__doc__ or "", "<=", 1.3, left, right, setting.rounds)
