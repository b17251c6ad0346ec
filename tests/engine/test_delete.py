"""Delete: what no run needs any more goes, with the last fork that needed it; what one needs never does, whatever
strikes in between."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import open_store
from engine.checkpoint import CheckpointPolicy
from engine.core.errors import Conflict, NotFound
from engine.doctor import diagnose, salvage
from engine.open_store import Store
from engine.runs import LiveRun
from engine.store import connect
from engine.testing.crashable import CrashableStore, SimulatedCrash
from projections.model import MODEL
from tests.engine.kit import BACKENDS, NEVER, url_of


def full(store: Store, run_id: str = "r", events: int = 20) -> LiveRun:
    """Return a run of so many events, a commit each, with a checkpoint in the middle and at the end."""
    run = store.run(run_id)
    run.tasks.open_root("root")
    for number in range(1, events):
        run.tasks.report_usage("root", tokens=number)
        if number + 1 == events // 2:
            run.checkpoint()
    run.checkpoint()
    return run


def grown(store: Store, run_id: str, origin: str, at: int, events: int = 5) -> LiveRun:
    """Return a fork that went on by so many events."""
    fork = store.fork(origin, run_id, at=at)
    for _ in range(events):
        fork.tasks.report_usage("root", tokens=1)
    fork.checkpoint()
    return fork


def held(store: Store) -> dict[str, list[int]]:
    """Return what the store still holds: the positions of commits, by run, hidden ones too."""
    heads = store.journal._commits.heads()
    return {head.run_id: [row.first for row in store.journal.raw(head.run_id)] for head in heads}


def all_runs_hold(store: Store, digests: dict[str, str]) -> None:
    for run in store.runs():
        assert store.verify(run.run).ok and store.view(run.run, start="genesis").digest() == digests[run.run]


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(url_of(request.param, tmp_path), clock=lambda: 5, checkpoints=NEVER)


def test_a_deleted_origin_goes_with_its_last_fork(store: Store) -> None:
    """As long as one fork is there its part stays; then commits and checkpoints are gone, and the name is free."""
    full(store)
    grown(store, "early", "r", 5)
    grown(store, "late", "r", 14)
    assert store.delete("r").released == ()
    with pytest.raises(Conflict, match="forks still need"):
        store.run("r")
    assert held(store)["r"] == list(range(1, 15)) and store.checkpoints.positions("r") == [10]
    assert store.delete("late").released == () and held(store)["r"] == list(range(1, 6)), "cut to what is needed"
    assert not store.checkpoints.positions("r")
    assert store.verify("early").ok and store.run("early").position == 10
    assert store.delete("early").to_json() == {"run": "early", "kept_until": 0, "needed_by": [], "released": ["r"]}
    assert held(store) == {} and not store.checkpoints.positions("early")
    full(store, events=3)
    assert store.verify("r").ok and store.run("r").position == 3


def test_a_chain_of_forks_goes_from_its_end(store: Store) -> None:
    """A fork of a fork of a fork, all but the last deleted: all stay; with the last, all go, and no other run."""
    full(store)
    full(store, "other")
    grown(store, "a", "r", 10)
    grown(store, "b", "a", 13)
    last = grown(store, "c", "b", 16)
    digest = last.digest()
    for name in ("a", "r", "b"):
        assert store.delete(name).released == ()
    assert store.view("c", start="genesis").digest() == digest and store.verify("c").ok
    assert {name: len(rows) for name, rows in held(store).items()} == {"a": 3, "b": 3, "c": 5, "other": 20, "r": 10}
    assert sorted(store.delete("c").released) == ["a", "b", "r"]
    assert list(held(store)) == ["other"] and store.verify("other").ok


def test_a_fork_at_the_beginning_needs_the_name_alone(store: Store) -> None:
    """A fork at 0 keeps no event of its origin, only the record that it names."""
    full(store)
    store.fork("r", "anew", at=0).tasks.open_root("root")
    assert store.delete("r").kept_until == 0 and held(store) == {"anew": [1], "r": []}
    assert store.verify("anew").ok
    assert store.delete("anew").released == ("r",) and held(store) == {}


def test_origins_that_are_there_are_left_alone(store: Store) -> None:
    """The last fork of a run that nobody deleted takes nothing along."""
    full(store)
    grown(store, "fork", "r", 5)
    assert store.delete("fork").released == ()
    assert held(store) == {"r": list(range(1, 21))} and list(store.checkpoints.positions("r")) == [20, 10]


@given(st.integers(0, 2**32))
def test_any_order_of_forking_and_deleting_loses_nothing(seed: int) -> None:
    """Over random trees of forks: every run that was not deleted reads as it did, and at the end nothing is left."""
    random = Random(seed)
    with open_store("memory:", clock=lambda: 5, checkpoints=CheckpointPolicy(every_events=4)) as store:
        full(store, "n0", 8)
        digests, number = {"n0": store.view("n0").digest()}, 0
        while digests:
            one = random.choice(sorted(digests))
            if number < 8 and random.randrange(3):
                number += 1
                at = random.randint(1, store.run(one).position)
                digests[f"n{number}"] = grown(store, f"n{number}", one, at, random.randrange(4)).digest()
            else:
                store.delete(one)
                del digests[one]
            assert [run.run for run in store.runs()] == sorted(digests)
            all_runs_hold(store, digests)
            hidden = [head for head in store.journal._commits.heads() if head.hidden]
            assert all(store.journal.forks_of(head.run_id) for head in hidden), "kept, and nobody needs it"
        assert held(store) == {}


@pytest.mark.parametrize("point", ["delete.before", "delete.after"])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_crash_in_between_leaves_the_rest_for_the_next_delete(tmp_path: Path, point: str, call: int) -> None:
    """Wherever it strikes in the delete of the last of a chain: what is there verifies, the doctor finds nothing, and
    the next delete, of anything, takes the rest away."""
    path = tmp_path / "s.db"
    crashing = CrashableStore(lambda: connect(path), clock=lambda: 5)
    store = crashing.store
    for name in ("other", "r"):
        full(store, name)
    digests = {"other": store.run("other").digest()}
    grown(store, "a", "r", 10)
    digests["c"] = grown(store, "c", "a", 13).digest()
    for name in ("r", "a"):
        store.delete(name)
    crashing.arm(point, call)
    try:
        store.delete("c")
        assert call == 4, "three runs go, each in its own transaction"
    except SimulatedCrash:
        assert call < 4
    store = crashing.reopen()
    all_runs_hold(store, digests)
    gone = 0 if (point, call) == ("delete.before", 1) else 1 if call == 1 else 2
    assert ("c" in held(store)) == (gone == 0)
    assert diagnose(path, MODEL).ok
    full(store, "more", 3)
    assert store.delete("more").to_json()["needed_by"] == []
    assert set(held(store)) == ({"a", "c", "other", "r"} if gone == 0 else {"other"})
    all_runs_hold(store, digests)
    if gone == 0:
        assert sorted(store.delete("c").released) == ["a", "r"]
    crashing.close()


def test_a_salvaged_store_holds_nothing_that_nobody_needs(tmp_path: Path) -> None:
    """What a crash left is not saved either; what a fork needs is, and stays hidden."""
    path, made = tmp_path / "s.db", tmp_path / "made.db"
    crashing = CrashableStore(lambda: connect(path), clock=lambda: 5)
    store = crashing.store
    for name, fork in (("r", "a"), ("q", "b")):
        full(store, name)
        grown(store, fork, name, 10)
        store.delete(name)
    crashing.arm("delete.after")
    with pytest.raises(SimulatedCrash):
        store.delete("a")
    crashing.close()
    salvage(path, made, MODEL)
    with open_store(made) as saved:
        assert {name: len(rows) for name, rows in held(saved).items()} == {"b": 5, "q": 10}
        assert saved.verify("b").ok
        with pytest.raises(NotFound):
            saved.view("q")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE run_heads SET origin_run='p' WHERE run_id='fork'",
        "UPDATE run_heads SET origin_position=4 WHERE run_id='fork'",
        "UPDATE run_heads SET origin_run=NULL, origin_position=NULL, origin_link=NULL WHERE run_id='fork'",
        "UPDATE run_heads SET origin_link=x'00' WHERE run_id='fork'",
        "DELETE FROM run_heads WHERE run_id='fork'",
    ],
)
def test_where_the_record_of_a_fork_is_damaged_nothing_is_taken_away(tmp_path: Path, damage: str) -> None:
    """What it needs is not known for sure then: a history that seems to be needed by nobody stays until it is."""
    path = tmp_path / "s.db"
    with open_store(path, clock=lambda: 5, checkpoints=NEVER) as store:
        full(store)
        grown(store, "fork", "r", 14)
        store.delete("r")
        before = held(store)["r"]
    with closing(sqlite3.connect(path)) as connection, connection:
        kept = connection.execute("SELECT * FROM run_heads WHERE run_id='fork'").fetchone()
        connection.execute(damage)
    with open_store(path, clock=lambda: 5) as store:
        full(store, "other", 3)
        assert store.delete("other").released == () and held(store)["r"] == before
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO run_heads VALUES (?,?,?,?,?,?,?)", kept)
    with open_store(path) as store:
        assert store.verify("fork").ok and store.delete("fork").released == ("r",) and held(store) == {}
