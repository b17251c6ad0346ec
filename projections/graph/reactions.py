"""Following tasks: an attempt may name a task of the run as its handle, and then shares its fate in the same commit.
This must never decide anything about the task itself.

What each step of the task does to the node that it carries:

- started: the attempt's ``started_ms`` becomes the time at which the task began to run, once; nothing else.
- finished well: the node is completed, with the task's output, the task as ``agent_id``, and the time since it began.
- finished otherwise: the node has failed with cause ``error``.
- launch failed: the node has failed with cause ``spawn``.

A task that carries no live attempt (its node was canceled, or ended by number) is followed by nothing. That an attempt
follows a task which exists and can still end is :func:`guard_dispatch`'s to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from engine.core.catalog import Wire
from engine.core.decider import Moment
from engine.core.errors import Refused
from projections.graph import steps
from projections.graph.decider import result_record
from projections.graph.scratch import Scratch
from projections.graph.state import GraphState

__all__ = ["TaskStep", "follow_task", "guard_dispatch"]

TaskStep: TypeAlias = Literal["started", "finished", "launch_failed"]


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
    graph, number, attempt = carried
    plan = Scratch(state, moment)
    if what == "started":
        steps.attempt_started(plan, graph, number, attempt)
    elif what == "finished" and ok:
        row = plan.attempts.get(carried)
        result = result_record(plan, row, output or "") | {"agent_id": task_id}
        steps.complete(plan, graph, number, attempt, result)
    else:
        cause = "spawn" if what == "launch_failed" else "error"
        steps.fail(plan, graph, number, attempt, cause, error)
    return plan.events


def guard_dispatch(states: Mapping[str, Any], wire: Wire) -> None:
    """Refuse an attempt that follows a task nobody knows, or one whose end has come already: it would run for ever.

    A guard of ``node.dispatched``, whether we decide it or record it; a run without any task is not guarded.
    """
    task_id = wire[6]
    if task_id is None or "tasks" not in states:
        return
    table = next((table for table in states["tasks"].tables if table.name == "tasks"), None)
    if not table:
        return
    record = table.get(task_id)
    if record is None or record.lifecycle == "done":
        problem = "there is no task" if record is None else "the end has come already of task"
        raise Refused(
            f"{problem} {task_id!r} for node {wire[3]} of graph {wire[2]!r} to follow",
            hint="spawn a task for the attempt first, or dispatch it under a handle of your own",
            graph=wire[2],
            node=wire[3],
            task=task_id,
        )
