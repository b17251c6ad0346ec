"""Runs that end inside a commit across projections: every one of them is a valid run that can go on (G3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.core.errors import Refused
from engine.core.handle import Outcome
from engine.runs import LiveRun
from tests.projections.model_shell import bind, check, family, followed, launch, nodes, shown, started, statuses


def an_end(run: LiveRun) -> Outcome:
    """A plan, a graph and a waiting parent hear of one task."""
    bind(run, "c", "a", "b")
    started(run, "g", [], [0])
    followed(run, "g", "a")
    launch(run, "a")
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["a"])
    return run.tasks.finish("a", attempt=1)


def a_failed_launch(run: LiveRun) -> Outcome:
    """A graph aborts, with an attempt on another task that is alive."""
    bind(run, "c", "a")
    started(run, "g", [], [], [0, 1])
    followed(run, "g", "a", "b")
    return run.tasks.fail_launch("a", attempt=1)


def a_cascade(strategy: str) -> Callable[[LiveRun], Outcome]:
    """All tasks end at once; each carries a node and has an item in two plans."""

    def cascade(run: LiveRun) -> Outcome:
        for context in ("c", "d"):
            bind(run, context, "a", "b", "c")
        started(run, "g", [], [], [], [0, 1], default_failure_strategy=strategy, default_max_retries=1)
        followed(run, "g", "a", "b", "c")
        return run.tasks.cancel("root")

    cascade.__name__ = f"a_cascade_{strategy}"
    return cascade


def an_import(run: LiveRun) -> Outcome:
    """A graph comes with an attempt that follows a task."""
    bind(run, "c", "a")
    started(run, "g", [], [0])
    record = run.graphs.get("g").to_json() | {"id": "i"}
    attempt = {"number": 1, "handle": {"task": "b"}, "agent": None, "started_ms": 1}
    record["nodes"][0] |= {"status": "running", "attempts": [attempt]}
    return run.graphs.import_graph(record)


def an_injection(run: LiveRun) -> Outcome:
    """A graph grows while an attempt follows a task."""
    bind(run, "c", "a")
    started(run, "g", [])
    followed(run, "g", "a")
    return run.graphs.inject("g", nodes([0], [1], first=1))


COMMITS = [
    an_end,
    a_failed_launch,
    *map(a_cascade, ("abort", "skip", "ask", "retry")),
    an_import,
    an_injection,
]


@pytest.mark.parametrize("commit", COMMITS, ids=lambda commit: commit.__name__)
def test_a_commit_cut_anywhere_leaves_a_run_that_goes_on(commit: Callable[[LiveRun], Outcome]) -> None:
    """Cut after any of its events the run keeps every law; every task can still end, whatever its graph is; and after
    recovery and a look at the plan nothing waits for a task that is done."""
    with family("a", "b", "c") as (store, run):
        outcome = commit(run)
        assert outcome.count > 1
        for at in range(outcome.position - outcome.count, outcome.position + 1):
            cut = store.fork("r", f"cut-{at}", at=at)
            assert cut.state_bytes() == run.at(at).state_bytes()
            check(store, cut)
            if cut.tasks.get("root").lifecycle != "done":
                cut.tasks.cancel("root")
            assert not cut.tasks.live()
            for graph in cut.graphs.ids():
                recover(cut, graph)
            for context in cut.contexts.ids():
                cut.contexts.update_plan(context, item=1, note="seen")
                assert "in_progress" not in statuses(cut, context=context)
            check(store, cut)


def recover(run: LiveRun, graph: str) -> None:
    """Recover a graph; the one step after a crash. A graph that is incomplete, or over, waits for its own commands."""
    over = run.graphs.get(graph).status not in ("running", "paused")
    try:
        run.graphs.recover(graph)
    except Refused as error:
        assert over or "incomplete" in error.message
        return
    assert run.graphs.running(graph) == ()


def test_what_was_cut_off_follows_at_recovery() -> None:
    """Cut between the end of a task and what follows from it: recovery ends the attempt as its task has ended, in one
    commit with its cause, and not twice; an attempt whose task is alive is kept."""
    with family("a", "b") as (store, run):
        started(run, "g", [], [], [0])
        followed(run, "g", "a", "b")
        launch(run, "a")
        outcome = run.tasks.finish("a", attempt=1, result={"final_message": "done"})
        cut = store.fork("r", "cut", at=outcome.position - outcome.count + 1)
        assert shown(cut.graphs.recover("g")) == [
            ("graph.recovered", "g", None),
            ("node.completed", 0, "graph.recovered"),
            ("node.readied", 2, "node.completed"),
        ]
        result = cut.graphs.node("g", 0).result
        assert result is not None and (result.output, result.agent_id) == ("done", "a")
        assert [entry.node for entry in cut.graphs.running("g")] == [1]
        assert len(shown(cut.graphs.recover("g"))) == 1
        check(store, cut)


def test_attempts_that_were_cut_off_together_end_one_after_the_other() -> None:
    """The first of them fails and its graph aborts: the second is canceled by that, not failed as well."""
    with family("a", "b") as (store, run):
        started(run, "g", [], [], [0, 1], default_failure_strategy="abort")
        followed(run, "g", "a", "b")
        cascade = run.tasks.cancel("root")
        cut = store.fork("r", "cut", at=cascade.position - cascade.count + 3)
        assert statuses(cut, graph="g") == ["running", "running", "pending"] and not cut.tasks.live()
        assert shown(cut.graphs.recover("g")) == [
            ("graph.recovered", "g", None),
            ("node.failed", 0, "graph.recovered"),
            ("graph.failed", "g", "node.failed"),
            ("node.canceled", 1, "graph.failed"),
            ("node.canceled", 2, "graph.failed"),
        ]
        check(store, cut)


def test_recovery_does_what_it_is_told_with_attempts_whose_task_is_done() -> None:
    """Requeued or failed by the policy, such an attempt is not ended a second time."""
    with family("a") as (store, run):
        started(run, "g", [], default_failure_strategy="retry")
        followed(run, "g", "a")
        outcome = run.tasks.cancel("a")
        for policy, ended in (("requeue", "unknown"), ("fail", "crash")):
            cut = store.fork("r", policy, at=outcome.position - outcome.count + 1)
            cut.graphs.recover("g", policy)  # type: ignore[arg-type]
            assert [attempt.outcome for attempt in cut.graphs.node("g", 0).attempts] == [ended]
            assert statuses(cut, graph="g") == ["ready"]
            check(store, cut)


def test_a_graph_cut_inside_its_growth_is_completed_and_then_recovered() -> None:
    """A task may end while nodes of its graph are still to come; when they have come, recovery ends the attempt."""
    with family("a") as (store, run):
        outcome = an_injection(run)
        cut = store.fork("r", "cut", at=outcome.position - 1)
        assert len(shown(cut.tasks.cancel("a"))) == 2, "the task's end and the plan's item"
        with pytest.raises(Refused, match="incomplete"):
            cut.graphs.recover("g")
        missing = next(event for event in outcome.events if event.seq == outcome.position)
        cut.ingest([(missing.type, missing.data)])
        cut.graphs.recover("g")
        assert statuses(cut, graph="g") == ["failed", "canceled", "canceled"]
        check(store, cut)
