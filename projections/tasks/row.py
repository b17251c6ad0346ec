"""The public row: TaskControlState, the ten fields of the seed, and what travels beside it. A row must never be
changeable, nor share anything with the state it was taken from.

A label alone cannot be inverted, so the data travels beside the label: in the row (``termination``, ``waiting_on``),
and
for what the fold knows beyond the row (attempt, launch token, ...) in :class:`RowExtras`, which :class:`TaskRows`
carries along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, NoReturn, Self

from engine.core.codec import decode, encode, normalise
from engine.core.errors import ImportRefused
from projections.tasks.row_rules import check_row
from projections.tasks.violations import PROCESS_FIELDS, ROW_FIELDS, Report

__all__ = ["ChildProcessState", "RowExtras", "TaskControlState", "TaskRows"]


class ChildProcessState:
    """A child's process identity and how it joined. Immutable: ``join_result`` gives a fresh copy at each reading.

    Raises InvalidValue when ``join_result`` is not a JSON value that can be kept exactly.
    """

    __slots__ = ("_join", "context_inheritance", "isolation", "role")

    role: str
    isolation: str
    context_inheritance: str
    _join: bytes | None

    def __init__(self, role: str, isolation: str, context_inheritance: str, join_result: Any = None) -> None:
        join = None if join_result is None else encode(normalise(join_result, "join_result"))
        self._fill(role, isolation, context_inheritance, join)

    def _fill(self, role: str, isolation: str, context_inheritance: str, join: bytes | None) -> None:
        put = object.__setattr__
        put(self, "role", role)
        put(self, "isolation", isolation)
        put(self, "context_inheritance", context_inheritance)
        put(self, "_join", join)

    @classmethod
    def _of(cls, role: str, isolation: str, context_inheritance: str, join: bytes | None) -> Self:
        """Return a state around a join result that is already encoded."""
        made = cls.__new__(cls)
        made._fill(role, isolation, context_inheritance, join)
        return made

    @property
    def join_result(self) -> Any:
        """The JSON value ``{agent_id, result: {termination, final_message, turns_used, total_tokens_used, ...}}``, or
        None."""
        return None if self._join is None else decode(self._join)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, its fields in the order of the contract."""
        return {field: getattr(self, field) for field in PROCESS_FIELDS}

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def _key(self) -> tuple[str, str, str, bytes | None]:
        return (self.role, self.isolation, self.context_inheritance, self._join)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, ChildProcessState) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        listing = ", ".join(f"{field}={getattr(self, field)!r}" for field in PROCESS_FIELDS)
        return f"{type(self).__name__}({listing})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), tuple(getattr(self, field) for field in PROCESS_FIELDS))


@dataclass(frozen=True, slots=True)
class TaskControlState:
    """One task, projected: the ten fields of the seed, in its order. Immutable, and equal to the row it was read from.

    ``tokens_used`` is an int here and a decimal string in JSON, because JSON readers lose integers above 2^53.
    """

    task_id: str
    parent_task_id: str | None
    lifecycle: str
    termination: str | None
    wait: str | None
    waiting_on: tuple[str, ...]
    capability_ids: tuple[str, ...]
    process: ChildProcessState | None
    tokens_used: int
    turns_used: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of the seed: exactly the ten keys, in order, sharing nothing with the row."""
        return {
            "task_id": self.task_id,
            "parent_task_id": self.parent_task_id,
            "lifecycle": self.lifecycle,
            "termination": self.termination,
            "wait": self.wait,
            "waiting_on": list(self.waiting_on),
            "capability_ids": list(self.capability_ids),
            "process": None if self.process is None else self.process.to_json(),
            "tokens_used": str(self.tokens_used),
            "turns_used": self.turns_used,
        }

    @classmethod
    def from_json(cls, row: Any) -> Self:
        """Return the row of a JSON object. Raises ImportRefused naming every rule that the row breaks by itself."""
        report = Report(None, row.get("task_id") if type(row) is dict else None)
        check_row(row, report)
        if report.violations:
            refuse_import("the row", report.violations)
        return cls.trusted(row)

    @classmethod
    def trusted(cls, row: dict[str, Any]) -> Self:
        """Return the row of a JSON object that has been checked."""
        process = row["process"]
        return cls(
            task_id=row["task_id"],
            parent_task_id=row["parent_task_id"],
            lifecycle=row["lifecycle"],
            termination=row["termination"],
            wait=row["wait"],
            waiting_on=tuple(row["waiting_on"]),
            capability_ids=tuple(row["capability_ids"]),
            process=None if process is None else ChildProcessState(**process),
            tokens_used=int(row["tokens_used"]),
            turns_used=row["turns_used"],
        )


assert tuple(field.name for field in fields(TaskControlState)) == ROW_FIELDS


class RowExtras(NamedTuple):
    """What the fold knows about a task beyond its row: everything of it that can influence a later event.

    ``join_place`` orders the child inside its parent's ``waiting_on``; ``awaited`` is the name of what it waits for;
    ``failure`` is why its launch failed; ``result`` is the root's (a child's is in its ``join_result``).
    """

    attempt: int = 1
    launch_token: str | None = None
    join_place: int | None = None
    awaited: str | None = None
    due_ms: int | None = None
    failure: str | None = None
    result: Any = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self._asdict()


class TaskRows(tuple[TaskControlState, ...]):
    """The rows of a table in order of creation, carrying their :class:`RowExtras` beside them.

    A tuple of rows like any other; only ``TaskTable.from_rows`` looks at ``extras``, so that the table it builds is the
    table they were taken from.
    """

    extras: tuple[RowExtras, ...]

    def __new__(cls, rows: Iterable[TaskControlState] = (), extras: Iterable[RowExtras] | None = None) -> Self:
        made = super().__new__(cls, tuple(rows))
        made.extras = tuple(RowExtras() for _ in made) if extras is None else tuple(extras)
        return made

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows in the JSON form of the seed, without the extras."""
        return [row.to_json() for row in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (tuple(self), self.extras))


def plain(row: Any) -> Any:
    """Return a TaskControlState as the JSON object it stands for, whatever its fields hold; anything else unchanged."""
    if not isinstance(row, TaskControlState):
        return row
    shape = {field: getattr(row, field) for field in ROW_FIELDS}
    if type(row.tokens_used) is int and 0 <= row.tokens_used < 2**64:
        shape["tokens_used"] = str(row.tokens_used)
    if isinstance(row.process, ChildProcessState):
        shape["process"] = row.process.to_json()
    return shape


def refuse_import(what: str, violations: Sequence[Any]) -> NoReturn:
    """Raise ImportRefused for a non-empty list of violations, the first of them in the message."""
    count = len(violations)
    raise ImportRefused(
        f"{what} breaks {count} rule{'s' if count > 1 else ''}: {violations[0]}",
        [violation.to_json() for violation in violations],
        hint="validate_table(rows) lists every violation; nothing was imported",
    )
