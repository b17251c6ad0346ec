"""Task graphs in a real store, beside tasks: checkpoints, restores, and attempts that follow tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import open_store
from engine.core.errors import CommandMismatch, Refused
from engine.core.model import Model
from projections.graph import PROJECTION, TaskNode, VerifyPredicate, guard_dispatch
from projections.tasks import PROJECTION as TASKS
from tests.projections.graph.graph_bench import check_rest, plan


def test_a_graph_restores_from_any_checkpoint_and_from_none(tmp_path: Path) -> None:
    """G2, G8: checkpointed at every step, reopened from the best one or from genesis: the same graph, digest and next
    ready nodes; and at every position a view of the past that is at rest at the end of each commit."""
    path = str(tmp_path / "a.db")
    nodes = plan([], [0], [0], [1, 2])
    nodes[1] = TaskNode.new(1, "n", "", depends_on=[0], verify_predicate=VerifyPredicate.natural("x"))
    ends = []
    with open_store(path) as store:
        run = store.run("r")
        run.graphs.create("g", "goal", nodes, default_failure_strategy="retry")
        ends.append(run.graphs.start("g").position)
        for number in (0, 1, 2):
            ends.append(run.graphs.dispatch("g", number, f"h{number}").position)
            run.checkpoint()
            ends.append(run.graphs.complete("g", number, "x", handle=f"h{number}").position)
        run.graphs.record_predicate("g", 1, {"passed": True, "confidence": 1})
        live, digest, position = run.graphs.get("g"), run.digest(), run.position
        assert live.nodes[3].status == "ready"
    for start in ("best", "genesis"):
        with open_store(path) as store:
            run = store.run("r") if start == "best" else store.run("r", start="genesis")
            assert (run.digest(), run.position) == (digest, position)
            assert run.graphs.get("g") == live and run.graphs.ready("g") == (3,)
            for end in ends:
                check_rest(run.at(end).graphs.get("g"))


def test_a_command_id_makes_a_dispatch_repeatable(tmp_path: Path) -> None:
    """G5: a dispatch repeated under its id gives no second attempt, after a restart too; other content is refused."""
    path = str(tmp_path / "a.db")
    with open_store(path) as store:
        run = store.run("r")
        run.graphs.create("g", "goal", plan([], []))
        run.graphs.start("g")
        run.graphs.dispatch("g", 0, command_id="d0")
    with open_store(path) as store:
        run = store.run("r")
        assert run.graphs.dispatch("g", 0, command_id="d0").repeated
        assert len(run.graphs.node("g", 0).attempts) == 1
        with pytest.raises(CommandMismatch):
            run.graphs.dispatch("g", 1, command_id="d0")


def test_a_graph_runs_on_the_tasks_of_its_run() -> None:
    """A node whose attempt names a task completes when the task does, in the commit of the task's end, so no crash can
    part them."""
    with open_store("memory:") as store:
        run = store.run("r")
        run.tasks.open_root("root")
        run.graphs.create("g", "goal", plan([], [0]), default_failure_strategy="retry", default_max_retries=1)
        run.graphs.start("g")
        for name in ("first", "second"):
            run.tasks.spawn(name, parent="root", role="explore")
            run.graphs.dispatch("g", 0, task=name, agent="explorer")
            run.tasks.publish_launch(name, attempt=1)
            if name == "first":
                outcome = run.tasks.fail_launch(name, attempt=1, reason="no host")
                assert {event.type for event in outcome.events} >= {"node.failed/1", "node.retried/1"}
        assert run.graphs.node("g", 0).attempts[0].outcome == "spawn"
        run.tasks.acknowledge_launch("second", attempt=1)
        assert run.graphs.running("g")[0].attempt.task == "second"
        outcome = run.tasks.finish("second", termination="completed", attempt=1)
        assert {event.type for event in outcome.events} >= {"node.completed/1", "node.readied/1"}
        assert run.graphs.ready("g") == (1,)


def test_an_attempt_follows_a_task_that_can_still_end() -> None:
    """The guard refuses to follow a task that is not known, or is done, once the run has tasks."""
    model = Model((PROJECTION, TASKS), guards={"node.dispatched": (guard_dispatch,)})
    with open_store("memory:", model=model) as store:
        run = store.run("r")
        run.graphs.create("g", "goal", plan([], [], []))
        run.graphs.start("g")
        run.graphs.dispatch("g", 2, task="before-any-task")
        run.tasks.open_root("root")
        run.tasks.start("root")
        run.graphs.dispatch("g", 0, task="root")
        run.tasks.spawn("child", parent="root", role="explore")
        run.tasks.fail_launch("child", attempt=1)
        for task, problem in (("nobody", "there is no task"), ("child", "the end has come already")):
            with pytest.raises(Refused, match=problem):
                run.graphs.dispatch("g", 1, task=task)
        assert run.graphs.node("g", 1).status == "ready"
