"""The life cycle: every pair of lifecycle and event, read from the tables that the code reads."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import IllegalTransition, NotFound, Refused
from engine.core.transition import allowed, mermaid
from projections.tasks.events import EVENTS
from projections.tasks.transitions import (
    DIAGRAM,
    LIFECYCLE,
    LIFECYCLES,
    REPEATS,
    SOURCES,
    TERMINATIONS,
    UPKEEP,
    WAIT_ENDS,
    WOKEN,
)
from tests.projections.tasks.tasks_harness import TaskRun, check_laws, family, launch, task_in

FACTS: dict[str, dict[str, Any]] = {
    "task.launch_published": {"attempt": 1},
    "task.launch_acknowledged": {"attempt": 1},
    "task.launch_failed": {"attempt": 1, "reason": "full"},
    "task.started": {},
    "task.yielded": {},
    "task.suspended": {"wait": "approval", "waiting_on": []},
    "task.wait_ended": {"how": "delivered"},
    "task.finished": {"termination": "completed", "attempt": 1},
    "task.relaunched": {"mode": "retry"},
    "task.usage_reported": {"tokens": 3, "turns": 1},
    "task.capabilities_granted": {"capability_ids": ["read"]},
    "task.capabilities_revoked": {"capability_ids": ["held"]},
}
STEPS = {(step.source, step.event): step.target for step in LIFECYCLE + UPKEEP}
PAIRS = [(lifecycle, event) for lifecycle in LIFECYCLES for event in FACTS]


def prepared(lifecycle: str) -> TaskRun:
    """A run whose task ``t`` is in the lifecycle and holds one capability."""
    run = task_in("running") if lifecycle == "done" else task_in(lifecycle)
    run.tasks.grant_capabilities("t", ["held"])
    if lifecycle == "done":
        run.tasks.finish("t", termination="error", attempt=1)
    return run


@pytest.mark.parametrize(("lifecycle", "event"), [pair for pair in PAIRS if pair in STEPS])
def test_a_legal_event_takes_a_task_where_the_table_says(lifecycle: str, event: str) -> None:
    """Every step of the table is taken, and leads to its target."""
    run = prepared(lifecycle)
    outcome = run.ingest(event, task_id="t", **FACTS[event])
    assert [happened.type for happened in outcome.events] == [f"{event}/1"]
    assert run.rows["t"]["lifecycle"] == STEPS[lifecycle, event]
    check_laws(run)


@pytest.mark.parametrize(("lifecycle", "event"), [pair for pair in PAIRS if pair not in STEPS])
def test_an_event_that_is_not_in_the_table_changes_nothing(lifecycle: str, event: str) -> None:
    """An event outside the table is refused, or adds nothing where it repeats what already is; the bytes stay."""
    run = prepared(lifecycle)
    before = run.state.bytes()
    if REPEATS.get(event) == lifecycle:
        assert not run.ingest(event, task_id="t", **FACTS[event]).changed
    else:
        with pytest.raises(IllegalTransition) as refused:
            run.ingest(event, task_id="t", **FACTS[event])
        assert refused.value.details["state"] == lifecycle
        assert refused.value.details["event"] == event
        assert refused.value.details["allowed"] == allowed(LIFECYCLE + UPKEEP, lifecycle)
    assert run.state.bytes() == before


@pytest.mark.parametrize("event", sorted(FACTS))
def test_an_event_about_an_unknown_task_is_refused(event: str) -> None:
    """Every event about a task that does not exist is NotFound, and writes nothing."""
    run = task_in("running")
    before = run.state.bytes()
    with pytest.raises(NotFound):
        run.ingest(event, task_id="ghost", **FACTS[event])
    assert run.state.bytes() == before


def test_every_event_has_a_place_in_the_tables() -> None:
    """Events, tables and compiled sources name the same things: none is missing and none is left over."""
    assert set(SOURCES) == {event.name for event in EVENTS}
    assert {step.target for step in LIFECYCLE} == set(LIFECYCLES)
    assert not any(step.source == "done" for step in LIFECYCLE + UPKEEP)
    assert {step.event for step in WOKEN} <= set(SOURCES)


@pytest.mark.parametrize(("wait", "how"), [(wait, how) for wait, ends in WAIT_ENDS.items() for how in ends])
def test_a_wait_ends_in_each_of_its_ways(wait: str, how: str) -> None:
    """Each way in which a wait may end resumes the task and clears the wait."""
    run = task_in("running")
    run.tasks.suspend("t", wait=wait)
    assert run.rows["t"]["wait"] == wait
    run.ingest("task.wait_ended", task_id="t", how=how)
    assert (run.rows["t"]["lifecycle"], run.rows["t"]["wait"]) == ("running", None)
    check_laws(run)


@pytest.mark.parametrize(
    ("wait", "how"),
    [
        (wait, how)
        for wait, ends in WAIT_ENDS.items()
        for how in ("approved", "denied", "elapsed", "delivered", "timed_out")
        if how not in ends
    ],
)
def test_a_wait_does_not_end_in_another_way(wait: str, how: str) -> None:
    """A wait is never ended by something it does not wait for; a join by nothing but its children."""
    run = family()
    run.tasks.suspend("root", wait=wait, waiting_on=["a"] if wait == "sub_agent_join" else [])
    before = run.state.bytes()
    with pytest.raises(Refused):
        run.ingest("task.wait_ended", task_id="root", how=how)
    assert run.state.bytes() == before


@pytest.mark.parametrize("termination", TERMINATIONS)
def test_done_keeps_why(termination: str) -> None:
    """Each termination is kept on the row, and the task stays done with it."""
    run = task_in("running")
    run.tasks.finish("t", termination=termination, attempt=1)
    assert run.rows["t"]["termination"] == termination
    with pytest.raises(IllegalTransition):
        run.tasks.relaunch("t", mode="retry")
    check_laws(run)


def test_an_acknowledgement_is_the_only_way_a_child_starts_to_run() -> None:
    """A spawned child can be neither started nor resumed before its launch is published and acknowledged."""
    run = task_in("pending_launch")
    for command in (run.tasks.start, run.tasks.resume, run.tasks.yield_task):
        with pytest.raises(IllegalTransition):
            command("t")
    with pytest.raises(IllegalTransition):
        run.tasks.acknowledge_launch("t", 1)
    launch(run, "t")
    assert run.rows["t"]["lifecycle"] == "running"


def test_the_diagram_shows_every_step() -> None:
    """The Mermaid diagram is drawn from the table: every step and every state is in it."""
    text = mermaid(DIAGRAM)
    for step in DIAGRAM:
        assert f"{step.source or '[*]'} --> {step.target}: " in text
    assert text.startswith("stateDiagram-v2\n") and text.endswith("done --> [*]\n")
