"""Stores that die on command: at the point and the call they were armed for; what was taken before is there after."""

from __future__ import annotations

import pytest

from engine.core.errors import BackendUnavailable
from engine.open_store import Store
from engine.testing import POINTS, CrashableStore, SimulatedCrash


def test_a_store_for_a_test_is_an_empty_file(refold_store: Store) -> None:
    """The fixture gives an open store in a file of its own."""
    assert refold_store.runs() == []
    refold_store.run("r").tasks.open_root("root")
    assert [run.run for run in refold_store.runs()] == ["r"]


@pytest.mark.parametrize(("point", "positions"), [("append.before", (1, 1)), ("append.after", (1, 2))])
def test_a_commit_is_wholly_there_or_wholly_absent(
    refold_crashable: CrashableStore, point: str, positions: tuple[int, int]
) -> None:
    """Killed before the write the command is absent, killed after it and before its acknowledgement it is there."""
    run = refold_crashable.store.run("r")
    run.tasks.open_root("root")
    refold_crashable.arm(point)
    with pytest.raises(SimulatedCrash):
        run.tasks.start("root", command_id="start")
    assert refold_crashable.reopen().run("r").position == positions[1]
    assert refold_crashable.store.run("r").tasks.start("root", command_id="start").position == 2


def test_it_dies_at_the_call_that_was_named_and_stays_dead(refold_crashable: CrashableStore) -> None:
    """The second append is the one; afterwards every call of the dead process dies as well."""
    run = refold_crashable.store.run("r")
    refold_crashable.arm("append.before", 2)
    run.tasks.open_root("root")
    with pytest.raises(SimulatedCrash, match=r"append\.before, call 2"):
        run.tasks.start("root")
    with pytest.raises(SimulatedCrash, match="dead"):
        refold_crashable.store.runs()
    assert refold_crashable.reopen().run("r").position == 1


@pytest.mark.parametrize(("point", "left"), [("before", 0), ("torn", 1), ("after", 1)])
def test_a_checkpoint_that_was_cut_off_changes_no_answer(
    refold_crashable: CrashableStore, point: str, left: int
) -> None:
    """Whatever a crash leaves of a checkpoint, the restored run is the same; half of one is refused."""
    run = refold_crashable.store.run("r")
    run.tasks.open_root("root")
    digest = run.digest()
    refold_crashable.arm(f"checkpoint.{point}")
    with pytest.raises(SimulatedCrash):
        run.checkpoint()
    again = refold_crashable.reopen().run("r")
    assert again.digest() == digest
    assert len(refold_crashable.store.checkpoints.positions("r")) == left
    assert again.restored.used == (1 if point == "after" else "genesis")


def test_forks_and_deletes_are_points_too(refold_crashable: CrashableStore) -> None:
    """A fork or a delete that was cut off happened or did not, by the side on which it was cut."""
    store = refold_crashable.store
    store.run("r").tasks.open_root("root")
    refold_crashable.arm("fork.before")
    with pytest.raises(SimulatedCrash):
        store.fork("r", "f", at=1)
    store = refold_crashable.reopen()
    assert [run.run for run in store.runs()] == ["r"]
    refold_crashable.arm("delete.after")
    with pytest.raises(SimulatedCrash):
        store.delete("r")
    assert refold_crashable.reopen().runs() == []


def test_a_failing_write_leaves_the_process_alive(refold_crashable: CrashableStore) -> None:
    """With fail=True the call raises BackendUnavailable once, and the run finds out what became of its commit."""
    run = refold_crashable.store.run("r")
    refold_crashable.arm("append.after", fail=True)
    with pytest.raises(BackendUnavailable):
        run.tasks.open_root("root", command_id="open")
    assert run.tasks.open_root("root", command_id="open").repeated
    assert run.position == 1


def test_what_was_armed_can_be_disarmed_and_unknown_points_are_refused(refold_crashable: CrashableStore) -> None:
    """Disarmed nothing happens; a point that does not exist is a mistake of the test."""
    refold_crashable.arm("append.before")
    refold_crashable.disarm()
    refold_crashable.store.run("r").tasks.open_root("root")
    with pytest.raises(AssertionError, match="no such point"):
        refold_crashable.arm("append.sideways")
    assert len(set(POINTS)) == len(POINTS) == 9
