"""From rows back to records: the inverse of handing rows out. It must never let an invalid row through, nor change a
value on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from engine.core.codec import encode
from engine.core.errors import InvalidValue
from engine.core.fields import ID, JSON, TEXT, TIME_MS, U32, U64, FieldType, optional
from projections.tasks.record import TaskRecord
from projections.tasks.row import RowExtras, TaskControlState, plain, refuse_import
from projections.tasks.transitions import DONE
from projections.tasks.validate import validate_table

__all__ = ["records_of"]

_FIELDS: Final[tuple[FieldType, ...]] = (
    U32, optional(ID), optional(U64), optional(TEXT), optional(TIME_MS), optional(TEXT), optional(JSON)
)  # fmt: skip
assert len(_FIELDS) == len(RowExtras._fields)


def records_of(rows: Sequence[Any], extras: Iterable[RowExtras] | None) -> Iterator[tuple[str, TaskRecord]]:
    """Yield (task id, record) for the rows of a valid table; the contract is that of ``TaskTable.from_rows``."""
    violations = validate_table(rows)
    if violations:
        refuse_import("the task table", violations)
    if extras is None:
        extras = getattr(rows, "extras", None)
    table = [TaskControlState.trusted(plain(row)) for row in rows]
    beside = [RowExtras()] * len(table) if extras is None else _checked(table, list(extras))
    places = _places(table, beside)
    for number, (row, extra) in enumerate(zip(table, beside, strict=True)):
        yield row.task_id, _record(number, row, extra, places.get(row.task_id))


def _record(number: int, row: TaskControlState, extra: RowExtras, join_place: int | None) -> TaskRecord:
    process = row.process
    join = None if process is None else process.join_result
    result = extra.result if process is None else None if join is None else join["result"]
    return TaskRecord(
        number,
        row.parent_task_id,
        row.lifecycle,
        list(row.capability_ids),
        None if process is None else process.role,
        None if process is None else process.isolation,
        None if process is None else process.context_inheritance,
        extra.launch_token,
        extra.attempt,
        row.tokens_used,
        row.turns_used,
        row.termination,
        row.wait,
        join_place,
        extra.awaited,
        extra.due_ms,
        extra.failure,
        None if result is None else encode(result),
    )


def _places(table: Sequence[TaskControlState], beside: Sequence[RowExtras]) -> dict[str, int]:
    """Return the place of every awaited child in its parent's join: those beside the rows, or counted from 0."""
    given = {
        row.task_id: extra.join_place for row, extra in zip(table, beside, strict=True) if extra.join_place is not None
    }
    counted = {child: place for row in table for place, child in enumerate(row.waiting_on)}
    if not given:
        return counted
    for row in table:
        places = [given.pop(child, None) for child in row.waiting_on]
        known = [place for place in places if place is not None]
        if len(known) != len(places) or known != sorted(set(known)):
            raise InvalidValue("extras", f"the places beside the rows disagree with waiting_on of {row.task_id!r}")
        counted.update(zip(row.waiting_on, known, strict=True))
    if given:
        raise InvalidValue("extras", f"{next(iter(given))!r} has a place in a join, but nothing waits on it")
    return counted


def _checked(table: Sequence[TaskControlState], beside: Sequence[Any]) -> list[RowExtras]:
    """Return one RowExtras a row, checked field by field and against its row. Raises InvalidValue with the path."""
    if len(beside) != len(table):
        raise InvalidValue(
            "extras", f"{len(beside)} for {len(table)} rows", hint="pass the extras of exactly these rows"
        )
    checked = []
    for at, (row, extra) in enumerate(zip(table, beside, strict=True)):
        if type(extra) is not RowExtras:
            raise InvalidValue(f"extras[{at}]", f"expected RowExtras, found {type(extra).__name__}")
        values = []
        for field, kind, value in zip(RowExtras._fields, _FIELDS, extra, strict=True):
            try:
                values.append(kind.check(value))
            except InvalidValue as error:
                raise error.at(f"extras[{at}].{field}") from None
        checked.append(RowExtras(*values))
        _fits(f"extras[{at}]", row, checked[-1])
    return checked


def _fits(path: str, row: TaskControlState, extra: RowExtras) -> None:
    """Raise InvalidValue when what stands beside a row could never have come to stand there."""
    misfits = {
        "attempt": extra.attempt < 1,
        "awaited": extra.awaited is not None and not row.wait,
        "due_ms": extra.due_ms is not None and not row.wait,
        "failure": extra.failure is not None and row.termination != "error",
        "result": extra.result is not None
        and (row.process is not None or row.lifecycle != DONE or type(extra.result) is not dict),
    }
    for field, misfit in misfits.items():
        if misfit:
            raise InvalidValue(f"{path}.{field}", f"{getattr(extra, field)!r:.60} cannot stand beside this row")
