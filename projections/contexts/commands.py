"""The commands of contexts: what a caller may ask for, validated. A command must never hold a time or a made-up id.

Messages, plans and records arrive as plain arrays that the handle has already read from values or JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationInfo

from engine.core.command import CommandModel
from engine.core.errors import InvalidValue
from engine.core.fields import ID, JSON, JSON_OBJECT, TEXT, U64, Checked, FieldType, list_of, one_of, optional
from engine.core.limits import PLAN_ITEMS_DEFAULT, SKILLS_LOADED_DEFAULT
from projections.contexts.context_state import KINDS
from projections.contexts.events import IMPORTED
from projections.contexts.message import MESSAGE
from projections.contexts.plan import BINDING

__all__ = [
    "AppendMessages",
    "ApplyCompaction",
    "ApplyFallback",
    "AttachTask",
    "BeginTurn",
    "ClearPlan",
    "CloseCalls",
    "ContextCommand",
    "CreateContext",
    "CreatePlan",
    "DetachTask",
    "ImportContext",
    "LoadSkill",
    "SetPreflight",
    "SetPrincipal",
    "SetWindow",
    "SettlePlan",
    "TouchContext",
    "UnloadSkill",
    "UpdatePlan",
]


def _checked(kind: FieldType) -> BeforeValidator:
    """Return a validator that applies a field type of events, so that a command takes exactly what its event can
    store."""

    def check(value: Any, info: ValidationInfo) -> Any:
        try:
            return kind.check(value)
        except InvalidValue as error:
            raise error.at(info.field_name or "") from None

    return BeforeValidator(check)


_Id = Annotated[str, _checked(ID)]
_Text = Annotated[str, _checked(TEXT)]
_OptionalText = Annotated[str | None, _checked(optional(TEXT))]
_Count = Annotated[int, _checked(U64)]
_Json = Annotated[Any, _checked(JSON)]


def _record_parts(value: Any) -> list[Any]:
    """Return the fields of ``context.imported`` from kind to extra, checked."""
    names = IMPORTED.names[2:-1]
    if type(value) is not list or len(value) != len(names):
        raise InvalidValue("", f"expected {len(names)} parts of a record: {', '.join(names)}")
    return IMPORTED.check({"context": "-", "at_ms": 0, **dict(zip(names, value, strict=True)), "lost": []})[4:-1]


class ContextCommand(CommandModel):
    """A command to one conversation."""

    projection: ClassVar[str] = "contexts"

    context: _Id


class CreateContext(ContextCommand):
    """Begin a conversation."""

    name: ClassVar[str] = "create"
    kind: Annotated[str, _checked(one_of("kind", KINDS))] = "conversation"
    model_window: _Count = 0
    principal: _OptionalText = None


class AppendMessages(ContextCommand):
    """Add messages at the end, as arrays."""

    name: ClassVar[str] = "append"
    messages: Annotated[list[Any], _checked(list_of(MESSAGE))]


class TouchContext(ContextCommand):
    """Set the time of the last change."""

    name: ClassVar[str] = "touch"


class LoadSkill(ContextCommand):
    """Load a skill, or give a loaded one another hash."""

    name: ClassVar[str] = "load_skill"
    skill: _Text
    hash: _Text
    max_loaded: _Count = SKILLS_LOADED_DEFAULT


class UnloadSkill(ContextCommand):
    """Unload a skill."""

    name: ClassVar[str] = "unload_skill"
    skill: _Text


class CreatePlan(ContextCommand):
    """Make a plan, in place of an earlier one."""

    name: ClassVar[str] = "create_plan"
    goal: _Text
    items: Annotated[list[Any], _checked(list_of(JSON))] = Field(default_factory=list)
    max_items: _Count = PLAN_ITEMS_DEFAULT


class UpdatePlan(ContextCommand):
    """Insert, reorder and edit, as one step."""

    name: ClassVar[str] = "update_plan"
    changes: Annotated[dict[str, Any], _checked(JSON_OBJECT)]
    max_items: _Count = PLAN_ITEMS_DEFAULT


class ClearPlan(ContextCommand):
    """Drop the plan."""

    name: ClassVar[str] = "clear_plan"


class SettlePlan(ContextCommand):
    """Settle the open items of a binding."""

    name: ClassVar[str] = "settle_plan"
    binding: Annotated[list[Any], _checked(BINDING)]
    ok: bool
    note: _OptionalText = None


class SetPreflight(ContextCommand):
    """Set the preflight verdict; None takes it away."""

    name: ClassVar[str] = "set_preflight"
    value: _Json = None


class SetPrincipal(ContextCommand):
    """Say who calls; the first one stays."""

    name: ClassVar[str] = "set_principal"
    principal: _Text


class AttachTask(ContextCommand):
    """Attach the current work to a task."""

    name: ClassVar[str] = "attach_task"
    task: _Id


class DetachTask(ContextCommand):
    """Let the task go."""

    name: ClassVar[str] = "detach_task"


class BeginTurn(ContextCommand):
    """Count a turn."""

    name: ClassVar[str] = "begin_turn"


class SetWindow(ContextCommand):
    """Set the model's window."""

    name: ClassVar[str] = "set_window"
    model_window: _Count


class ApplyCompaction(ContextCommand):
    """Fold old messages under a verdict."""

    name: ClassVar[str] = "apply_compaction"
    fold: _Count
    version: _Count
    verdict: _Json


class ApplyFallback(ContextCommand):
    """Fold old messages into the narrative."""

    name: ClassVar[str] = "apply_fallback"
    fold: _Count
    version: _Count


class CloseCalls(ContextCommand):
    """Answer every open call with an error."""

    name: ClassVar[str] = "close_calls"
    reason: _Text


class ImportContext(ContextCommand):
    """Take in a record that has been read."""

    name: ClassVar[str] = "import"
    parts: Annotated[list[Any], _checked(Checked("record", _record_parts))]
    lost: Annotated[list[Any], _checked(list_of(JSON_OBJECT))] = Field(default_factory=list)
    model_window: Annotated[int | None, _checked(optional(U64))] = None
    """The window that is configured now; when it is not the record's, the change follows as an event."""
