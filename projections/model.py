"""The model: the projections that a run is folded into, and what follows in one of them from an event of another.

Reactions run in the commit of the event that they react to, so that a fact that touches two projections is one fact.
They
must never change the projection that the event came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.core.catalog import Wire
from engine.core.decider import Model, Moment
from projections.contexts import PROJECTION as CONTEXTS
from projections.contexts import guard_attach, settle_bound_items, settle_on_bind
from projections.contexts.events import TASK_ATTACHED
from projections.contexts.reactions import PLAN_BINDINGS_CHANGED
from projections.graph import PROJECTION as GRAPH
from projections.graph.events import NODE_DISPATCHED
from projections.graph.reactions import follow_task, guard_dispatch
from projections.swarm import PROJECTION as SWARM
from projections.tasks import PROJECTION as TASKS
from projections.tasks.events import FINISHED, LAUNCH_ACKNOWLEDGED, LAUNCH_FAILED, STARTED

__all__ = ["MODEL"]


def _task_started(states: Mapping[str, Any], wire: Wire, moment: Moment) -> Sequence[Wire]:
    """A graph attempt that is carried by the task has begun to run."""
    return follow_task(states, wire[2], "started", True, moment)


def _task_finished(states: Mapping[str, Any], wire: Wire, moment: Moment) -> Sequence[Wire]:
    """A graph attempt that is carried by the task has ended as the task has."""
    _, _, task_id, termination, _, result, *_ = wire
    ok = termination == "completed"
    error = None if ok else f"task {task_id} ended: {termination}"
    return follow_task(states, task_id, "finished", ok, moment, output=_final_text(result), error=error)


def _launch_failed(states: Mapping[str, Any], wire: Wire, moment: Moment) -> Sequence[Wire]:
    """A graph attempt whose task never ran has failed."""
    error = wire[4] or f"task {wire[2]} was not launched"
    return follow_task(states, wire[2], "launch_failed", False, moment, error=error)


def _items_settle(states: Mapping[str, Any], wire: Wire, moment: Moment) -> Sequence[Wire]:
    """Plan items bound to a task settle when the task is done."""
    ok = wire[0] == FINISHED.tag and wire[3] == "completed"
    return settle_bound_items(states, wire[2], ok, moment)


def _outcome_of(states: Mapping[str, Any], task_id: str) -> bool | None:
    """Return whether a task ended well; None when it is not done, or not known."""
    record = states["tasks"].tasks.get(task_id)
    return None if record is None or record.lifecycle != "done" else record.termination == "completed"


def _final_text(result: Any) -> str:
    """Return the text of a task's final message, "" when there is none."""
    message = result.get("final_message") if isinstance(result, dict) else None
    content = message.get("content") if isinstance(message, dict) else message
    return content if isinstance(content, str) else ""


MODEL: Final = Model(
    (TASKS, CONTEXTS, GRAPH, SWARM),
    reactions={
        LAUNCH_ACKNOWLEDGED.name: (_task_started,),
        STARTED.name: (_task_started,),
        FINISHED.name: (_items_settle, _task_finished),
        LAUNCH_FAILED.name: (_items_settle, _launch_failed),
        **{name: (settle_on_bind(_outcome_of),) for name in PLAN_BINDINGS_CHANGED},
    },
    guards={TASK_ATTACHED.name: (guard_attach,), NODE_DISPATCHED.name: (guard_dispatch,)},
)
"""What ``open_store`` uses unless it is given another."""
