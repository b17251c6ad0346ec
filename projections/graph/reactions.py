"""Following tasks: an attempt may name a task of the run as its handle, and then shares its fate in the same commit.
This must never decide anything about the task itself.

What each step of the task does to the node that it carries:

- started: the attempt's ``started_ms`` becomes the time at which the task began to run, once; nothing else.
- finished well: the node is completed, with the task's output, the task as ``agent_id``, and the time since it began.
- finished otherwise: the node has failed with cause ``error``.
- launch failed: the node has failed with cause ``spawn``.

A task that carries no live attempt (its node was canceled, or ended by number) is followed by nothing, and a task's
step is never refused for what its graph is. That an attempt follows a task which exists and can still end is the
guards' to see. Only a run that was cut inside a commit holds live attempts of tasks that are done;
:func:`follow_ended` ends them when the graph is recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from engine.core.catalog import Wire
from engine.core.decider import Moment
from engine.core.errors import Refused
from projections.graph import steps
from projections.graph.decider import result_record
from projections.graph.scratch import Scratch
from projections.graph.state import GraphState, TaskKey

__all__ = ["TaskEnd", "TaskStep", "follow_ended", "follow_task", "guard_dispatch", "guard_import"]

TaskStep: TypeAlias = Literal["started", "finished", "launch_failed"]


class TaskEnd(NamedTuple):
    """How a task ended, as far as the node that it carries is concerned."""

    what: TaskStep
    ok: bool
    output: str | None = None
    error: str | None = None


def follow_task(
    states: Mapping[str, Any],
    task_id: str,
    what: TaskStep,
    ok: bool,
    moment: Moment,
    *,
    output: str | None = None,
    error: str | None = None,
) -> list[Wire]:
    """Return the events of the graph that follow from a step of a task; [] when the task carries no live attempt.

    ``states`` maps projection names to states, as a reaction gets them. Costs one look-up for any other task.
    """
    state: GraphState = states["graph"]
    carried = state.by_task.get(task_id)
    if carried is None:
        return []
    plan = Scratch(state, moment)
    if _is_open(plan, carried[0]):
        if what == "started":
            steps.attempt_started(plan, *carried)
        else:
            _end(plan, carried, task_id, TaskEnd(what, ok, output, error))
    return plan.events


def follow_ended(
    states: Mapping[str, Any], graph: str, end_of: Callable[[Mapping[str, Any], str], TaskEnd | None], moment: Moment
) -> list[Wire]:
    """Return the events that end every live attempt of a graph whose task has ended already.

    ``end_of(states, task_id)`` tells how, None while it has not. Costs what the running nodes cost.
    """
    state: GraphState = states["graph"]
    plan = Scratch(state, moment)
    for number in sorted(state.index(graph).members["running"]) if _is_open(plan, graph) else ():
        progress = plan.at(graph, number)
        attempt = plan.attempts.get((graph, number, progress.attempts))
        if progress.status != "running" or attempt is None or attempt.task is None:
            continue
        end = end_of(states, attempt.task)
        if end is not None and _is_open(plan, graph):
            _end(plan, (graph, number, progress.attempts), attempt.task, end)
    return plan.events


def _is_open(plan: Scratch, graph: str) -> bool:
    """Whether nodes of the graph can move; one cut inside its creation or its end waits for its own commands."""
    row = plan.graph(graph)
    return not row.missing and row.status in ("running", "paused")


def _end(plan: Scratch, carried: TaskKey, task_id: str, end: TaskEnd) -> None:
    """End an attempt as its task has ended."""
    if end.ok:
        result = result_record(plan, plan.attempts.get(carried), end.output or "") | {"agent_id": task_id}
        steps.complete(plan, *carried, result)
    else:
        steps.fail(plan, *carried, "spawn" if end.what == "launch_failed" else "error", end.error)


def guard_dispatch(states: Mapping[str, Any], wire: Wire) -> None:
    """Refuse an attempt that follows a task nobody knows, or one whose end has come already: it would run for ever.

    A guard of ``node.dispatched``, whether we decide it or record it; a run without any task is not guarded.
    """
    _guard(states, wire, [wire[6]])


def guard_import(states: Mapping[str, Any], wire: Wire) -> None:
    """Refuse an imported node with a live attempt that could not have been dispatched here. A guard of
    ``node.imported``."""
    live = (attempt["handle"] for attempt in wire[13] if attempt["outcome"] is None)
    _guard(states, wire, (handle["task"] for handle in live if isinstance(handle, dict)))


def _guard(states: Mapping[str, Any], wire: Wire, followed: Iterable[str | None]) -> None:
    table = (
        next((table for table in states["tasks"].tables if table.name == "tasks"), None) if "tasks" in states else ()
    )
    if not table:
        return
    for task_id in followed:
        record = None if task_id is None else table.get(task_id)
        if task_id is not None and (record is None or record.lifecycle == "done"):
            problem = "there is no task" if record is None else "the end has come already of task"
            raise Refused(
                f"{problem} {task_id!r} for node {wire[3]} of graph {wire[2]!r} to follow",
                hint="spawn a task for the attempt first, or dispatch it under a handle of your own",
                graph=wire[2],
                node=wire[3],
                task=task_id,
            )
