"""The model: the projections that a run is folded into, what follows in one of them from an event of another
(reactions), and what an event needs of another (guards).

Reactions run in the commit of the event that they react to, so that a fact that touches two projections is one fact.
They must never refuse: what happened in one projection happened, whatever another one makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.core.catalog import Wire
from engine.core.codec import decode
from engine.core.decider import Moment
from engine.core.model import Model
from projections.contexts import PROJECTION as CONTEXTS
from projections.contexts import guard_attach, settle_bound_items, settle_on_bind
from projections.contexts.events import IMPORTED, TASK_ATTACHED
from projections.contexts.reactions import PLAN_BINDINGS_CHANGED
from projections.graph import PROJECTION as GRAPH
from projections.graph import TaskEnd, follow_ended, follow_task, guard_dispatch, guard_import
from projections.graph.events import GRAPH_RECOVERED, NODE_DISPATCHED, NODE_IMPORTED
from projections.swarm import PROJECTION as SWARM
from projections.tasks import PROJECTION as TASKS
from projections.tasks.events import FINISHED, LAUNCH_ACKNOWLEDGED, LAUNCH_FAILED, STARTED

__all__ = ["MODEL"]


def _task_started(states: Mapping[str, Any], wire: Wire, moment: Moment) -> Sequence[Wire]:
    """A graph attempt that is carried by the task has begun to run."""
    return follow_task(states, wire[2], "started", True, moment)


def _task_ended(states: Mapping[str, Any], wire: Wire, moment: Moment) -> Sequence[Wire]:
    """A graph attempt that is carried by the task ends as the task has."""
    task_id = wire[2]
    if task_id not in states["graph"].by_task:
        return ()
    end = _end_of(states, task_id)
    assert end is not None
    return follow_task(states, task_id, end.what, end.ok, moment, output=end.output, error=end.error)


def _graph_recovered(states: Mapping[str, Any], wire: Wire, moment: Moment) -> Sequence[Wire]:
    """In a run that was cut between the end of a task and what follows from it, it follows now."""
    return follow_ended(states, wire[2], _end_of, moment)


def _items_settle(states: Mapping[str, Any], wire: Wire, moment: Moment) -> Sequence[Wire]:
    """Plan items bound to a task settle when the task is done."""
    if wire[2] not in states["contexts"].bound:
        return ()
    ok = wire[0] == FINISHED.tag and wire[3] == "completed"
    return settle_bound_items(states, wire[2], ok, moment)


def _outcome_of(states: Mapping[str, Any], task_id: str) -> bool | None:
    """Return whether a task ended well; None when it is not done, or not known."""
    record = states["tasks"].tasks.get(task_id)
    return None if record is None or record.lifecycle != "done" else record.termination == "completed"


def _end_of(states: Mapping[str, Any], task_id: str) -> TaskEnd | None:
    """Return how a task ended, for the node that it carries; None when it is not done, or not known."""
    ok = _outcome_of(states, task_id)
    if ok is None:
        return None
    record = states["tasks"].tasks.rows[task_id]
    if record.failure is not None:
        return TaskEnd("launch_failed", False, error=record.failure or f"task {task_id} was not launched")
    if not ok:
        return TaskEnd("finished", False, error=f"task {task_id} ended: {record.termination}")
    return TaskEnd("finished", True, output=_final_text(None if record.result is None else decode(record.result)))


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
        FINISHED.name: (_items_settle, _task_ended),
        LAUNCH_FAILED.name: (_items_settle, _task_ended),
        GRAPH_RECOVERED.name: (_graph_recovered,),
        **{name: (settle_on_bind(_outcome_of),) for name in PLAN_BINDINGS_CHANGED},
    },
    guards={
        **dict.fromkeys((TASK_ATTACHED.name, IMPORTED.name), (guard_attach,)),
        NODE_DISPATCHED.name: (guard_dispatch,),
        NODE_IMPORTED.name: (guard_import,),
    },
)
"""What ``open_store`` uses unless it is given another."""
