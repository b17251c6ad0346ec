"""The fold: what each event does to the task table. It must never refuse, decide, read a clock, or share a list with
the event; restore and the live path both come here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from engine.core.catalog import Wire
from engine.core.codec import encode
from engine.core.decider import Evolve
from projections.tasks.record import TaskRecord
from projections.tasks.state import TaskTable
from projections.tasks.transitions import (
    DONE,
    INHERITANCES,
    ISOLATIONS,
    PENDING_LAUNCH,
    READY,
    ROLES,
    RUNNING,
    STARTING,
    SUSPENDED,
    TERMINATIONS,
    WAITS,
)

__all__ = ["EVOLVE"]

_LABEL: Final[Mapping[str, str]] = {
    label: label for label in (*ROLES, *ISOLATIONS, *INHERITANCES, *TERMINATIONS, *WAITS)
}
"""One string object a label, instead of one an event."""


def root_opened(state: TaskTable, wire: Wire, seq: int) -> None:
    _, _, task_id, capability_ids = wire
    _add(state, task_id, TaskRecord(len(state.tasks.rows), None, READY, [*capability_ids]))


def spawned(state: TaskTable, wire: Wire, seq: int) -> None:
    _, _, task_id, parent, role, isolation, inheritance, capability_ids, attempt, token = wire
    record = TaskRecord(
        len(state.tasks.rows),
        parent,
        PENDING_LAUNCH,
        [*capability_ids],
        _LABEL[role],
        _LABEL[isolation],
        _LABEL[inheritance],
        token,
        attempt,
    )
    _add(state, task_id, record)


def launch_published(state: TaskTable, wire: Wire, seq: int) -> None:
    state.edit(wire[2]).lifecycle = STARTING


def launch_acknowledged(state: TaskTable, wire: Wire, seq: int) -> None:
    state.edit(wire[2]).lifecycle = RUNNING


def launch_failed(state: TaskTable, wire: Wire, seq: int) -> None:
    _, _, task_id, _, reason, wakes = wire
    record = state.edit(task_id)
    record.failure = reason
    _end(state, task_id, record, "error", wakes)


def started(state: TaskTable, wire: Wire, seq: int) -> None:
    state.edit(wire[2]).lifecycle = RUNNING


def yielded(state: TaskTable, wire: Wire, seq: int) -> None:
    state.edit(wire[2]).lifecycle = READY


def suspended(state: TaskTable, wire: Wire, seq: int) -> None:
    _, _, task_id, wait, waiting_on, awaited, due_ms = wire
    record = state.edit(task_id)
    record.lifecycle = SUSPENDED
    record.wait = _LABEL[wait]
    record.awaited = awaited
    record.due_ms = due_ms
    if waiting_on:
        _await(state, task_id, waiting_on)


def join_extended(state: TaskTable, wire: Wire, seq: int) -> None:
    _await(state, wire[2], wire[3])


def wait_ended(state: TaskTable, wire: Wire, seq: int) -> None:
    record = state.edit(wire[2])
    record.lifecycle = RUNNING
    record.wait = record.awaited = record.due_ms = None


def finished(state: TaskTable, wire: Wire, seq: int) -> None:
    _, _, task_id, termination, _, result, wakes, _ = wire
    record = state.edit(task_id)
    if record.wait is not None:
        record.wait = record.awaited = record.due_ms = None
    if result is not None:
        record.result = encode(result)
    _end(state, task_id, record, _LABEL[termination], wakes)


def relaunched(state: TaskTable, wire: Wire, seq: int) -> None:
    _, _, task_id, mode, attempt, token = wire
    record = state.edit(task_id)
    record.lifecycle = PENDING_LAUNCH
    record.attempt = attempt
    record.token = token
    record.wait = record.awaited = record.due_ms = None
    if mode == "restart":
        record.tokens = record.turns = 0
    for child in state.joins.pop(task_id, ()):
        state.edit(child).join_place = None


def usage_reported(state: TaskTable, wire: Wire, seq: int) -> None:
    record = state.edit(wire[2])
    record.tokens += wire[3]
    record.turns += wire[4]


def capabilities_granted(state: TaskTable, wire: Wire, seq: int) -> None:
    state.edit(wire[2]).capability_ids += wire[3]


def capabilities_revoked(state: TaskTable, wire: Wire, seq: int) -> None:
    revoked = frozenset(wire[3])
    record = state.edit(wire[2])
    record.capability_ids = [held for held in record.capability_ids if held not in revoked]


def detached(state: TaskTable, wire: Wire, seq: int) -> None:
    _, _, task_id, heir, wakes = wire
    record = state.edit(task_id)
    parent = record.parent
    assert parent is not None
    del state.children[parent][task_id]
    del state.live_children[parent][task_id]
    if record.join_place is not None:
        _leave_join(state, task_id, record, parent, wakes)
    record.parent = heir
    state.index(task_id, record)


def _add(state: TaskTable, task_id: str, record: TaskRecord) -> None:
    state.tasks.add(task_id, record)
    state.index(task_id, record)


def _await(state: TaskTable, task_id: str, waiting_on: Iterable[str]) -> None:
    """Let a suspended task wait on further children, after those it waits on already."""
    join = state.joins.get(task_id)
    place = 0
    if join is None:
        join = state.joins[task_id] = {}
    else:
        last = state.tasks.rows[next(reversed(join))].join_place
        assert last is not None
        place = last + 1
    edit = state.edit
    for child in waiting_on:
        edit(child).join_place = place
        join[child] = None
        place += 1


def _end(state: TaskTable, task_id: str, record: TaskRecord, termination: str, wakes: str | None) -> None:
    """Make a task done, and leave its parent with one child fewer to wait for."""
    record.lifecycle = DONE
    record.termination = termination
    del state.live[task_id]
    parent = record.parent
    if parent is not None:
        del state.live_children[parent][task_id]
        if record.join_place is not None:
            _leave_join(state, task_id, record, parent, wakes)


def _leave_join(state: TaskTable, task_id: str, record: TaskRecord, parent: str, wakes: str | None) -> None:
    """Take a child from its parent's join; resume the parent when the event says that it was the last."""
    record.join_place = None
    if wakes is None:
        del state.joins[parent][task_id]
        return
    del state.joins[parent]
    waiting = state.edit(parent)
    waiting.lifecycle = RUNNING
    waiting.wait = None


EVOLVE: Final[Mapping[str, Evolve]] = {
    "task.root_opened": root_opened,
    "task.spawned": spawned,
    "task.launch_published": launch_published,
    "task.launch_acknowledged": launch_acknowledged,
    "task.launch_failed": launch_failed,
    "task.started": started,
    "task.yielded": yielded,
    "task.suspended": suspended,
    "task.join_extended": join_extended,
    "task.wait_ended": wait_ended,
    "task.finished": finished,
    "task.relaunched": relaunched,
    "task.usage_reported": usage_reported,
    "task.capabilities_granted": capabilities_granted,
    "task.capabilities_revoked": capabilities_revoked,
    "task.detached": detached,
}
