"""Escalations: a worker's request for help, and why. Nothing here knows whether one is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from engine.core.errors import InvalidValue
from engine.core.fields import TEXT, U32, U64, Checked
from projections.swarm.shape import leaf, maybe, read, shaped
from projections.swarm.value import Kind, RecordValue

__all__ = ["ESCALATION", "REASON", "Escalation", "EscalationReason"]

REASONS_WITH: Final[Mapping[str, Checked]] = {"consecutive_failures": U32, "agent_requested": TEXT, "unknown": TEXT}
REASONS_ALONE: Final = ("resource_exhausted", "timeout")


def _reason(value: Any) -> Any:
    if type(value) is str and value in REASONS_ALONE:
        return value
    if type(value) is dict and len(value) == 1:
        (kind, content), *_ = value.items()
        if kind in REASONS_WITH:
            try:
                return {kind: REASONS_WITH[kind].check(content)}
            except InvalidValue as error:
                raise error.at(kind) from None
    raise InvalidValue(
        "",
        "expected an escalation reason",
        hint='"resource_exhausted", "timeout", or an object of one key: consecutive_failures, agent_requested, unknown',
    )


REASON: Final = leaf(Checked("escalation reason", _reason))
ESCALATION: Final = shaped({"reason": REASON, "raised_at_tick": leaf(U64)}, {"context": maybe(leaf(TEXT))})


class EscalationReason:
    """Why a worker asks for help: ``kind``, and the count or text that goes with it. Immutable."""

    __slots__ = ("kind", "value")

    kind: str
    value: int | str | None

    def __init__(self, kind: str, value: int | str | None = None) -> None:
        try:
            _reason(kind if value is None else {kind: value})
        except InvalidValue as error:
            raise error.at("reason") from None
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "value", value)

    @classmethod
    def consecutive_failures(cls, count: int) -> EscalationReason:
        """Return the reason that the engine itself gives at the threshold."""
        return cls("consecutive_failures", count)

    @classmethod
    def resource_exhausted(cls) -> EscalationReason:
        """Return the reason of a worker that has run out of something."""
        return cls("resource_exhausted")

    @classmethod
    def timeout(cls) -> EscalationReason:
        """Return the reason of a worker that took too long."""
        return cls("timeout")

    @classmethod
    def agent_requested(cls, text: str) -> EscalationReason:
        """Return the reason that a worker states itself."""
        return cls("agent_requested", text)

    @classmethod
    def unknown(cls, text: str) -> EscalationReason:
        """Return the reason of an error that nobody could name."""
        return cls("unknown", text)

    @classmethod
    def from_record(cls, record: Any) -> EscalationReason:
        """Return the reason of its JSON form. Raises ImportRefused."""
        found = read("escalation reason", REASON, record)
        return cls(found) if type(found) is str else cls(*next(iter(found.items())))

    def to_record(self) -> Any:
        """Return the JSON form: the kind alone, or an object of the kind and its content."""
        return self.kind if self.value is None else {self.kind: self.value}

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("EscalationReason is immutable; build another one")

    def __eq__(self, other: object) -> bool:
        return type(other) is EscalationReason and (self.kind, self.value) == (other.kind, other.value)

    def __hash__(self) -> int:
        return hash((self.kind, self.value))

    def __repr__(self) -> str:
        return (
            f"EscalationReason({self.kind!r})"
            if self.value is None
            else f"EscalationReason({self.kind!r}, {self.value!r})"
        )


class Escalation(RecordValue):
    """A worker's open request for help. At most one per worker is open."""

    __slots__ = ()
    KIND = Kind("escalation", ESCALATION, {"context": None})

    def __init__(self, reason: EscalationReason, raised_at_tick: int, context: str | None = None) -> None:
        self._build({"reason": reason.to_record(), "raised_at_tick": raised_at_tick, "context": context})

    @property
    def reason(self) -> EscalationReason:
        """Why it was raised."""
        return EscalationReason.from_record(self._record["reason"])

    @property
    def raised_at_tick(self) -> int:
        """The tick at which it was raised."""
        tick: int = self._record["raised_at_tick"]
        return tick

    @property
    def context(self) -> str | None:
        """What the raiser added, or None."""
        found: str | None = self._get("context")
        return found
