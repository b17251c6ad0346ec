"""What other runtimes recorded can be said in these events: the shapes of the recorded runs, fact by fact."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import Refused
from tests.projections.tasks.tasks_harness import TaskRun, check_laws

NODE = {"role": "custom", "isolation": "shared", "context_inheritance": "none", "capability_ids": []}


def spawn_and_publish(run: TaskRun, *tasks: str) -> None:
    for task in tasks:
        run.ingest("task.spawned", task_id=task, parent_task_id="root", launch_token=f"op:launch:{task}", **NODE)
        run.ingest("task.launch_published", task_id=task, attempt=1)


def complete(run: TaskRun, task: str, termination: str = "completed") -> Any:
    result = {
        "termination": termination,
        "final_message": {"role": "assistant", "content": "out"},
        "turns_used": 0,
        "total_tokens_used": 0,
    }
    return run.ingest("task.finished", task_id=task, termination=termination, attempt=1, result=result)


def lives(run: TaskRun) -> dict[str, tuple[Any, ...]]:
    return {
        task: (row["lifecycle"], row["termination"], row["wait"], row["waiting_on"]) for task, row in run.rows.items()
    }


RUNNING = ("running", None, None, [])
STARTING = ("starting", None, None, [])


def done(termination: str) -> tuple[Any, ...]:
    return ("done", termination, None, [])


def join(*children: str) -> tuple[Any, ...]:
    return ("suspended", None, "sub_agent_join", list(children))


def workflow() -> TaskRun:
    """A workflow's start: two nodes launched, the root suspended on both straight from ready."""
    run = TaskRun()
    run.ingest("task.root_opened", task_id="root", capability_ids=[])
    spawn_and_publish(run, "n0", "n1")
    run.ingest("task.suspended", task_id="root", wait="sub_agent_join", waiting_on=["n0", "n1"])
    assert lives(run) == {"root": join("n0", "n1"), "n0": STARTING, "n1": STARTING}
    return run


def test_a_workflow_whose_join_grows() -> None:
    """A node finishes and the next is spawned while the root waits; a failed node and the end of the run follow."""
    run = workflow()
    for node in ("n0", "n1"):
        run.ingest("task.launch_acknowledged", task_id=node, attempt=1)
    complete(run, "n0")
    spawn_and_publish(run, "n2")
    run.ingest("task.join_extended", task_id="root", waiting_on=["n2"])
    assert lives(run) == {"root": join("n1", "n2"), "n0": done("completed"), "n1": RUNNING, "n2": STARTING}
    run.ingest("task.launch_acknowledged", task_id="n2", attempt=1)
    complete(run, "n1", "error")
    assert lives(run)["root"] == join("n2")
    assert complete(run, "n2").events[0].data["wakes"] == "root"
    run.ingest("task.finished", task_id="root", termination="completed")
    assert lives(run) == {
        "root": done("completed"), "n0": done("completed"), "n1": done("error"), "n2": done("completed")
    }  # fmt: skip
    check_laws(run)


def test_a_workflow_whose_last_node_brings_another() -> None:
    """When the last awaited node finishes and brings a new one, the root runs and waits again."""
    run = workflow()
    for node in ("n0", "n1"):
        run.ingest("task.launch_acknowledged", task_id=node, attempt=1)
        complete(run, node)
    assert lives(run)["root"] == RUNNING
    spawn_and_publish(run, "n2")
    run.ingest("task.suspended", task_id="root", wait="sub_agent_join", waiting_on=["n2"])
    assert lives(run)["root"] == join("n2")
    check_laws(run)


def test_a_workflow_of_which_one_node_never_launches() -> None:
    """A node that failed to launch is done with an error and without a result; the root waits for the other."""
    run = workflow()
    run.ingest("task.launch_acknowledged", task_id="n0", attempt=1)
    run.ingest("task.launch_failed", task_id="n1", attempt=1)
    assert lives(run) == {"root": join("n0"), "n0": RUNNING, "n1": done("error")}
    assert run.rows["n1"]["process"]["join_result"] is None
    complete(run, "n0")
    run.ingest("task.finished", task_id="root", termination="completed")
    check_laws(run)


def test_a_preempted_workflow() -> None:
    """Both nodes are preempted with user_abort and no result; the root runs again and completes."""
    run = workflow()
    for node in ("n0", "n1"):
        run.ingest("task.launch_acknowledged", task_id=node, attempt=1)
    for node in ("n0", "n1"):
        run.ingest("task.finished", task_id=node, termination="user_abort", attempt=1)
    assert lives(run) == {"root": RUNNING, "n0": done("user_abort"), "n1": done("user_abort")}
    run.ingest("task.finished", task_id="root", termination="completed")
    check_laws(run)


def test_an_agent_that_asks_for_approval() -> None:
    """The root runs, waits for an approval, goes on when it is resolved, uses tokens and completes."""
    run = TaskRun()
    run.ingest("task.root_opened", task_id="root", capability_ids=[])
    run.ingest("task.started", task_id="root")
    run.ingest("task.suspended", task_id="root", wait="approval", waiting_on=[])
    run.ingest("task.wait_ended", task_id="root", how="denied", payload={"denied_call_ids": ["c1"]})
    run.ingest("task.usage_reported", task_id="root", tokens=5, turns=1)
    run.ingest("task.finished", task_id="root", termination="max_turns")
    assert lives(run) == {"root": done("max_turns")}
    check_laws(run)


@pytest.mark.parametrize("attempt", [None, 2])
def test_a_fact_that_names_no_live_attempt_is_not_recorded(attempt: int | None) -> None:
    """A recorded completion of another attempt, or of none, is refused and nothing is written."""
    run = workflow()
    before = run.state.bytes()
    with pytest.raises(Refused):
        run.ingest("task.finished", task_id="n0", termination="completed", attempt=attempt)
    assert run.state.bytes() == before


def test_a_recorded_fact_twice_is_recorded_once() -> None:
    """Every fact of a recording, given a second time right after the first, adds nothing or is refused."""
    run = workflow()
    run.ingest("task.launch_acknowledged", task_id="n0", attempt=1)
    complete(run, "n0")
    run.ingest("task.launch_failed", task_id="n1", attempt=1)
    run.ingest("task.usage_reported", task_id="root", tokens=5, turns=1)
    facts = [(run.state.model.catalog.by_tag[wire[0]], wire) for wire in run.wires]
    again = TaskRun()
    for event_type, wire in facts:
        again.ingest(event_type.name, **event_type.data(wire))
        before = again.state.bytes()
        if event_type.name != "task.usage_reported":  # usage adds up: only a command id can tell a repeat
            assert not again.ingest(event_type.name, **event_type.data(wire)).changed
        assert again.state.bytes() == before
    assert again.wires == run.wires
