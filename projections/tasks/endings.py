"""How tasks end together: what becomes of the live children of a task that is about to be done. It must never touch a
task outside the subtree, nor leave the table invalid between two of its events.
"""

from __future__ import annotations

from typing import Final

from engine.core.catalog import Wire
from engine.core.decider import Moment
from projections.tasks.commands import Cancel, FailLaunch, Finish, OnChildren
from projections.tasks.events import DETACHED, FINISHED, LAUNCH_FAILED
from projections.tasks.guards import heir_of, illegal, repeats_end
from projections.tasks.record import TaskRecord
from projections.tasks.rules import finished, launch_failed
from projections.tasks.state import TaskTable
from projections.tasks.transitions import DONE

__all__ = ["cancel", "fail_launch", "finish"]

CANCELLED: Final = "user_abort"


def finish(state: TaskTable, command: Finish, moment: Moment) -> list[Wire]:
    """Return the end of a task, after the ends of its children or their new parents when the command says so."""
    wire = FINISHED.wire(command.task_id, command.termination, command.attempt, command.result, None, None)
    answered = command.on_children is not None
    end = finished(state, wire, moment, children_gone=answered)
    return _children(state, command.task_id, command.on_children) + end if end else []


def fail_launch(state: TaskTable, command: FailLaunch, moment: Moment) -> list[Wire]:
    """Return the end of a task that never ran, and what becomes of its children as for :func:`finish`."""
    wire = LAUNCH_FAILED.wire(command.task_id, command.attempt, command.reason, None)
    answered = command.on_children is not None
    end = launch_failed(state, wire, moment, children_gone=answered)
    return _children(state, command.task_id, command.on_children) + end if end else []


def cancel(state: TaskTable, command: Cancel, moment: Moment) -> list[Wire]:
    """Return the ends of a task and of everything live under it, deepest first."""
    record = state.find(command.task_id)
    if record.lifecycle == DONE:
        if repeats_end(record, CANCELLED, record.attempt, None):
            return []
        illegal(command.task_id, record, "task.finished")
    wire = FINISHED.wire(command.task_id, CANCELLED, record.attempt, None, None, None)
    return _cancelled(state, command.task_id) + finished(state, wire, moment, children_gone=True)


def _children(state: TaskTable, task_id: str, on_children: OnChildren | None) -> list[Wire]:
    """Return what becomes of the live children of a task before it is done."""
    if on_children is None or not state.live_children.get(task_id):
        return []
    return _cancelled(state, task_id) if on_children == "cancel_children" else _detached(state, task_id)


def _cancelled(state: TaskTable, task_id: str) -> list[Wire]:
    """Return the ends of all live tasks under a task, deepest first, those of one depth in order of creation.

    Each names the task whose end brought it about: an event's cause can only point back, and the deepest come first.
    """
    levels: list[list[str]] = []
    level = [task_id]
    while level := state.in_creation_order(child for parent in level for child in state.live_children.get(parent, ())):
        levels.append(level)
    left: dict[str, int] = {}
    ends = []
    for child in (child for level in reversed(levels) for child in level):
        record = state.find(child)
        ends.append(FINISHED.wire(child, CANCELLED, record.attempt, None, _leave(state, record, left), task_id))
    return ends


def _detached(state: TaskTable, task_id: str) -> list[Wire]:
    """Return the moves of a task's live children under its own parent, in order of creation. Raises Refused for the
    root."""
    left: dict[str, int] = {}
    moves = []
    for child in state.in_creation_order(state.live_children[task_id]):
        record = state.find(child)
        moves.append(DETACHED.wire(child, heir_of(state, record), _leave(state, record, left)))
    return moves


def _leave(state: TaskTable, record: TaskRecord, left: dict[str, int]) -> str | None:
    """Return the parent that runs again when this child leaves, given how many of each join the earlier ones left."""
    parent = record.parent
    if record.join_place is None or parent is None:
        return None
    left[parent] = left.get(parent, len(state.joins[parent])) - 1
    return parent if left[parent] == 0 else None
