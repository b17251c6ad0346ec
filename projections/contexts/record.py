"""Records of agentd, read and written. Reading must never lose a conversation for one bad entry, nor an entry without
naming it.

What is kept goes out equal to what came in, keys that this version does not know included. One number may differ:
``est_tokens`` is counted anew, because records carry wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from engine.core.errors import InvalidValue
from engine.core.fields import ID, JSON, TEXT, U64, Checked, FieldType, one_of, optional
from projections.contexts.context_state import KINDS, ContextState
from projections.contexts.message import read_message
from projections.contexts.plan import Plan, read_plan
from projections.contexts.summary import Summary, read_skill, read_summary
from projections.contexts.values import JsonObject, ObjectReader, Violation, copy_json

__all__ = ["RecordRead", "from_record", "record_parts", "to_record"]

P = TypeVar("P")

_KIND: Final = one_of("kind", KINDS)


class RecordRead(NamedTuple):
    """What came of reading a record: the context (None when there was no record at all), and what was wrong with
    it."""

    state: ContextState | None
    violations: tuple[Violation, ...]


def to_record(state: ContextState) -> JsonObject:
    """Return the record of a context, ready for ``json.dumps``."""
    return state.to_json()


def from_record(value: Any, *, model_window: int = 0) -> RecordRead:
    """Return the context that a record's JSON describes, and every violation with its path.

    A malformed message is left out and named by its index, and so is a malformed item of the plan, skill or entry of
    the summary; any other malformed field takes its default; the rest is kept. A plan without a goal is none.
    ``model_window`` stands in when the record has none. A value that is no object gives no context.
    """
    found: list[Violation] = []
    try:
        record = _Record(value, found)
    except InvalidValue as error:
        return RecordRead(None, (Violation("", error.problem),))
    record.field("est_tokens", U64, 0)
    state = ContextState(
        kind=record.field("kind", _KIND, "root"),
        version=record.field("version", U64, 0),
        summary=record.part("summary", read_summary) or Summary(),
        messages=tuple(record.entries("messages", read_message, indexed=True)),
        skills=tuple(record.entries("skills", read_skill)),
        plan=_with_goal(record.part("plan", read_plan, null=True)),
        preflight=record.field("preflight", JSON, None),
        model_window=record.field("model_window", U64, 0) or model_window,
        principal=record.field("principal", optional(TEXT), None),
        task=record.field("task", optional(ID), None),
        turns=record.field("turns", U64, 0),
        created=record.field("created", U64, 0),
        updated=record.field("updated", U64, 0),
        extra=record.extra(),
    )
    return RecordRead(replace(state, est_tokens=state.recount()), tuple(found))


def _with_goal(plan: Plan | None) -> Plan | None:
    """Return the plan, or None when its goal was malformed."""
    return None if plan is None or plan.goal is None else plan


def record_parts(state: ContextState) -> list[Any]:
    """Return a context as the fields of ``context.imported``, from kind to extra."""
    return [
        state.kind,
        state.version,
        state.summary.dump(),
        [message.dump() for message in state.messages],
        [skill.dump() for skill in state.skills],
        None if state.plan is None else state.plan.dump(),
        copy_json(state.preflight),
        state.model_window,
        state.principal,
        state.task,
        state.turns,
        state.created,
        state.updated,
        copy_json(state.extra),
    ]


class _Record:
    """One record being read, with the violations found on the way."""

    def __init__(self, value: Any, found: list[Violation]) -> None:
        self._reader = ObjectReader(value, "a context record")
        self._found = found
        self._reader.drop("dirty")

    def field(self, key: str, kind: FieldType, default: Any) -> Any:
        try:
            return self._reader.take(key, kind, default)
        except InvalidValue as error:
            self._found.append(Violation(error.path, error.problem))
            return default

    def part(self, key: str, read: Callable[[Any, list[InvalidValue]], P], *, null: bool = False) -> P | None:
        """Return what can be read of an object that a key holds, every fault in it noted; None without any."""
        value = self._reader.take(key, _ANYTHING, None if null else {})
        if value is None and null:
            return None
        faults: list[InvalidValue] = []
        try:
            return read(value, faults)
        except InvalidValue as error:
            faults.append(error)
            return None
        finally:
            self._found += [Violation(at.path, at.problem) for at in (fault.at(key) for fault in faults)]

    def entries(self, key: str, read: Callable[[Any], Any], *, indexed: bool = False) -> list[Any]:
        kept: list[Any] = []
        for index, entry in enumerate(self.field(key, _LIST, [])):
            try:
                kept.append(read(entry))
            except InvalidValue as error:
                at = error.at(f"{key}[{index}]")
                self._found.append(Violation(at.path, at.problem, index if indexed else None))
        return kept

    def extra(self) -> JsonObject | None:
        try:
            return self._reader.extra()
        except InvalidValue as error:
            self._found.append(Violation(error.path, error.problem))
            return None


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise InvalidValue("", f"expected a list, found {type(value).__name__}")
    return value


_LIST: Final = Checked("list", _list)
_ANYTHING: Final = Checked("value", lambda value: value)
