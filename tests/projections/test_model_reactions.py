"""Facts that touch two projections: what follows in one of them from a step in another, in the same commit and with its
cause."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import Refused
from projections.tasks import TERMINATIONS
from tests.projections.model_shell import bind, check, family, followed, launch, shown, started, statuses

# -- plan items -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("termination", TERMINATIONS)
def test_an_item_settles_as_its_task_ends(termination: str) -> None:
    """Completed makes the item done, every other termination blocked; one commit, caused by the task's end, in every
    conversation that is bound to it and nowhere else."""
    with family("a", "b") as (store, run):
        launch(run, "a")
        bind(run, "z", "a", "b")
        bind(run, "y", "a")
        outcome = run.tasks.finish("a", termination=termination, attempt=1)
        assert shown(outcome) == [
            ("task.finished", "a", None),
            ("context.plan_items_settled", "y", "task.finished"),
            ("context.plan_items_settled", "z", "task.finished"),
        ]
        ended = "done" if termination == "completed" else "blocked"
        assert statuses(run, context="z") == [ended, "in_progress"]
        assert statuses(run, context="y") == [ended]
        check(store, run)


def test_an_item_is_blocked_when_its_task_is_never_launched() -> None:
    """A failed launch ends the task; what was bound to it is blocked in the same commit."""
    with family("a") as (store, run):
        bind(run, "c", "a")
        outcome = run.tasks.fail_launch("a", attempt=1, reason="no host")
        assert shown(outcome) == [
            ("task.launch_failed", "a", None),
            ("context.plan_items_settled", "c", "task.launch_failed"),
        ]
        assert statuses(run, context="c") == ["blocked"]
        check(store, run)


def test_a_cancel_of_many_tasks_settles_each_by_its_own_end() -> None:
    """Twenty tasks in a chain end in one commit: every item is settled, every node failed, by the end of its own task
    and of no other."""
    names = [f"t{number:02}" for number in range(20)]
    with family() as (store, run):
        for parent, child in zip(["root", *names], names, strict=False):
            run.tasks.spawn(child, parent=parent)
        bind(run, "c", *names)
        started(run, "g", *[[]] * 20, default_failure_strategy="skip")
        followed(run, "g", *names)
        before = len(list(store.journal.commits("r")))
        outcome = run.tasks.cancel("root")
        assert len(list(store.journal.commits("r"))) == before + 1
        ends = {event.data["task_id"]: event.seq for event in outcome.events if event.type == "task.finished/1"}
        assert list(ends) == [*reversed(names), "root"]
        settled = [event for event in outcome.events if event.type == "context.plan_items_settled/1"]
        assert [(names[event.data["items"][0] - 1], event.cause) for event in settled] == list(ends.items())[:-1]
        failed = [event for event in outcome.events if event.type == "node.failed/1"]
        assert [(names[event.data["node"]], event.cause) for event in failed] == list(ends.items())[:-1]
        assert set(statuses(run, context="c")) == {"blocked"} and set(statuses(run, graph="g")) == {"skipped"}
        assert run.graphs.get("g").status == "completed"
        check(store, run)


def test_binding_to_a_task_that_is_done_settles_in_that_commit() -> None:
    """By an update and by an import; an item that was moved back by hand settles again when the plan changes."""
    items = [
        {"id": 1, "title": "x", "status": "pending", "bound": {"task": {"id": "a"}}, "updated": 0},
        {"id": 2, "title": "y", "status": "skipped", "bound": {"task": {"id": "b"}}, "updated": 0},
    ]
    with family("a", "b") as (store, run):
        launch(run, "a")
        run.tasks.finish("a", attempt=1)
        run.tasks.fail_launch("b", attempt=1)
        run.contexts.create("c")
        run.contexts.create_plan("c", "goal", ["x", "y"])
        for item, task, ended in ((1, "a", "done"), (2, "b", "blocked")):
            outcome = run.contexts.update_plan("c", item=item, bind={"task": task})
            assert shown(outcome)[1] == ("context.plan_items_settled", "c", "context.plan_updated")
            assert statuses(run, context="c")[item - 1] == ended
        run.contexts.update_plan("c", item=1, status="pending")
        assert statuses(run, context="c") == ["done", "blocked"]
        outcome = run.contexts.import_record("i", {"plan": {"goal": "goal", "items": items}})
        assert shown(outcome)[1] == ("context.plan_items_settled", "i", "context.imported")
        assert statuses(run, context="i") == ["done", "skipped"]
        check(store, run)


def test_facts_of_both_projections_are_recorded_once() -> None:
    """Another runtime tells the end of a task and that its items settled: the second is known already and adds nothing;
    it is refused when it tells otherwise."""
    end = {"task_id": "a", "termination": "completed", "attempt": 1, "result": None, "wakes": None, "because": None}
    settled = {"context": "c", "at_ms": 5, "items": [1], "ok": True, "note": None}
    with family("a") as (store, run):
        launch(run, "a")
        bind(run, "c", "a")
        with pytest.raises(Refused):
            run.ingest([("task.finished", end), ("context.plan_items_settled", {**settled, "ok": False})])
        assert statuses(run, context="c") == ["in_progress"] and run.tasks.get("a").lifecycle == "running"
        outcome = run.ingest([("task.finished", end), ("context.plan_items_settled", settled)])
        assert [name for name, _, _ in shown(outcome)] == ["task.finished", "context.plan_items_settled"]
        assert not run.ingest([("context.plan_items_settled", settled)]).changed
        check(store, run)


# -- the task of a conversation ---------------------------------------------------------------------------------------


def test_a_conversation_names_a_task_that_is_there() -> None:
    """An unknown task is refused whether it is attached, recorded or comes with an imported record; in a run without
    any task there is nothing to know."""
    with family("a") as (store, run):
        run.contexts.create("c")
        position, bytes_before = run.position, run.state_bytes()
        for attach in (
            lambda: run.contexts.attach_task("c", "nobody"),
            lambda: run.ingest([("context.task_attached", {"context": "c", "at_ms": 1, "task": "nobody"})]),
            lambda: run.contexts.import_record("i", {"task": "nobody"}),
        ):
            with pytest.raises(Refused) as caught:
                attach()
            assert caught.value.details["rule"] == "unknown_task"
        assert (run.position, run.state_bytes()) == (position, bytes_before)
        run.contexts.attach_task("c", "a")
        run.contexts.import_record("i", {"task": "root"})
        run.tasks.cancel("root")
        assert run.contexts.get("c").task == "a" and run.contexts.get("i").task == "root"
        other = store.run("without tasks")
        other.contexts.create("c")
        other.contexts.attach_task("c", "elsewhere")
        other.contexts.import_record("i", {"task": "elsewhere"})
        check(store, run)


# -- attempts that follow tasks ---------------------------------------------------------------------------------------


def test_a_node_lives_its_task_life() -> None:
    """The launch begins the attempt, the good end completes the node with the task's last words, and what waited for it
    is ready, all in the commits of the task."""
    with family("a") as (store, run):
        started(run, "g", [], [0])
        followed(run, "g", "a")
        run.tasks.publish_launch("a")
        outcome = run.tasks.acknowledge_launch("a", attempt=1)
        assert shown(outcome)[1:] == [("node.attempt_started", 0, "task.launch_acknowledged")]
        began = run.graphs.node("g", 0).attempts[0].started_ms
        assert began is not None
        run.tasks.yield_task("a")
        assert len(shown(run.tasks.start("a"))) == 1, "an attempt begins once"
        outcome = run.tasks.finish("a", attempt=1, result={"final_message": {"role": "assistant", "content": "42"}})
        assert shown(outcome) == [
            ("task.finished", "a", None),
            ("node.completed", 0, "task.finished"),
            ("node.readied", 1, "node.completed"),
        ]
        node = run.graphs.node("g", 0)
        assert node.result is not None and node.attempts[0].ended_ms is not None
        assert (node.result.output, node.result.agent_id) == ("42", "a")
        assert node.result.duration_ms == node.attempts[0].ended_ms - began > 0
        check(store, run)


@pytest.mark.parametrize("message", [None, "text", {"content": "text"}, {"content": 7}, {"role": "x"}, [1]])
def test_a_task_that_ends_without_text_completes_its_node_without(message: Any) -> None:
    """Whatever a task's final message is, its node completes: with the text there is, or with none."""
    with family("a") as (_, run):
        started(run, "g", [])
        followed(run, "g", "a")
        launch(run, "a")
        run.tasks.finish("a", attempt=1, result={"final_message": message})
        result = run.graphs.node("g", 0).result
        assert result is not None
        assert result.output == ("text" if message in ("text", {"content": "text"}) else "")


ENDS = {
    "abort": ["failed", "canceled", "canceled", "canceled"],
    "skip": ["skipped", "skipped", "running", "running"],
    "ask": ["failed", "pending", "running", "running"],
    "retry": ["ready", "pending", "running", "running"],
}


@pytest.mark.parametrize("strategy", ENDS)
@pytest.mark.parametrize("termination", [*TERMINATIONS[1:], "launch"])
def test_any_other_end_fails_the_node_and_its_strategy_follows(termination: str, strategy: str) -> None:
    """Eight terminations and a failed launch, four strategies: the node has failed as the task did, and whatever that
    brings about is in the commit of the task's end."""
    with family("a", "b", "c") as (store, run):
        started(run, "g", [], [0], [], [], default_failure_strategy=strategy)
        followed(run, "g", "a")
        run.graphs.dispatch("g", 2, task="b")
        run.graphs.dispatch("g", 3, task="c")
        if termination == "launch":
            outcome = run.tasks.fail_launch("a", attempt=1, reason="no host")
        else:
            launch(run, "a")
            outcome = run.tasks.finish("a", attempt=1, termination=termination)
        end = "task.launch_failed" if termination == "launch" else "task.finished"
        assert shown(outcome)[1] == ("node.failed", 0, end)
        attempt = run.graphs.node("g", 0).attempts[0]
        cause, error = ("spawn", "no host") if termination == "launch" else ("error", f"task a ended: {termination}")
        assert (attempt.outcome, attempt.error) == (cause, error)
        assert statuses(run, graph="g") == ENDS[strategy]
        status = {"abort": "failed", "ask": "paused"}.get(strategy, "running")
        assert run.graphs.get("g").status == status
        assert run.tasks.get("b").lifecycle == "pending_launch", "the graph decides nothing about tasks"
        check(store, run)


def test_a_relaunch_is_the_same_attempt() -> None:
    """The attempt goes on through its task's relaunch; a late end of the task's dead attempt is refused and moves no
    node; the end of the live one completes it."""
    with family("a") as (store, run):
        started(run, "g", [])
        followed(run, "g", "a")
        launch(run, "a")
        began = run.graphs.node("g", 0).attempts[0].started_ms
        run.tasks.relaunch("a", mode="retry")
        launch(run, "a")
        assert run.graphs.node("g", 0).attempts[0].started_ms == began
        with pytest.raises(Refused, match="attempt 1 of task 'a' is not the live one"):
            run.tasks.finish("a", attempt=1)
        assert statuses(run, graph="g") == ["running"]
        run.tasks.finish("a", attempt=2)
        assert statuses(run, graph="g") == ["completed"] and run.graphs.get("g").status == "completed"
        assert len(run.graphs.node("g", 0).attempts) == 1
        check(store, run)


def test_a_node_that_is_canceled_lets_its_task_go_on() -> None:
    """The task knows nothing of it; its end moves no node, unless another has followed it meanwhile."""
    with family("a") as (store, run):
        started(run, "g", [], [])
        started(run, "h", [])
        followed(run, "g", "a")
        launch(run, "a")
        run.graphs.cancel("g", 0)
        assert run.tasks.get("a").lifecycle == "running"
        run.graphs.dispatch("h", 0, task="a")
        outcome = run.tasks.finish("a", attempt=1)
        assert [(name, about) for name, about, _ in shown(outcome)] == [
            ("task.finished", "a"), ("node.completed", 0), ("graph.completed", "h"),
        ]  # fmt: skip
        assert statuses(run, graph="g") == ["canceled", "ready"] and statuses(run, graph="h") == ["completed"]
        check(store, run)


def test_an_attempt_follows_no_task_that_can_not_end() -> None:
    """A task that is unknown, or done, or carries another attempt, is refused to a command, to a recorded fact and to
    an imported graph; nothing changes."""
    with family("a", "b", "c") as (store, run):
        run.tasks.fail_launch("a", attempt=1)
        started(run, "g", [], [])
        run.graphs.dispatch("g", 1, task="b")
        elsewhere = store.run("elsewhere")
        started(elsewhere, "i", [])
        position, bytes_before = run.position, run.state_bytes()
        for task, problem in (
            ("nobody", "there is no task 'nobody'"),
            ("a", "the end has come already of task 'a'"),
            ("b", "task 'b' already carries node 1"),
        ):
            record = elsewhere.graphs.get("i").to_json()
            attempt = {"number": 1, "handle": {"task": task}, "agent": None, "started_ms": 1}
            record["nodes"][0] |= {"status": "running", "attempts": [attempt]}
            fact = {"graph": "g", "node": 0, "attempt": 1, "handle": None, "task": task, "agent": None, "at_ms": 1}
            for follow in (
                lambda task=task: run.graphs.dispatch("g", 0, task=task),  # type: ignore[misc]
                lambda fact=fact: run.ingest([("node.dispatched", fact)]),  # type: ignore[misc]
                lambda record=record: run.graphs.import_graph(record),  # type: ignore[misc]
            ):
                with pytest.raises(Refused, match=problem):
                    follow()
        assert (run.position, run.state_bytes()) == (position, bytes_before)
        record["nodes"][0]["attempts"][0]["handle"] = {"task": "c"}
        run.graphs.import_graph(record)
        assert run.graphs.running("i")[0].attempt.task == "c"
        check(store, run)


# -- one step, two projections ----------------------------------------------------------------------------------------


def test_one_end_reaches_two_projections() -> None:
    """A task's end settles a plan, completes a node and with it a graph, and wakes the task that waited for it; a
    single commit, each event with the one that brought it about."""
    with family("a") as (store, run):
        bind(run, "c", "a")
        run.contexts.attach_task("c", "a")
        started(run, "g", [])
        followed(run, "g", "a")
        launch(run, "a")
        run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["a"])
        before = len(list(store.journal.commits("r")))
        outcome = run.tasks.finish("a", attempt=1, command_id="end", actor="host")
        assert shown(outcome) == [
            ("task.finished", "a", "end"),
            ("context.plan_items_settled", "c", "task.finished"),
            ("node.completed", 0, "task.finished"),
            ("graph.completed", "g", "node.completed"),
        ]
        assert {(event.command_id, event.actor) for event in outcome.events} == {("end", "host")}
        assert len(list(store.journal.commits("r"))) == before + 1
        assert run.tasks.get("root").lifecycle == "running"
        check(store, run)
