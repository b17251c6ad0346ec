"""What users of a task graph runtime reported (the Z rows of ``rows_k_z_x_e.py``): rejections that nobody sees,
stores that differ, setups that overwrite, journals with rows missing. None of it can happen here. (Most of the rows are
about graphs and are tested with them.)"""

from __future__ import annotations

import inspect
import shutil
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import Conflict, EngineError
from engine.documents import document
from engine.open_store import Store, open_store
from engine.runs import RunView
from engine.store import memory, sqlite
from projections.graph import TaskNode
from tests.engine.kit import BACKENDS, NEVER, Ticks, fill, raw, toy_store
from tests.field_reports.at_once import Gate, processes, threads
from tests.field_reports.surface import readers
from tests.field_reports.whole_run import live
from tests.toy import Open, Pay


def test_whatever_is_recorded_is_shown(whole: Store) -> None:
    """Z13: whatever a commit changed shows in the records, denials, deferrals, failed verdicts and
    failed launches included, or in the answer to a query; and history shows every field of every event."""
    ends = [commit.last for commit in whole.journal.commits("r")]
    shown, quiet = everything_of(whole.view("r", at=0)), set()
    for before, end in pairwise([0, *ends]):
        now = everything_of(whole.view("r", at=end))
        if now == shown:
            quiet |= {event.type for event in whole.history("r", after=before, until=end)}
        shown = now
    assert quiet == {"run.command_noted/1", "swarm.worker_idled/1"}, "repeats: a used command id, an idle worker"
    for event in whole.history("r"):
        names = whole.model.catalog.by_name[event.type.partition("/")[0]].names
        assert set(event.to_json()["data"]) == set(names)


def everything_of(view: RunView) -> Any:
    """The records of a view, and what its queries say beside them."""
    swarm = view.swarm
    asked = [swarm.verdict(), swarm.task(), [*map(swarm.escalation_attempts, range(3))]] if swarm.started() else []
    return document(view), asked, view.tasks.waiting(), [view.tasks.result(row.task_id) for row in view.tasks.rows()]


def test_a_refusal_is_told_and_leaves_nothing_to_be_hidden(store: Store) -> None:
    """Z13: what is refused is said to whoever asked, with what would have been allowed, and is nowhere stored; what is
    declined on record (a deferral) is in the record of its attempt."""
    graphs = store.run("r").graphs
    graphs.create("g", "x", [TaskNode.new(0, "n", ""), TaskNode.new(1, "m", "", depends_on=(0,))])
    graphs.start("g")
    before = list(store.export_lines("r"))
    with pytest.raises(EngineError) as caught:
        graphs.dispatch("g", 1, "h")
    assert caught.value.hint
    assert list(store.export_lines("r")) == before
    graphs.dispatch("g", 0, "h")
    graphs.defer("g", 0, "the agent declined", handle="h")
    assert "the agent declined" in str(document(store.view("r")))
    assert "the agent declined" in str([event.to_json() for event in store.history("r")])


def test_every_backend_is_among_those_that_are_tested() -> None:
    """Z16: the tests of stores run on every backend there is: one that is added and not listed fails here. (PostgreSQL
    will be one of them.)"""
    folder = Path(inspect.getfile(sqlite)).parent
    backends = {
        name.removesuffix("Backend").lower()
        for file in folder.glob("*.py")
        for line in file.read_text().splitlines()
        if line.startswith("class ")
        for name in [line.removeprefix("class ").partition("(")[0].rstrip(":")]
        if name.endswith("Backend") and name != "Backend"
    }
    assert backends == set(BACKENDS)
    assert memory.MemoryBackend.url == "memory:"


def beginner(store_of: Callable[[], Store]) -> Callable[[int, Gate], int]:
    def begin(number: int, gate: Gate) -> int:
        run = store_of().run("the one id")
        gate.wait()
        try:
            return run.tasks.open_root(f"root of {number}").position
        except Conflict:
            return 0

    return begin


def test_two_that_begin_one_run_do_not_both_succeed(tmp_path: Path) -> None:
    """Z20: processes (and threads, in memory) that find no run and begin it under one id at the same moment: one did,
    the others are told, and the journal is whole."""
    path = tmp_path / "refold.db"
    open_store(path).close()
    shared = open_store("memory:")
    for store, began in (
        (open_store(path), processes(4, beginner(lambda: open_store(path)))),
        (shared, threads(4, beginner(lambda: shared))),
    ):
        assert sorted(began) == [0, 0, 0, 1]
        winner = began.index(1)
        root = store.run("the one id").tasks.root()
        assert root is not None and root.task_id == f"root of {winner}"
        assert store.verify("the one id").ok
        assert len(list(store.history("the one id"))) == 1


_OUTSIDE = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "smtplib.", "urllib.", "os.kill", "os.putenv")
_heard: list[str] | None = None


def _listen(event: str, args: tuple[Any, ...]) -> None:
    if _heard is not None and (event.startswith(_OUTSIDE) or (event == "open" and "w" in str(args[1]))):
        _heard.append(f"{event} {args}")


def test_a_restore_reaches_nothing_outside(file_store: Store, tmp_path: Path) -> None:
    """Z25: restoring and every other reading asks no clock, opens no connection, starts no process, opens nothing for
    writing: nothing that was done when the run was live is done again."""
    for _ in live(file_store.run("r")):
        pass
    file_store.close()

    def no_clock() -> int:
        raise AssertionError("the clock was asked")

    global _heard
    sys.addaudithook(_listen)
    before = (tmp_path / "refold.db").read_bytes()
    with open_store(tmp_path / "refold.db", read_only=True, clock=no_clock) as store:
        position = store.view("r").position
        _heard = []
        try:
            for read in readers(position).values():
                read(store)
            store.run("r", start="genesis")
            heard = list(_heard)
        finally:
            _heard = None
    assert heard == []
    assert (tmp_path / "refold.db").read_bytes() == before


def test_opening_a_store_again_overwrites_nothing(tmp_path: Path) -> None:
    """Z28: making a store where there is one, with the same or another model, any number of times, leaves it as it is
    and readable. (Keys will be held to the same when there are any.)"""
    path = tmp_path / "refold.db"
    with toy_store(path, clock=Ticks()) as store:
        fill(store.run("r"))
        digest = store.view("r").digest()
    before = path.read_bytes()
    for _ in range(3):
        open_store(path).close()
        toy_store(path, read_only=True).close()
        toy_store(path).close()
    assert path.read_bytes() == before
    with toy_store(path) as store:
        assert store.view("r").digest() == digest and store.verify("r").ok


def test_a_row_that_is_gone_is_missed(tmp_path: Path) -> None:
    """Z29: any row deleted, any number of the last ones, the head, or every link stripped: verify names it, and nobody
    is given less than there was. (Whoever can also rewrite the head and every link is for the anchors to come.)"""
    sound = tmp_path / "refold.db"
    with toy_store(sound, clock=Ticks()) as store:
        fill(store.run("r"))
        firsts = [commit.first for commit in store.journal.commits("r")]
    damages = [f"DELETE FROM stored_events WHERE originator_version={first}" for first in firsts]
    damages += [f"DELETE FROM stored_events WHERE originator_version>={first}" for first in firsts]
    damages += [f"UPDATE run_heads SET {what}" for what in ("position=position-1", "position=0", "link=x''")]
    damages += [f"UPDATE stored_events SET state={what} substr(state, 33)" for what in ("", "zeroblob(32) ||")]
    for number, damage in enumerate([*damages, "DELETE FROM run_heads"]):
        path = tmp_path / f"{number}.db"
        shutil.copyfile(sound, path)
        with raw(path) as connection:
            connection.execute(damage)
        with toy_store(path, read_only=True) as store:
            assert not store.verify("r").ok and store.verify("r").faults, damage
            for read in (lambda s: s.view("r"), lambda s: list(s.history("r")), lambda s: s.run("r")):
                with pytest.raises(EngineError) as caught:
                    read(store)
                assert caught.value.code == "corrupt_journal", damage
        path.unlink()


def peak_of(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_restore_holds_the_state_and_not_the_journal(tmp_path: Path) -> None:
    """Z32: restoring a run of ten times the events, with the same state at its end, takes no more memory: the journal
    is read in pieces and never copied."""
    peaks = []
    for events in (300, 3_000):
        path = tmp_path / f"{events}.db"
        with toy_store(path, policy=NEVER) as store:
            run = store.run("r")
            run.submit(Open(account="a"))
            for start in range(0, events, 100):
                with run.batch():
                    for amount in range(start, start + 100):
                        run.submit(Pay(account="a", amount=14 + amount, note="x" * 300))
            store.view("r", start="genesis")
            peaks.append(peak_of(lambda store=store: store.view("r", start="genesis")))
    assert peaks[1] < peaks[0] * 2 < 3_000 * 300
