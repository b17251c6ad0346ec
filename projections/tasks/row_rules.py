"""The rules that one row can break by itself (sections 1 and 2 of the contract). It must never look at another row, and
must never raise, whatever it is given.

Rules between rows are in :mod:`projections.tasks.validate`, the names and texts of all in
:mod:`projections.tasks.violations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeGuard

from engine.core.codec import normalise, text
from engine.core.errors import InvalidValue
from engine.core.fields import check_id
from engine.core.limits import U32_MAX, U64_MAX
from projections.tasks.transitions import (
    DONE,
    INHERITANCES,
    ISOLATIONS,
    JOIN,
    LIFECYCLES,
    ROLES,
    SUSPENDED,
    TERMINATIONS,
    WAITS,
)
from projections.tasks.violations import PROCESS_FIELDS, ROW_FIELDS, Report, shown

__all__ = ["check_row", "ids_in", "is_id"]

_ABSENT: Final = object()


def is_id(value: Any) -> TypeGuard[str]:
    """Return whether a value is a well-formed task id."""
    return _passes(check_id, value)


def ids_in(value: Any) -> list[tuple[int, str]]:
    """Return (place, id) for the well-formed ids in what should be a list of them."""
    return [(at, item) for at, item in enumerate(value) if is_id(item)] if _is_list(value) else []


def check_row(row: Any, report: Report) -> None:
    """Add to the report every rule that this row breaks by itself."""
    if type(row) is not dict:
        report.add("row.shape", None, row)
        return
    for field in ROW_FIELDS:
        if field not in row:
            report.add("row.missing_field", field)
    for key in row:
        if key not in ROW_FIELDS:
            report.add("row.unknown_field", shown(key) if type(key) is str else repr(shown(key)), row[key])
    for field, check in _CHECKS.items():
        if field in row:
            check(row, row[field], report)


def _task_id(row: dict[Any, Any], value: Any, report: Report) -> None:
    if not is_id(value):
        report.add("task_id.form", "task_id", value)


def _parent(row: dict[Any, Any], value: Any, report: Report) -> None:
    if value is not None and not is_id(value):
        report.add("parent.form", "parent_task_id", value)


def _lifecycle(row: dict[Any, Any], value: Any, report: Report) -> None:
    _label("lifecycle", value, LIFECYCLES, report)


def _termination(row: dict[Any, Any], value: Any, report: Report) -> None:
    if value is not None:
        _label("termination", value, TERMINATIONS, report)
    if (value is not None) != (row.get("lifecycle") == DONE):
        report.add("termination.exactly_done", "termination", value)


def _wait(row: dict[Any, Any], value: Any, report: Report) -> None:
    if value is not None:
        _label("wait", value, WAITS, report)
    if (value is not None) != (row.get("lifecycle") == SUSPENDED):
        report.add("wait.exactly_suspended", "wait", value)


def _waiting_on(row: dict[Any, Any], value: Any, report: Report) -> None:
    if not _is_list(value):
        report.add("waiting_on.form", "waiting_on", value)
        return
    if bool(value) != (row.get("wait") == JOIN):
        report.add("waiting_on.exactly_join", "waiting_on", value)
    _items("waiting_on", value, is_id, report)
    for at, item in enumerate(value):
        if type(item) is str and item == row.get("task_id"):
            report.add("waiting_on.not_self", f"waiting_on[{at}]", item)


def _capability_ids(row: dict[Any, Any], value: Any, report: Report) -> None:
    if not _is_list(value):
        report.add("capability_ids.form", "capability_ids", value)
        return
    _items("capability_ids", value, lambda item: _passes(lambda item: text(item, ""), item), report)


def _process(row: dict[Any, Any], value: Any, report: Report) -> None:
    parent = row.get("parent_task_id", _ABSENT)
    if parent is not _ABSENT and (value is None) != (parent is None):
        report.add("process.exactly_child", "process", value)
    if value is None:
        return
    if type(value) is not dict:
        report.add("process.shape", "process", value)
        return
    for field in (*(f for f in PROCESS_FIELDS if f not in value), *(k for k in value if k not in PROCESS_FIELDS)):
        report.add("process.shape", f"process.{shown(field)}", value.get(field))
    for field, labels in (("role", ROLES), ("isolation", ISOLATIONS), ("context_inheritance", INHERITANCES)):
        if field in value:
            _label(field, value[field], labels, report, prefix="process.")
    if value.get("join_result") is not None:
        _join_result(row, value["join_result"], report)


def _join_result(row: dict[Any, Any], join: Any, report: Report) -> None:
    field = "process.join_result"
    if row.get("lifecycle") in LIFECYCLES and row.get("lifecycle") != DONE:
        report.add("join_result.only_done", field, join)
    try:
        normalise(join)
    except InvalidValue as error:
        report.add("join_result.json", f"{field}.{error.path}" if error.path else field, error.problem)
    if type(join) is not dict or set(join) != {"agent_id", "result"} or type(join["result"]) is not dict:
        report.add("join_result.shape", field, join)
        return
    if type(join["agent_id"]) is not str or join["agent_id"] != row.get("task_id"):
        report.add("join_result.agent_id", f"{field}.agent_id", join["agent_id"])
    result = join["result"]
    for name, maximum in (("turns_used", U32_MAX), ("total_tokens_used", U64_MAX)):
        if not _is_unsigned(result.get(name), maximum):
            report.add("join_result.shape", f"{field}.result.{name}", result.get(name))
    if "final_message" not in result:
        report.add("join_result.shape", f"{field}.result.final_message")
    said = result.get("termination")
    if type(said) is not str or said not in TERMINATIONS:
        report.add("join_result.shape", f"{field}.result.termination", said)
    elif row.get("lifecycle") == DONE and said != row.get("termination"):
        report.add("join_result.termination", f"{field}.result.termination", said)


def _tokens(row: dict[Any, Any], value: Any, report: Report) -> None:
    good = type(value) is str and value.isdecimal() and len(value) <= 20
    if not good or str(number := int(value)) != value or number > U64_MAX:
        report.add("tokens_used.form", "tokens_used", value)


def _turns(row: dict[Any, Any], value: Any, report: Report) -> None:
    if not _is_unsigned(value, U32_MAX):
        report.add("turns_used.form", "turns_used", value)


_CHECKS: Final[Mapping[str, Callable[[dict[Any, Any], Any, Report], None]]] = {
    "task_id": _task_id,
    "parent_task_id": _parent,
    "lifecycle": _lifecycle,
    "termination": _termination,
    "wait": _wait,
    "waiting_on": _waiting_on,
    "capability_ids": _capability_ids,
    "process": _process,
    "tokens_used": _tokens,
    "turns_used": _turns,
}


def _is_list(value: Any) -> bool:
    return type(value) is list or type(value) is tuple


def _is_unsigned(value: Any, maximum: int) -> bool:
    return type(value) is int and 0 <= value <= maximum


def _passes(check: Callable[[Any], Any], value: Any) -> bool:
    try:
        check(value)
    except InvalidValue:
        return False
    return True


def _label(field: str, value: Any, labels: Iterable[str], report: Report, prefix: str = "") -> None:
    if type(value) is not str or value not in labels:
        report.add(f"{field}.label", prefix + field, value)


def _items(field: str, value: Iterable[Any], good: Callable[[Any], bool], report: Report) -> None:
    """Check the items of a list: each well-formed, none twice."""
    seen: set[str] = set()
    for at, item in enumerate(value):
        if not good(item):
            report.add(f"{field}.form", f"{field}[{at}]", item)
        elif item in seen:
            report.add(f"{field}.unique", f"{field}[{at}]", item)
        else:
            seen.add(item)
