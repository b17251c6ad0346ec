"""Decisions about tasks: a command in, the events that follow out. It must never change the state, and knows no rule of
its own: it spells a command as an event and asks :mod:`projections.tasks.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from engine.core.catalog import EventType, Wire
from engine.core.decider import Moment
from engine.core.errors import Refused
from projections.tasks import events
from projections.tasks.commands import (
    AcknowledgeLaunch,
    Cancel,
    Deliver,
    ExpireWait,
    ExtendJoin,
    FailLaunch,
    Finish,
    GrantCapabilities,
    OpenRoot,
    PublishLaunch,
    Relaunch,
    ReportUsage,
    ResolveApproval,
    Resume,
    RevokeCapabilities,
    Spawn,
    Start,
    Suspend,
    TaskCommand,
    YieldTask,
)
from projections.tasks.endings import cancel, fail_launch, finish
from projections.tasks.guards import check_attempt
from projections.tasks.rules import RULES, Rule
from projections.tasks.state import TaskTable
from projections.tasks.transitions import SUSPENDED, WAIT_ENDS

__all__ = ["admit", "decide"]

_RULE_OF: Final[Mapping[Any, Rule]] = {event_type.tag: RULES[event_type.name] for event_type in events.EVENTS}


def admit(state: TaskTable, wire: Wire, moment: Moment) -> list[Wire]:
    """Return what recording a fact appends: the fact, with what it leaves to us filled in; [] when it is known already.

    The same rules as for commands. Raises Refused and its kinds, NotFound.
    """
    return _RULE_OF[wire[0]](state, wire, moment)


def decide(state: TaskTable, command: TaskCommand, moment: Moment) -> list[Wire]:
    """Return the events that follow from a command; [] when it repeats exactly what already is.

    Raises Refused and its kinds, NotFound; the state is as before in every case.
    """
    return _DECIDE[type(command)](state, command, moment)


def _says(
    event_type: EventType, fields: Callable[[Any], Sequence[Any]]
) -> Callable[[TaskTable, Any, Moment], list[Wire]]:
    """Return the decision of a command that is one event, its values in the order of the event's fields."""
    rule = RULES[event_type.name]
    return lambda state, command, moment: rule(state, event_type.wire(*fields(command)), moment)


def _resume(state: TaskTable, command: Resume, moment: Moment) -> list[Wire]:
    record = state.find(command.task_id)
    if record.lifecycle != SUSPENDED:
        return RULES["task.started"](state, events.STARTED.wire(command.task_id), moment)
    assert record.wait is not None
    if record.wait == "approval":
        raise Refused(
            f"task {command.task_id!r} waits for an approval", hint="answer it with resolve_approval(approved=...)"
        )
    how = next(iter(WAIT_ENDS[record.wait]), "delivered")
    wire = events.WAIT_ENDED.wire(command.task_id, how, record.awaited, None)
    return RULES["task.wait_ended"](state, wire, moment)


def _deliver(state: TaskTable, command: Deliver, moment: Moment) -> list[Wire]:
    record = state.find(command.task_id)
    if record.wait not in (None, command.kind):
        raise Refused(
            f"task {command.task_id!r} waits for {record.wait}, not for a {command.kind}",
            hint="nothing is delivered to a task that does not wait for it",
        )
    wire = events.WAIT_ENDED.wire(command.task_id, WAIT_ENDS[command.kind][0], command.awaited, command.payload)
    return RULES["task.wait_ended"](state, wire, moment)


def _report_usage(state: TaskTable, command: ReportUsage, moment: Moment) -> list[Wire]:
    if command.attempt is not None:
        check_attempt(command.task_id, state.find(command.task_id), command.attempt)
    wire = events.USAGE_REPORTED.wire(command.task_id, command.tokens, command.turns)
    return RULES["task.usage_reported"](state, wire, moment)


_DECIDE: Final[Mapping[type[TaskCommand], Callable[[TaskTable, Any, Moment], list[Wire]]]] = {
    OpenRoot: _says(events.ROOT_OPENED, lambda c: (c.task_id, [*c.capability_ids])),
    Spawn: _says(
        events.SPAWNED,
        lambda c: (c.task_id, c.parent, c.role, c.isolation, c.context_inheritance, [*c.capability_ids], None, None),
    ),
    PublishLaunch: _says(events.LAUNCH_PUBLISHED, lambda c: (c.task_id, c.attempt)),
    AcknowledgeLaunch: _says(events.LAUNCH_ACKNOWLEDGED, lambda c: (c.task_id, c.attempt)),
    FailLaunch: fail_launch,
    Start: _says(events.STARTED, lambda c: (c.task_id,)),
    YieldTask: _says(events.YIELDED, lambda c: (c.task_id,)),
    Suspend: _says(events.SUSPENDED, lambda c: (c.task_id, c.wait, [*c.waiting_on], c.awaited, c.due_ms)),
    ExtendJoin: _says(events.JOIN_EXTENDED, lambda c: (c.task_id, [*c.waiting_on])),
    Resume: _resume,
    Deliver: _deliver,
    ResolveApproval: _says(
        events.WAIT_ENDED, lambda c: (c.task_id, "approved" if c.approved else "denied", c.awaited, c.payload)
    ),
    ExpireWait: _says(events.WAIT_ENDED, lambda c: (c.task_id, "timed_out", None, c.payload)),
    Finish: finish,
    Cancel: cancel,
    Relaunch: _says(events.RELAUNCHED, lambda c: (c.task_id, c.mode, None, None)),
    ReportUsage: _report_usage,
    GrantCapabilities: _says(events.CAPABILITIES_GRANTED, lambda c: (c.task_id, c.capability_ids)),
    RevokeCapabilities: _says(events.CAPABILITIES_REVOKED, lambda c: (c.task_id, c.capability_ids)),
}
