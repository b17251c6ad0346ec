"""What users of agentd reported (rows A4 to A22 of the register; A1, A2, A10, A20 and A23 are tested with the
conversations): timers that never wake or never stop, workers that die, ends that overtake results, runs that come back
after they were thrown away. None of it can happen here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import CheckpointPolicy
from engine.core.errors import Conflict, IllegalTransition, NotFound, Refused
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from projections.contexts import UserMsg
from projections.graph import TaskNode
from tests.engine.kit import NEVER, Ticks, stored_rows

DUE = 5_000


def waiting_for_time(run: LiveRun) -> None:
    """Let the root of a run wait for a timer that is over at ``DUE``, and a child for another."""
    tasks = run.tasks
    tasks.open_root("root")
    tasks.start("root")
    tasks.spawn("child", parent="root")
    tasks.publish_launch("child")
    tasks.acknowledge_launch("child", 1)
    tasks.suspend("root", wait="timer", due_ms=DUE)
    tasks.suspend("child", wait="timer", due_ms=DUE + 1)


def prefixes(store: Store) -> Iterator[LiveRun]:
    """Forks of run ``r`` at every position: what a crash after each event would have left."""
    for position in range(store.view("r").position + 1):
        yield store.fork("r", f"crashed-at-{position}", at=position)


def test_a_timer_is_there_until_its_effect_is(store: Store) -> None:
    """A4: that a timer elapsed and that its task runs again are one event: cut after any event, the task either waits
    and its timer is due, or it runs; never neither, so nothing has to be repaired at restore."""
    run = store.run("r")
    waiting_for_time(run)
    run.tasks.deliver("root", kind="timer")
    run.checkpoint()
    run.tasks.deliver("child", kind="timer")
    for crashed in prefixes(store):
        waits = {wait.task_id for wait in crashed.tasks.due(DUE + 1)}
        for row in crashed.tasks.live():
            assert (row.lifecycle == "suspended") == (row.task_id in waits) == (row.wait == "timer")
        for task in waits:
            assert crashed.tasks.deliver(task, kind="timer").changed
        assert crashed.tasks.due(10**12) == ()


def test_what_a_dead_worker_left_running_is_named_and_freed(store: Store) -> None:
    """A5: the attempts of a worker that died are in the state, not in a table that forgets with it: a restored run
    names them, each can be given up, its place is free at once, and its late reports are refused."""
    run = store.run("r")
    nodes = [TaskNode.new(n, "n", "", execution_mode="sequential", failure_strategy="retry") for n in range(2)]
    run.graphs.create("g", "goal", nodes)
    run.graphs.start("g")
    run.graphs.dispatch("g", 0, "dead worker")
    run.tasks.open_root("root")
    run.tasks.spawn("job", parent="root")
    run.tasks.publish_launch("job")
    run.tasks.acknowledge_launch("job", 1)
    again = store.run("r")
    assert [(entry.node, entry.attempt.handle) for entry in again.graphs.running("g")] == [(0, "dead worker")]
    assert [row.task_id for row in again.tasks.live() if row.lifecycle == "running"] == ["job"]
    assert again.graphs.dispatchable("g") == ()
    again.graphs.recover("g", "requeue")
    again.tasks.relaunch("job", mode="retry")
    assert again.graphs.running("g") == () and again.graphs.dispatchable("g", 1) == (0,)
    assert again.tasks.launch("job").attempt == 2
    with pytest.raises(Refused):
        again.graphs.complete("g", 0, "late", handle="dead worker")
    with pytest.raises(Refused):
        again.tasks.finish("job", attempt=1)
    for task in again.tasks.live():
        again.tasks.cancel(task.task_id) if task.task_id == "root" else None
    assert again.tasks.live() == ()


def test_who_is_ahead_of_the_run_is_told_where_it_ends(store: Store) -> None:
    """A7: a client that stands at a position which the run does not have (its store was put back from a copy) is told
    so, with the last position there is, whatever it asks; it is not given an empty answer to wait on."""
    run = store.run("r")
    waiting_for_time(run)
    asks: list[Callable[[int], Any]] = [
        lambda position: run.at(position),
        lambda position: store.view("r", at=position),
        lambda position: run.diff(1, position),
        lambda position: store.fork("r", "ahead", at=position),
    ]
    for ask in asks:
        with pytest.raises(NotFound, match="ends at 7"):
            ask(8)
    assert [line.run for line in store.runs()] == ["r"]


def test_a_timer_that_has_fired_is_never_due_again(store: Store) -> None:
    """A8: once its time is over and it was delivered, a timer is due no more, however late it is, live, restored and on
    a fork; a second delivery is refused, and waiting again is a timer of its own."""
    run = store.run("r")
    waiting_for_time(run)
    run.tasks.deliver("root", kind="timer", at_ms=DUE + 100)
    run.checkpoint()
    for again in (run, store.run("r"), store.run("r", start="genesis"), store.fork("r", "fork", at=run.position)):
        assert [wait.task_id for wait in again.tasks.due(10**12)] == ["child"]
        with pytest.raises(Refused):
            again.tasks.deliver("root", kind="timer")
    run.tasks.suspend("root", wait="timer", due_ms=DUE * 2)
    assert [(wait.task_id, wait.due_ms) for wait in run.tasks.due(10**12)] == [("child", DUE + 1), ("root", DUE * 2)]


def launched(store: Store) -> LiveRun:
    run = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")
    run.tasks.spawn("worker", parent="root")
    run.tasks.publish_launch("worker")
    run.tasks.acknowledge_launch("worker", 1)
    return run


LATE: dict[str, Callable[[LiveRun], Any]] = {
    "exit code": lambda run: run.tasks.finish("worker", termination="error", attempt=1),
    "lost launch": lambda run: run.tasks.fail_launch("worker", 1, reason="exited"),
    "last usage": lambda run: run.tasks.report_usage("worker", tokens=5, attempt=1),
    "timeout": lambda run: run.tasks.finish("worker", termination="timeout", attempt=1),
    "another result": lambda run: run.tasks.finish("worker", attempt=1, result={"final_message": "other"}),
    "cancel": lambda run: run.tasks.finish("worker", termination="user_abort", attempt=1),
}


@pytest.mark.parametrize("late", LATE)
def test_a_finished_worker_stays_finished_whatever_comes_late(store: Store, late: str) -> None:
    """A13: whatever its supervisor reports after a worker's end, in whatever order the queues deliver it, changes
    nothing: the end that was recorded stands, with its result, and the report is refused."""
    run = launched(store)
    run.tasks.finish("worker", attempt=1, result={"final_message": "done"})
    before = run.state_bytes()
    with pytest.raises((IllegalTransition, Refused)):
        LATE[late](run)
    assert run.state_bytes() == before == store.run("r").state_bytes()
    assert (run.tasks.get("worker").termination, run.tasks.result("worker")["final_message"]) == ("completed", "done")


def test_an_end_and_its_result_are_seen_together(store: Store) -> None:
    """A14: there is no position at which a task, a node or a swarm's worker is at its end and its result is still to
    come: one event holds both, whoever reads event by event."""
    run = launched(store)
    run.graphs.create("g", "goal", [TaskNode.new(0, "n", "")])
    run.graphs.start("g")
    run.graphs.dispatch("g", 0, task="worker")
    run.swarm.start(1)
    with run.batch():
        run.tasks.finish("worker", attempt=1, result={"final_message": {"role": "assistant", "content": "the answer"}})
        run.swarm.finish_worker(0, success=True, message="the answer")
    seen = set()
    for position in range(1, run.position + 1):
        view = run.at(position)
        if view.tasks.counts()["done"]:
            assert view.tasks.result("worker")["final_message"]["content"] == "the answer"
            seen.add("task")
        for node in view.graphs.get("g").nodes if "g" in view.graphs.ids() else ():
            if node.status == "completed":
                assert node.result is not None and node.result.output == "the answer"
                seen.add("node")
        if view.swarm.started() and 0 in view.swarm.context().done_workers:
            (event,) = run.history(until=position, types=["swarm.worker_finished"])
            assert event.data["message"] == "the answer"
            seen.add("worker")
    assert seen == {"task", "node", "worker"}


def test_what_was_thrown_away_does_not_come_back(tmp_path: Path) -> None:
    """A16: a deleted run is gone for every later opening of the store: no checkpoint, fork, handle or second opening
    takes it up again, and one begun afresh under its name begins with nothing."""
    path = tmp_path / "refold.db"
    with open_store(path, checkpoints=CheckpointPolicy(every_events=2), clock=Ticks()) as store:
        stale = launched(store)
        store.fork("r", "kept", at=3)
        shared = launched_as(store, "unforked")
        store.delete("r")
        store.delete("unforked")
        for handle in (stale, shared):
            with pytest.raises(Conflict):
                handle.tasks.grant_capabilities("root", ["x"])
    for _ in range(3):
        with open_store(path) as store:
            assert [line.run for line in store.runs()] == ["kept"]
            assert store.view("kept").position == 3 and store.verify("kept").ok
            for name in ("r", "unforked"):
                with pytest.raises(NotFound):
                    store.view(name)
    with open_store(path) as store:
        fresh = store.run("unforked")
        assert (fresh.position, fresh.restored.used) == (0, "genesis")
        fresh.tasks.open_root("another root")
        assert [row.task_id for row in store.run("unforked").tasks.rows()] == ["another root"]
        with pytest.raises(Conflict, match="forks still need its history"):
            store.run("r")


def launched_as(store: Store, run_id: str) -> LiveRun:
    run = store.run(run_id)
    run.tasks.open_root("root")
    return run


def test_a_run_is_known_by_its_name_and_nothing_else(tmp_path: Path) -> None:
    """A17: another actor, clock, checkpoint policy, url of the same file or wording of a command does not make it
    another run: what was there is found, and goes on."""
    path = tmp_path / "refold.db"
    with open_store(path, clock=Ticks(), checkpoints=NEVER) as store:
        store.run("r", actor="one").tasks.open_root("root", capability_ids=["typo"])
    for number, (url, options) in enumerate(
        [
            (str(path), {"clock": Ticks(10**12)}),
            (f"sqlite:///{path}", {"checkpoints": CheckpointPolicy(every_events=1)}),
            (path, {"clock": lambda: 0, "checkpoints": CheckpointPolicy(on_close=True)}),
        ],
        start=1,
    ):
        with open_store(url, **options) as store:
            run = store.run("r", actor=f"actor {number}")
            assert run.position == number
            assert run.tasks.grant_capabilities("root", [f"corrected {number}"]).position == number + 1
            assert [line.run for line in store.runs()] == ["r"]


def test_a_schedule_fires_once_across_a_crash(tmp_path: Path) -> None:
    """A19, D22: the firing of a timer and the note that it was fired are one durable event: whether the process died
    before or after it, whoever comes next fires it exactly once, also under the id of the schedule."""
    path = tmp_path / "refold.db"
    with open_store(path, checkpoints=NEVER, clock=Ticks()) as store:
        waiting_for_time(store.run("r"))

    def fire(store: Store) -> int:
        run = store.run("r")
        fired = 0
        for wait in run.tasks.due(DUE):
            run.tasks.deliver(wait.task_id, kind="timer", command_id=f"fire {wait.task_id} {wait.due_ms}")
            fired += 1
        return fired

    with open_store(path) as store:
        assert store.run("r").tasks.due(DUE - 1) == ()  # it died before
    fired = []
    for _ in range(3):
        with open_store(path) as store:
            fired.append(fire(store))  # each time it dies right after
    assert fired == [1, 0, 0]
    with open_store(path) as store:
        again = store.run("r").tasks.deliver("root", kind="timer", command_id=f"fire root {DUE}")
        assert again.repeated and store.view("r").position == again.position == 8


def test_a_loop_costs_what_it_does_and_not_what_it_has_done(file_store: Store, tmp_path: Path) -> None:
    """A22: the 120th step of a loop writes the bytes that the second one wrote, one commit for each command, and a
    checkpoint after every step makes it no more than a few bytes per step: nothing is written whole again."""
    run = file_store.run("r")
    run.contexts.create("c")
    checkpoints = []
    for step in range(120):
        run.contexts.append("c", UserMsg(f"element {step:03} of the loop", ts=1), at_ms=1_000 + step)
        taken = run.checkpoint()
        assert taken is not None
        checkpoints.append(taken.size_bytes)
    rows = stored_rows(tmp_path / "refold.db", "r")
    assert [first for first, _ in rows] == list(range(1, 122))
    sizes = [len(stored) for _, stored in rows[1:]]
    assert max(sizes) - min(sizes) <= 2
    assert max(checkpoints[1:]) <= min(checkpoints[1:]) + 24
    stored = file_store.checkpoints.positions("r")
    assert len(stored) < 100 and all(newer > older for newer, older in pairwise(stored))
