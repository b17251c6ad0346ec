"""Where contexts meet tasks: a plan item bound to a task settles when that task is done, and a conversation is attached
only to a task that is there. It must never know what a task is beyond its id.

The model that combines the projections wires these; nothing here imports another projection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from engine.core.catalog import Wire
from engine.core.decider import Moment, Reaction
from engine.core.errors import Refused
from projections.contexts.events import IMPORTED, PLAN_CREATED, PLAN_ITEMS_SETTLED, PLAN_UPDATED, TASK_ATTACHED
from projections.contexts.plan import Binding
from projections.contexts.state import ContextsState, waiting_tasks

__all__ = ["PLAN_BINDINGS_CHANGED", "guard_attach", "settle_bound_items", "settle_on_bind"]

PLAN_BINDINGS_CHANGED: Final = (PLAN_CREATED.name, PLAN_UPDATED.name, IMPORTED.name)
"""The events after which a plan may be bound to a task that is already done; :func:`settle_on_bind` reacts to them."""


def settle_bound_items(
    states: Mapping[str, Any], task_id: str, ok: bool, moment: Moment, note: str | None = None
) -> list[Wire]:
    """Return the events that settle every open plan item bound to a task that has come to its end.

    Conversations come in the order of their ids, so that the order never depends on how an index was built.
    """
    state: ContextsState = states["contexts"]
    return [_settled(state, context, task_id, ok, note, moment) for context in sorted(state.bound.get(task_id, ()))]


def settle_on_bind(outcome_of: Callable[[Mapping[str, Any], str], bool | None]) -> Reaction:
    """Return a reaction for PLAN_BINDINGS_CHANGED: items of that plan bound to a task that is already done settle at
    once.

    ``outcome_of(states, task_id)`` tells whether it went well, or None when it is not done or not known.
    """

    def react(states: Mapping[str, Any], wire: Wire, moment: Moment) -> Sequence[Wire]:
        state: ContextsState = states["contexts"]
        context = wire[2]
        known = ((task_id, outcome_of(states, task_id)) for task_id in sorted(waiting_tasks(state.plan(context))))
        return [_settled(state, context, task_id, ok, None, moment) for task_id, ok in known if ok is not None]

    return react


def _settled(state: ContextsState, context: str, task_id: str, ok: bool, note: str | None, moment: Moment) -> Wire:
    ids = state.plans.rows[context].value.unsettled(Binding("task", task_id))
    return PLAN_ITEMS_SETTLED.wire(context, moment.at_ms, list(ids), ok, note)


def guard_attach(states: Mapping[str, Any], wire: Wire) -> None:
    """Refuse to attach a conversation to an unknown task when the run has a task table, that is, any task at all.

    A guard of ``context.task_attached`` and ``context.imported``, whether we decide it or record it. Raises Refused
    with rule unknown_task.
    """
    task_id = wire[_TASK_AT[wire[0]]]
    tables = states["tasks"].tables if "tasks" in states else ()
    table = next((table for table in tables if table.name == "tasks"), ())
    if task_id is not None and len(table) and task_id not in table:
        raise Refused(
            f"there is no task {task_id!r} to attach the conversation to",
            hint="spawn the task first, or look at its id",
            rule="unknown_task",
            task=task_id,
        )


_TASK_AT: Final = {event_type.tag: 2 + event_type.names.index("task") for event_type in (TASK_ATTACHED, IMPORTED)}
