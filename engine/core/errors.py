"""The errors of refold: one tree, one base. No other module may define an exception that reaches a caller.

Every error carries ``code`` (stable, snake_case, what ``--json`` prints and ``refold explain`` takes), a message that
says what
happened and where, a ``hint`` that says what to do next, and ``details`` (plain JSON values for programs).
Programmer errors inside refold are assertions, not members of this tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

__all__ = [
    "BackendUnavailable",
    "CommandMismatch",
    "Conflict",
    "CorruptJournal",
    "EngineError",
    "IllegalTransition",
    "ImportRefused",
    "InvalidValue",
    "LimitExceeded",
    "NotAStore",
    "NotFound",
    "ReadOnly",
    "Refused",
    "SchemaError",
]


SHOWN_CHARS_MAX: Final = 4_000
"""Characters of a message or a hint; both may quote what somebody else wrote."""


def shown(text: str) -> str:
    """Return a message as any screen, log or file can take it: not endless, and lone surrogates as their numbers."""
    made = text[: SHOWN_CHARS_MAX + 1]
    if not made.isascii():
        made = made.encode("utf-8", "backslashreplace").decode("utf-8")
    return made if len(made) <= SHOWN_CHARS_MAX else made[: SHOWN_CHARS_MAX - 1] + "…"


class EngineError(Exception):
    """Base of everything refold raises on purpose. ``retryable`` says whether the same call may succeed later
    unchanged."""

    code: ClassVar[str] = "engine_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        message = shown(message)
        super().__init__(message)
        self.message = message
        self.hint = shown(hint)
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Let the error cross to another process whatever its arguments are; a pool of workers breaks otherwise."""
        return _as_it_was, (type(self), self.args, dict(self.__dict__))

    def to_json(self) -> dict[str, Any]:
        """Return the shape printed under ``"error"`` by ``--json``: code, message, hint and, when there are any,
        details."""
        shape: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.details:
            shape["details"] = self.details
        return shape


def _as_it_was(kind: type[EngineError], args: tuple[Any, ...], attributes: dict[str, Any]) -> EngineError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class Refused(EngineError):
    """A command or fact breaks a rule of the domain. Nothing was written and the state is as before."""

    code = "refused"


class IllegalTransition(Refused):
    """The life cycle has no such step: names the subject, the state it is in, the event, and what is allowed there."""

    code = "illegal_transition"

    def __init__(self, subject: str, state: str, event: str, allowed: Sequence[str], *, hint: str = "") -> None:
        listing = ", ".join(allowed) if allowed else "nothing: the state is final"
        super().__init__(
            f"{subject} is {state}; {event} is not allowed there",
            hint=hint or f"allowed from {state}: {listing}",
            subject=subject,
            state=state,
            event=event,
            allowed=list(allowed),
        )


class InvalidValue(Refused):
    """A value cannot be stored exactly, or is not of the field's type. ``path`` leads to it, e.g.
    ``result.items[3]``."""

    code = "invalid_value"

    def __init__(self, path: str, problem: str, *, hint: str = "") -> None:
        super().__init__(f"{path or 'value'}: {problem}", hint=hint, path=path, problem=problem)
        self.path = path
        self.problem = problem

    def at(self, prefix: str) -> InvalidValue:
        """Return the same error with ``prefix`` put in front of its path."""
        joint = "" if not self.path or self.path.startswith("[") else "."
        return InvalidValue(f"{prefix}{joint}{self.path}", self.problem, hint=self.hint)


class CommandMismatch(Refused):
    """A command id came back with other content. The first command stands; nothing was written."""

    code = "command_mismatch"


class ImportRefused(Refused):
    """Foreign data breaks the rules. ``violations`` names every one of them; nothing was imported."""

    code = "import_refused"

    def __init__(self, message: str, violations: Sequence[Any], *, hint: str = "") -> None:
        super().__init__(message, hint=hint, violations=list(violations))
        self.violations = list(violations)


class ReadOnly(Refused):
    """A command was given to a view of the past, or to a store opened for reading."""

    code = "read_only"


class LimitExceeded(Refused):
    """A limit of :mod:`engine.core.limits` would be broken: its name, the value and the maximum."""

    code = "limit_exceeded"

    def __init__(self, name: str, value: int, maximum: int, *, hint: str = "") -> None:
        super().__init__(
            f"{name} is {value}, the maximum is {maximum}",
            hint=hint or "split the work or store the payload elsewhere and record a reference",
            name=name,
            value=value,
            maximum=maximum,
        )


class Conflict(EngineError):
    """Another writer has taken this position. Nothing was written; refresh the run and decide again."""

    code = "conflict"
    retryable = True


class NotFound(EngineError):
    """The named run, task, context, graph or position does not exist."""

    code = "not_found"


class CorruptJournal(EngineError):
    """Stored bytes are not what was written. Names the run, the position, what was expected and what was found."""

    code = "corrupt_journal"

    def __init__(self, run: str, position: int, expected: str, found: str, *, hint: str = "") -> None:
        super().__init__(
            f"run {run!r} is damaged at position {position}: expected {expected}, found {found}",
            hint=hint or f"'refold verify {run}' names every fault; 'refold show {run} --at N' reads what is before it",
            run=run,
            position=position,
            expected=expected,
            found=found,
        )
        self.run = run
        self.position = position
        self.expected = expected
        self.found = found


class SchemaError(EngineError):
    """A stored event or file was written by a newer refold, or by something this one does not know."""

    code = "schema_error"


class BackendUnavailable(EngineError):
    """The store cannot be reached or cannot write now: locked, full, read-only, missing. Nothing acknowledged is
    lost."""

    code = "backend_unavailable"
    retryable = True


class NotAStore(EngineError):
    """The path holds something that is not a refold store, or a damaged one."""

    code = "not_a_store"
