"""The swarm projection: TaskContext, a worker swarm's situation at a tick, as a fold of events. Unrelated to
``projections.contexts``, which is one conversation's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.core.catalog import EventType, Upcast, Wire
from engine.core.decider import Evolve, Moment
from projections.swarm.actions import ACTION_CATEGORIES, ActionDef, ActionGroup, ActionsConfig
from projections.swarm.commands import SwarmCommand
from projections.swarm.context import TaskContext
from projections.swarm.decider import admit, decide
from projections.swarm.escalation import Escalation, EscalationReason
from projections.swarm.events import ACTION_KINDS, EVENTS, IMPORTED
from projections.swarm.guidance import GUIDANCE_SCOPES, Guidance
from projections.swarm.handle import SwarmCommands, SwarmQueries
from projections.swarm.query import Counts, Verdict
from projections.swarm.record import refuse_invalid, validate_record
from projections.swarm.state import EVOLVE, SwarmState
from projections.swarm.transitions import ESCALATION_STEPS, PHASES, SWARM_STEPS, WORKER_STEPS
from projections.swarm.value import WorkerId
from projections.swarm.worker import WorkerSummary

__all__ = [
    "ACTION_CATEGORIES",
    "ACTION_KINDS",
    "ESCALATION_STEPS",
    "GUIDANCE_SCOPES",
    "PHASES",
    "PROJECTION",
    "SWARM_STEPS",
    "WORKER_STEPS",
    "ActionDef",
    "ActionGroup",
    "ActionsConfig",
    "Counts",
    "Escalation",
    "EscalationReason",
    "Guidance",
    "SwarmCommands",
    "SwarmProjection",
    "SwarmQueries",
    "SwarmState",
    "TaskContext",
    "Verdict",
    "WorkerId",
    "WorkerSummary",
    "from_record",
    "validate_record",
]


class SwarmProjection:
    """The swarm as the core sees it."""

    name: str = "swarm"
    state_version: int = 1
    events: tuple[EventType, ...] = EVENTS
    upcasts: tuple[Upcast, ...] = ()
    evolve: Mapping[str, Evolve] = EVOLVE

    def initial(self) -> SwarmState:
        """Return the state of a run without a swarm."""
        return SwarmState()

    def decide(self, state: SwarmState, command: SwarmCommand, moment: Moment) -> Sequence[Wire]:
        """Return the events that follow from the command; raise Refused. Changes nothing."""
        return decide(state, command, moment)

    def admit(self, state: SwarmState, wire: Wire, moment: Moment) -> Sequence[Wire]:
        """Return what recording another runtime's fact appends; raise Refused. Changes nothing."""
        return admit(state, wire, moment)


PROJECTION: Final = SwarmProjection()


def from_record(
    record: Any,
    *,
    visits: int | None = None,
    successes: int | None = None,
    max_ticks: int | None = None,
    failure_threshold: int = 0,
    task: Any = None,
) -> tuple[str, dict[str, Any]]:
    """Return the event (name and data) that takes over a swarm from its record, ready to be ingested.

    After it, ``context().to_record()`` equals the record. Raises ImportRefused naming everything that is wrong at once.
    """
    refuse_invalid(record)
    numbers = {"visits": visits, "successes": successes, "max_ticks": max_ticks}
    return IMPORTED.name, {"record": record, **numbers, "failure_threshold": failure_threshold, "task": task}
