"""The commands of the task table: what a caller may ask for, validated once, here. A command must never hold a time or
an id that nobody gave.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, PlainValidator, ValidationInfo

from engine.core.command import CommandModel
from engine.core.errors import InvalidValue
from engine.core.fields import BOOL, ID, JSON, TEXT, TIME_MS, U32, U64, FieldType, one_of, optional
from projections.tasks import events
from projections.tasks.transitions import WAIT_ENDS

__all__ = [
    "AcknowledgeLaunch",
    "Cancel",
    "Deliver",
    "ExpireWait",
    "ExtendJoin",
    "FailLaunch",
    "Finish",
    "GrantCapabilities",
    "OnChildren",
    "OpenRoot",
    "PublishLaunch",
    "Relaunch",
    "ReportUsage",
    "ResolveApproval",
    "Resume",
    "RevokeCapabilities",
    "Spawn",
    "Start",
    "Suspend",
    "TaskCommand",
    "YieldTask",
]

OnChildren: TypeAlias = Literal["cancel_children", "detach"]
"""What becomes of the live children of a task that ends."""

DELIVERED: Final = tuple(wait for wait, ends in WAIT_ENDS.items() if ends and ends[0] in ("delivered", "elapsed"))


def _by(kind: FieldType) -> PlainValidator:
    """Return a validator that is the check of an event's field: one rule for what comes in and what is recorded."""

    def check(value: Any, info: ValidationInfo) -> Any:
        try:
            return kind.check(value)
        except InvalidValue as error:
            raise error.at(info.field_name or "") from None

    return PlainValidator(check)


TaskId: TypeAlias = Annotated[str, _by(ID)]
Attempt: TypeAlias = Annotated[int | None, _by(events.ATTEMPT)]
Name: TypeAlias = Annotated[str | None, _by(optional(TEXT))]
Capabilities: TypeAlias = Annotated[list[str], _by(events.CAPABILITIES)]
Children: TypeAlias = Annotated[list[str], _by(events.TASKS)]
Payload: TypeAlias = Annotated[Any, _by(optional(JSON))]
Ending: TypeAlias = Annotated[OnChildren | None, _by(optional(one_of("on_children", ("cancel_children", "detach"))))]


class TaskCommand(CommandModel):
    """Base of the commands below. ``task_id`` is the task it is about."""

    projection: ClassVar[str] = "tasks"

    task_id: TaskId

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Build the command. Raises InvalidValue with the path to the first bad field, ``spawn.role``."""
        try:
            return super().make(**values)
        except InvalidValue as error:
            raise error if error.path.startswith(cls.name) else error.at(cls.name) from None


class OpenRoot(TaskCommand):
    """Open the run's one root."""

    name: ClassVar[str] = "open_root"
    capability_ids: Capabilities = Field(default=[])


class Spawn(TaskCommand):
    """Add a child task."""

    name: ClassVar[str] = "spawn"
    parent: TaskId
    role: Annotated[str, _by(events.ROLE)] = "custom"
    isolation: Annotated[str, _by(events.ISOLATION)] = "shared"
    context_inheritance: Annotated[str, _by(events.INHERITANCE)] = "none"
    capability_ids: Capabilities = Field(default=[])


class PublishLaunch(TaskCommand):
    """Say that the launch was handed to the host."""

    name: ClassVar[str] = "publish_launch"
    attempt: Attempt = None


class AcknowledgeLaunch(TaskCommand):
    """Say that the attempt runs."""

    name: ClassVar[str] = "acknowledge_launch"
    attempt: Attempt = None


class FailLaunch(TaskCommand):
    """Say that the attempt will never run."""

    name: ClassVar[str] = "fail_launch"
    attempt: Attempt = None
    reason: Annotated[str, _by(TEXT)] = ""
    on_children: Ending = None


class Start(TaskCommand):
    """Let a ready task run."""

    name: ClassVar[str] = "start"


class YieldTask(TaskCommand):
    """Put a running task back into the queue."""

    name: ClassVar[str] = "yield_task"


class Suspend(TaskCommand):
    """Let a task wait."""

    name: ClassVar[str] = "suspend"
    wait: Annotated[str, _by(events.WAIT)]
    waiting_on: Children = Field(default=[])
    awaited: Name = None
    due_ms: Annotated[int | None, _by(optional(TIME_MS))] = None


class ExtendJoin(TaskCommand):
    """Let a join wait on further children."""

    name: ClassVar[str] = "extend_join"
    waiting_on: Children


class Resume(TaskCommand):
    """Let a task go on: start it when it is ready, end its wait when that needs no answer."""

    name: ClassVar[str] = "resume"


class Deliver(TaskCommand):
    """Deliver what a task waits for."""

    name: ClassVar[str] = "deliver"
    kind: Annotated[str, _by(one_of("delivery", DELIVERED))]
    awaited: Name = None
    payload: Payload = None


class ResolveApproval(TaskCommand):
    """Answer an approval."""

    name: ClassVar[str] = "resolve_approval"
    approved: Annotated[bool, _by(BOOL)]
    awaited: Name = None
    payload: Payload = None


class ExpireWait(TaskCommand):
    """Say that what a task waits for will not come in time."""

    name: ClassVar[str] = "expire_wait"
    payload: Payload = None


class Finish(TaskCommand):
    """End a task."""

    name: ClassVar[str] = "finish"
    termination: Annotated[str, _by(events.TERMINATION)] = "completed"
    attempt: Attempt = None
    result: Annotated[dict[str, Any] | None, _by(events.RESULT)] = None
    on_children: Ending = None


class Cancel(TaskCommand):
    """End a task and everything under it."""

    name: ClassVar[str] = "cancel"


class Relaunch(TaskCommand):
    """Begin a task's next attempt."""

    name: ClassVar[str] = "relaunch"
    mode: Annotated[str, _by(events.MODE)]


class ReportUsage(TaskCommand):
    """Add to a task's usage."""

    name: ClassVar[str] = "report_usage"
    tokens: Annotated[int, _by(U64)] = 0
    turns: Annotated[int, _by(U32)] = 0
    attempt: Attempt = None


class GrantCapabilities(TaskCommand):
    """Let a task do more."""

    name: ClassVar[str] = "grant_capabilities"
    capability_ids: Capabilities


class RevokeCapabilities(TaskCommand):
    """Let a task do less."""

    name: ClassVar[str] = "revoke_capabilities"
    capability_ids: Capabilities
