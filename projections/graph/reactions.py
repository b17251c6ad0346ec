"""Following tasks: an attempt may name a task of the run as its handle, and then shares its fate in the same commit.
This must never decide anything about the task itself.

What each step of the task does to the node that it carries:

- started: the attempt's ``started_ms`` becomes the time at which the task began to run, once; nothing else.
- finished well: the node is completed, with the task's output, the task as ``agent_id``, and the time since it began.
- finished otherwise: the node has failed with cause ``error``.
- launch failed: the node has failed with cause ``spawn``.

A task that carries no live attempt (its node was canceled, or ended by number) is followed by nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from engine.core.catalog import Wire
from engine.core.decider import Moment
from projections.graph import steps
from projections.graph.decider import result_record
from projections.graph.scratch import Scratch
from projections.graph.state import GraphState

__all__ = ["TaskStep", "follow_task"]

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
