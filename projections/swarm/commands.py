"""The commands of a swarm. Each is checked by the field types of the event it asks for; none holds a clock reading."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from engine.core.catalog import EventType
from engine.core.command import CommandModel
from engine.core.errors import InvalidValue
from projections.swarm import events as e
from projections.swarm.record import refuse_invalid
from projections.swarm.state import HEADER, SwarmState

__all__ = [
    "AdvanceTick",
    "ClearEscalation",
    "CompleteAction",
    "ConfigureActions",
    "FinishWorker",
    "Idle",
    "ImportRecord",
    "IssueGuidance",
    "RaiseEscalation",
    "RecordVerdict",
    "RemoveMetadata",
    "SetMetadata",
    "Start",
    "SwarmCommand",
    "UpdateExploration",
]


class SwarmCommand(CommandModel):
    """Base of the swarm's commands. ``event`` is what a command asks to record; fields of the same name mean the
    same."""

    projection: ClassVar[str] = "swarm"
    event: ClassVar[EventType]
    filled_in: ClassVar[frozenset[str]] = frozenset()
    """Fields that may be left None, because the state knows them."""

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Build the command with every value checked and normalised. Raises InvalidValue naming the field."""
        for field in cls.event.fields:
            if field.name in values and (values[field.name] is not None or field.name not in cls.filled_in):
                try:
                    values[field.name] = field.type.check(values[field.name])
                except InvalidValue as error:
                    raise error.at(f"{cls.name}.{field.name}") from None
        return super().make(**values)

    def facts(self, state: SwarmState) -> tuple[Any, ...]:
        """Return the event's values in field order."""
        return tuple(getattr(self, field.name) for field in self.event.fields)


class Start(SwarmCommand):
    """Begin a swarm of ``worker_count`` workers, numbered from 0, at tick 0."""

    name: ClassVar[str] = "start"
    event: ClassVar[EventType] = e.STARTED
    worker_count: int
    max_ticks: int
    failure_threshold: int
    task: Any


class ImportRecord(SwarmCommand):
    """Take over a swarm from a record, with the numbers behind its rates where they are known."""

    name: ClassVar[str] = "import_record"
    event: ClassVar[EventType] = e.IMPORTED
    record: Any
    visits: int | None
    successes: int | None
    max_ticks: int | None
    failure_threshold: int
    task: Any

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Build the command. Raises ImportRefused naming everything that is wrong with the record at once."""
        refuse_invalid(values.get("record"))
        return super().make(**values)


class ConfigureActions(SwarmCommand):
    """Set all available actions and groups."""

    name: ClassVar[str] = "configure_actions"
    event: ClassVar[EventType] = e.ACTIONS_CONFIGURED
    config: Any


class AdvanceTick(SwarmCommand):
    """Move the swarm's clock to ``tick``, or by one when it is None."""

    name: ClassVar[str] = "advance_tick"
    event: ClassVar[EventType] = e.TICK_ADVANCED
    filled_in: ClassVar[frozenset[str]] = frozenset({"tick"})
    tick: int | None

    def facts(self, state: SwarmState) -> tuple[Any, ...]:
        """Return the tick to move to."""
        header = state.swarm.get(HEADER)
        return ((header.tick if header else 0) + 1 if self.tick is None else self.tick,)


class CompleteAction(SwarmCommand):
    """Record that a worker's action ended."""

    name: ClassVar[str] = "complete_action"
    event: ClassVar[EventType] = e.ACTION_COMPLETED
    worker: int
    action: str
    target: str | None
    success: bool
    output: str | None
    error: str | None
    duration_ms: int
    kind: str


class Idle(SwarmCommand):
    """Record that a worker did nothing in this tick."""

    name: ClassVar[str] = "idle"
    event: ClassVar[EventType] = e.WORKER_IDLED
    worker: int


class RaiseEscalation(SwarmCommand):
    """Ask for help for a worker, at the current tick."""

    name: ClassVar[str] = "raise_escalation"
    event: ClassVar[EventType] = e.ESCALATION_RAISED
    worker: int
    reason: Any
    context: str | None

    def facts(self, state: SwarmState) -> tuple[Any, ...]:
        """Return the event's values, with the tick of now."""
        header = state.swarm.get(HEADER)
        return (self.worker, self.reason, header.tick if header else 0, self.context)


class ClearEscalation(SwarmCommand):
    """Settle a worker's request for help."""

    name: ClassVar[str] = "clear_escalation"
    event: ClassVar[EventType] = e.ESCALATION_CLEARED
    worker: int


class FinishWorker(SwarmCommand):
    """Record that a worker is done."""

    name: ClassVar[str] = "finish_worker"
    event: ClassVar[EventType] = e.WORKER_FINISHED
    worker: int
    success: bool
    message: str | None


class IssueGuidance(SwarmCommand):
    """Tell a worker what to do next."""

    name: ClassVar[str] = "issue_guidance"
    event: ClassVar[EventType] = e.GUIDANCE_ISSUED
    worker: int
    guidance: Any


class UpdateExploration(SwarmCommand):
    """Replace the excluded actions and the guidances of the exploration."""

    name: ClassVar[str] = "update_exploration"
    event: ClassVar[EventType] = e.EXPLORATION_UPDATED
    excluded_actions: Any
    v2_guidances: Any


class SetMetadata(SwarmCommand):
    """Set one metadata value."""

    name: ClassVar[str] = "set_metadata"
    event: ClassVar[EventType] = e.METADATA_SET
    key: str
    value: Any


class RemoveMetadata(SwarmCommand):
    """Remove one metadata value."""

    name: ClassVar[str] = "remove_metadata"
    event: ClassVar[EventType] = e.METADATA_REMOVED
    key: str


class RecordVerdict(SwarmCommand):
    """Judge the swarm, once."""

    name: ClassVar[str] = "record_verdict"
    event: ClassVar[EventType] = e.VERDICT_RECORDED
    success: bool
    reason: str | None
    details: Any
