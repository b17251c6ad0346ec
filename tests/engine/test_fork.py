"""Fork and delete: a fork is the run that it left, and goes on as it would have; what forks need is never lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import open_store
from engine.checkpoint import CheckpointPolicy
from engine.core.envelope import Event
from engine.core.errors import Conflict, CorruptJournal, EngineError, InvalidValue, NotFound
from engine.documents import document
from engine.open_store import Store
from engine.runs import LiveRun
from engine.testing.strategies import commands
from projections.model import MODEL
from tests.app.conftest import flip
from tests.app.test_app_examples import fill
from tests.engine.kit import BACKENDS, NEVER, toy_store, url_of
from tests.toy import Close, Open, Pay, Write


def give(run: LiveRun, wanted: list[Any]) -> list[tuple[str, Any]]:
    """Give a run commands; return what came of each: its events, or its refusal."""
    answers: list[tuple[str, Any]] = []
    for number, command in enumerate(wanted):
        try:
            outcome = run.submit(command, at_ms=1_000 + number)
            answers.append(("events", [plain(event) for event in outcome.events]))
        except EngineError as error:
            answers.append((error.code, error.message))
    return answers


def plain(event: Event) -> Any:
    """Return an event without what holds the run's id: the launch token, which tells one attempt from every other."""
    data = {name: value for name, value in event.data.items() if name != "launch_token"}
    return (event.seq, event.type, event.recorded_at_ms, event.actor, event.command_id, event.cause, data)


def history(run: LiveRun) -> list[Any]:
    return [plain(event) for event in run.history()]


_lists = st.lists(commands(MODEL), max_size=12)


@given(_lists, _lists, _lists, st.data())
def test_a_fork_goes_on_as_the_run_itself_would_have(
    before: list[Any], lost: list[Any], after: list[Any], data: st.DataObject
) -> None:
    """The same commands give the same events, up to launch tokens (which hold the run's id), on the fork and on a run
    that had only the events before the fork; also when the fork leaves in the middle of a commit, and whatever the
    origin did afterwards."""
    with open_store("memory:", clock=lambda: 5, checkpoints=NEVER) as store:
        run = store.run("r")
        with run.batch():
            run.tasks.open_root("root", at_ms=1)
            run.tasks.start("root", at_ms=2)
        give(run, before)
        at = data.draw(st.integers(0, run.position))
        twin = run.fork("twin", at=at)  # of the run before it has done anything else
        give(run, lost)
        fork = run.fork("fork", at=at)
        assert history(fork) == history(run)[:at]
        assert fork.state_bytes() == run.at(at).state_bytes()
        assert give(fork, after) == give(twin, after)
        assert history(fork) == history(twin)
        assert store.verify("fork").ok and store.verify("r").ok


@given(_lists, _lists)
def test_a_fork_at_the_end_and_its_origin_go_the_same_way(before: list[Any], after: list[Any]) -> None:
    """Where the origin goes on with the same commands, both are the same run in all but name."""
    with open_store("memory:", clock=lambda: 5) as store:
        run = store.run("r")
        run.tasks.open_root("root")
        give(run, before)
        fork = run.fork("fork")
        assert give(fork, after) == give(run, after)
        assert history(fork) == history(run)
        assert document(fork) == document(run)


def full(store: Store) -> LiveRun:
    run = store.run("r", actor="planner")
    fill(run)
    return run


@pytest.mark.parametrize("at", range(0, 49, 4))
def test_a_fork_copies_nothing(tmp_path: Path, at: int) -> None:
    """However long the shared history is: no row, no checkpoint, and the same few bytes in the file."""
    with open_store(tmp_path / "s.db", clock=lambda: 5) as store:
        run = full(store)
        rows = [list(store.journal.raw("r")), store.checkpoints.positions("r"), run.digest()]
        fork = store.fork("r", "fork", at=at)
        assert list(store.journal.raw("fork")) == [] and not store.checkpoints.positions("fork")
        assert [list(store.journal.raw("r")), store.checkpoints.positions("r"), run.digest()] == rows
        assert fork.position == at and fork.digest() == run.at(at).digest()
        [forked] = [summary for summary in store.runs() if summary.run == "fork"]
        assert (forked.origin, forked.origin_position, forked.position) == ("r", at, at)
        assert store.verify("fork").to_json() == {"run": "fork", "ok": True, "position": at, "faults": []}


def test_a_fork_has_every_verb_across_the_joint(tmp_path: Path) -> None:
    """View, history, changes of position, checkpoints, restore, export and import see one run."""
    policy = CheckpointPolicy(every_events=5)
    with open_store(tmp_path / "s.db", clock=lambda: 5, checkpoints=policy) as store:
        run = full(store)
        fork = store.fork("r", "fork", at=20)
        for _ in range(12):
            fork.tasks.report_usage("build", tokens=1)
        fork.tasks.finish("build", attempt=1)
        assert [event.seq for event in fork.history()] == list(range(1, fork.position + 1))
        assert [event.seq for event in fork.history(newest_first=True)] == list(range(fork.position, 0, -1))
        for at in range(fork.position + 1):
            view = fork.at(at)
            assert view.digest() == store.view("fork", at=at, start="genesis").digest()
            if at <= 20:
                assert view.digest() == run.at(at).digest()
        assert store.checkpoints.positions("fork") and store.verify("fork").ok
        lines = list(store.export_lines("fork"))
    with open_store(tmp_path / "other.db") as other:
        assert other.import_lines(lines) == ("fork", fork.position)
        assert other.view("fork").digest() == fork.digest() and other.runs()[0].origin is None
        assert other.verify("fork").ok


def test_forks_of_forks_name_the_run_that_holds_the_events(tmp_path: Path) -> None:
    """A fork of a fork before its joint is a fork of the origin; after it, of the fork."""
    with open_store(tmp_path / "s.db", clock=lambda: 5) as store:
        full(store)
        one = store.fork("r", "one", at=20)
        one.tasks.report_usage("build", tokens=1)
        store.fork("one", "two", at=21).tasks.report_usage("build", tokens=2)
        store.fork("two", "three", at=10)
        store.fork("two", "none", at=0)
        origins = {run.run: (run.origin, run.origin_position) for run in store.runs()}
        assert origins == {
            "none": ("r", 0), "one": ("r", 20), "r": (None, None), "three": ("r", 10), "two": ("one", 21),
        }  # fmt: skip
        assert all(store.verify(run).ok for run in origins)
        store.run("none").tasks.open_root("another")


@pytest.mark.parametrize(
    ("run", "new", "at", "error"),
    [
        ("r", "f", -1, NotFound),
        ("r", "f", 10_000, NotFound),
        ("nobody", "f", 0, NotFound),
        ("r", "r", 3, Conflict),
        ("r", "taken", 3, Conflict),
        ("r", "", 3, InvalidValue),
        ("r", "x" * 257, 3, InvalidValue),
        ("r", "a\nb", 3, InvalidValue),
        ("", "f", 3, InvalidValue),
    ],
)
def test_what_cannot_be_forked_is_refused(run: str, new: str, at: int, error: type[EngineError]) -> None:
    """No such run or position, a name that is taken or none: typed, and nothing is made."""
    with open_store("memory:") as store:
        full(store)
        store.fork("r", "taken", at=3)
        before = store.runs()
        with pytest.raises(error):
            store.fork(run, new, at=at)
        assert store.runs() == before


@pytest.mark.parametrize("at", [9, 20])
def test_damage_before_the_joint_is_the_fork_s_too(tmp_path: Path, at: int) -> None:
    """A bit that flips in the shared history is named by verify of the fork, and never served; after it, it is not
    the fork's."""
    path = tmp_path / "s.db"
    with open_store(path, clock=lambda: 5) as store:
        full(store)
        store.fork("r", "fork", at=14).tasks.report_usage("build", tokens=1)
    flip(path, "stored_events", at)
    with open_store(path) as store:
        verdict = store.verify("fork")
        assert verdict.ok == (at > 14) and not store.verify("r").ok
        if at < 14:
            assert (verdict.faults[0].seq, verdict.faults[0].code) == (at, "broken_link")
            with pytest.raises(CorruptJournal):
                store.view("fork", start="genesis")


def test_deleting_the_origin_keeps_what_forks_need(tmp_path: Path) -> None:
    """The fork reads, verifies and goes on; the origin is listed no more; events behind the last joint are gone."""
    with open_store(tmp_path / "s.db", clock=lambda: 5) as store:
        full(store)
        store.fork("r", "early", at=5)
        fork = store.fork("r", "late", at=14)
        digest = fork.digest()
        assert store.delete("r").to_json() == {
            "run": "r", "kept_until": 14, "needed_by": ["early", "late"], "released": [],
        }  # fmt: skip
        assert [run.run for run in store.runs()] == ["early", "late"]
        assert max(row.first for row in store.journal.raw("r")) <= 14
        assert store.run("late").digest() == digest and store.verify("late").ok and store.verify("early").ok
        store.run("late").tasks.report_usage("build", tokens=1)
        assert store.fork("late", "again", at=14).digest() == digest
        with pytest.raises(NotFound):
            store.view("r")
        with pytest.raises(NotFound):
            store.delete("r")


def test_a_deleted_run_without_forks_is_gone(tmp_path: Path) -> None:
    """Nothing of it stays, and its name is free; a fork that is deleted leaves its origin alone."""
    with open_store(tmp_path / "s.db", clock=lambda: 5) as store:
        run = full(store)
        digest = run.digest()
        fork = store.fork("r", "fork", at=5)
        fork.tasks.yield_task("root") if fork.tasks.get("root").lifecycle == "running" else fork.tasks.start("root")
        assert store.delete("fork").needed_by == ()
        assert store.run("r").digest() == digest and store.verify("r").ok
        assert store.delete("r").to_json() == {"run": "r", "kept_until": 0, "needed_by": [], "released": []}
        assert store.runs() == [] and list(store.journal.raw("r")) == [] and not store.checkpoints.positions("r")
        store.run("r").tasks.open_root("anew")
        assert store.verify("r").ok


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("at", range(1, 9))
def test_a_checkpoint_of_a_fork_that_left_in_the_midst_of_a_commit(tmp_path: Path, backend: str, at: int) -> None:
    """What it refers to stands in the fork's own events, and not at the same positions of what it left: whatever that
    is, the checkpoint is used, verifies, and gives the same state."""
    with toy_store(url_of(backend, tmp_path)) as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        with run.batch():
            run.submit(Write(account="a", letter="shared"), command_id="w")
            run.submit(Open(account="a"), command_id="nothing to do")
            run.submit(Pay(account="a", amount=1), command_id="p")
            run.submit(Open(account="b"))
            run.submit(Close(account="b"))
            run.submit(Write(account="a", letter="not shared"))
            run.submit(Open(account="a"), command_id="nothing to do again")
        fork = store.fork("r", "f", at=at)
        for number in range(7):
            fork.submit(Write(account="a", letter=f"own {number}"))
            fork.checkpoint(full=number % 2 == 0)
        assert store.verify("f").ok
        assert store.view("f").report.used == fork.position
        for position in range(at + 1, fork.position + 1):
            genesis = store.view("f", at=position, start="genesis")
            assert store.view("f", at=position, start=position).state_bytes() == genesis.state_bytes()
        if at >= 2:
            assert fork.submit(Write(account="a", letter="shared"), command_id="w").events == tuple(
                event for event in store.history("r") if event.command_id == "w"
            )
