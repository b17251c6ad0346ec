"""Why: the answer names what is, since when, by whom and because of what, and every step is an event of the journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine import open_store
from engine.core.errors import NotFound
from engine.open_store import Store
from engine.runs import LiveRun
from engine.why import Why, why_context, why_node, why_task, why_worker
from tests.app.test_app_examples import fill


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:", clock=lambda: 5) as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> LiveRun:
    return store.run("r", actor="planner")


def asked(store: Store, run: LiveRun) -> tuple[Any, ...]:
    return (store.journal, store.model, run, run.id)


def child(run: LiveRun, name: str, parent: str = "root") -> None:
    run.tasks.spawn(name, parent=parent)
    run.tasks.publish_launch(name)
    run.tasks.acknowledge_launch(name, 1)


def test_a_join_is_followed_to_what_it_waits_on(run: LiveRun) -> None:
    """The sentence of the issue: suspended since, waiting on whom, since when that runs, in which attempt."""
    run.tasks.open_root("root")
    run.tasks.start("root")
    child(run, "fetch")
    run.tasks.relaunch("fetch", mode="retry", actor="watchdog")
    run.tasks.publish_launch("fetch")
    run.tasks.acknowledge_launch("fetch", 2)
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["fetch"])
    why = run.why("root")
    assert why.subject == "task root"
    assert why.answer == (
        "root is suspended since #9, waiting on fetch (running since #8 by planner, attempt 2 after the retry of "
        "attempt 1 at #6)"
    )
    assert [step.text for step in why.steps] == ["opened as the root", "started", "suspended, waiting on fetch"]
    assert why.to_json()["steps"][2] == {
        "seq": 9, "type": "task.suspended/1", "actor": "planner", "command_id": None, "cause": None,
        "text": "suspended, waiting on fetch",
    }  # fmt: skip


def test_waits_are_followed_through_several_tasks(run: LiveRun) -> None:
    """Down the chain to the one that really waits, and what for."""
    run.tasks.open_root("root")
    run.tasks.start("root")
    child(run, "middle")
    child(run, "leaf", parent="middle")
    run.tasks.suspend("middle", wait="sub_agent_join", waiting_on=["leaf"])
    run.tasks.suspend("leaf", wait="approval", awaited="deploy?", due_ms=1_777_636_800_000)
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["middle"])
    answer = run.why("root").answer
    assert answer.startswith("root is suspended since #11, waiting on middle (suspended since #9, waiting on leaf (")
    assert "waiting for approval 'deploy?' until 2026-05-01 12:00:00 UTC" in answer


@pytest.mark.parametrize(
    ("drive", "says"),
    [
        (lambda tasks: None, "b is pending launch since #4 by planner"),
        (lambda tasks: tasks.publish_launch("b"), "b is starting since #5 by planner"),
        (lambda tasks: tasks.fail_launch("b", 1, reason="no room"), "because the launch of attempt 1 failed: no room"),
        (lambda tasks: tasks.cancel("b", actor="person"), "b is done (user_abort) since #5 by person"),
        (lambda tasks: tasks.cancel("root"), "b is done (user_abort) since #5 by planner"),
        (lambda tasks: tasks.cancel("b", cause="operator-7"), "because of operator-7"),
        (lambda tasks: tasks.cancel("b", cause=3), "because of #3"),
        (lambda tasks: tasks.grant_capabilities("b", ["shell"]), "b is pending launch since #4 by planner"),
    ],
)
def test_every_state_says_since_when_and_by_whom(run: LiveRun, drive: Any, says: str) -> None:
    """Also where it was another task's end, a person or an event that led there; upkeep moves nothing."""
    run.tasks.open_root("root")
    run.tasks.start("root")
    run.tasks.yield_task("root")
    run.tasks.spawn("b", parent="root")
    drive(run.tasks)
    assert says in run.why("b").answer


def test_a_task_that_goes_on_names_whose_end_woke_it(run: LiveRun) -> None:
    """The end of the last child that was awaited is the reason, and a step of the parent."""
    run.tasks.open_root("root")
    run.tasks.start("root")
    child(run, "a")
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["a"])
    run.tasks.finish("a", attempt=1)
    why = run.why("root")
    assert why.answer == "root is running since #7 by planner, because a, the last it waited on, ended"
    assert why.steps[-1].text == "resumed: a, the last child it waited on, ended"


def test_the_past_is_explained_as_it_was(store: Store, run: LiveRun) -> None:
    """At a position of the past nothing later is known, whatever happened since."""
    fill(run)
    for at in range(1, run.position + 1):
        view = run.at(at)
        why = why_task(store.journal, store.model, view, run.id, "root", until=at)
        assert view.tasks.get("root").lifecycle.replace("_", " ") in why.answer
        assert all(step.seq <= at for step in why.steps) and why.steps[0].seq == 1


def steps_are_events(run: LiveRun, why: Why) -> None:
    """Each step is an event of the journal, with its actor and cause, in order."""
    events = {event.seq: event for event in run.history()}
    seqs = [step.seq for step in why.steps]
    assert seqs == sorted(set(seqs)) and seqs
    for step in why.steps:
        event = events[step.seq]
        assert (step.type, step.actor, step.command_id, step.cause) == (
            event.type, event.actor, event.command_id, event.cause
        ) and step.text  # fmt: skip


def test_a_node_says_what_it_waits_for(store: Store, run: LiveRun) -> None:
    """A node that does not become ready names the node that holds it; one that failed, what became of it."""
    fill(run)
    held = why_node(*asked(store, run), "build", 1)
    assert held.answer.startswith("node 1 (test) is pending since #") and "0" in held.answer.partition(": ")[2]
    run.graphs.dispatch("build", 0, handle="h")
    run.graphs.fail("build", 0, "error", "it broke", attempt=1)
    failed = why_node(*asked(store, run), "build", 0)
    seq = next(event.seq for event in run.history(types=["node.failed"]))
    assert failed.answer == f"node 0 (compile) is failed since #{seq}, attempt 1 ended with error: it broke"
    assert failed.steps[-1].type == "graph.failed/1", "that the graph ended for it is told too"
    canceled = why_node(*asked(store, run), "build", 1)
    assert "is canceled" in canceled.answer and f"because of #{canceled.steps[-1].cause}" in canceled.answer
    for why in (held, failed, canceled):
        steps_are_events(run, why)
    assert held.subject == "node build/1"


def test_a_conversation_says_how_large_it_is_and_when_it_was_compacted(store: Store, run: LiveRun) -> None:
    """Within its window, over it, unknown; and the compaction that brought it back."""
    run.contexts.create("chat")
    assert why_context(*asked(store, run), "chat").answer.endswith("its window is unknown; never compacted")
    run.contexts.set_window("chat", 200)
    for turn in range(20):
        run.contexts.append("chat", {"role": "user", "text": f"question {turn} " + "x" * 40})
    over = why_context(*asked(store, run), "chat")
    assert "chat is over its window: about" in over.answer and "more than 0.7 of 200" in over.answer
    plan = run.contexts.plan_compaction("chat", keep_last=2)
    assert plan is not None
    run.contexts.apply_compaction("chat", plan, "short")
    within = why_context(*asked(store, run), "chat")
    assert f"is within its window: about {run.contexts.est_tokens('chat')} of 200" in within.answer
    assert within.answer.endswith(f"last compacted at #{run.position}")
    steps_are_events(run, within)
    assert within.subject == "context chat"


def test_a_worker_names_its_open_escalation(store: Store, run: LiveRun) -> None:
    """Which request is open, since when, after how many failures; and no longer when it is settled."""
    run.swarm.start(2, failure_threshold=2)
    for _ in range(2):
        run.swarm.complete_action(1, "look", success=False)
    raised = why_worker(*asked(store, run), 1)
    assert raised.answer.startswith("worker 1 is escalated since #") and "2 failures in a row" in raised.answer
    run.swarm.clear_escalation(1)
    settled = why_worker(*asked(store, run), 1)
    assert "since #" not in settled.answer and settled.subject == "worker 1"
    for why in (raised, settled):
        steps_are_events(run, why)


def test_what_is_not_there_cannot_be_explained(store: Store, run: LiveRun) -> None:
    """An unknown task, node, graph, conversation or worker is NotFound, before there is a swarm too."""
    fill(run)
    known = asked(store, run)
    for ask in (
        lambda: why_task(*known, "nobody"),
        lambda: why_node(*known, "build", 9),
        lambda: why_node(*known, "nothing", 0),
        lambda: why_context(*known, "nothing"),
        lambda: why_worker(*known, 9),
        lambda: why_worker(store.journal, store.model, run.at(1), run.id, 0, until=1),
    ):
        with pytest.raises(NotFound):
            ask()


def test_asking_why_appends_nothing(store: Store, run: LiveRun) -> None:
    """The journal and the state are as before."""
    fill(run)
    before = (list(store.journal.raw("r")), run.digest())
    run.why("root")
    why_worker(*asked(store, run), 0)
    assert (list(store.journal.raw("r")), run.digest()) == before
