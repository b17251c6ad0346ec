"""Whole tables: every violation of the contract at once, also between rows. It must never raise, whatever it is given,
and must never stop at the first fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from projections.tasks.row import plain
from projections.tasks.row_rules import check_row, ids_in, is_id
from projections.tasks.transitions import DONE, LIVE
from projections.tasks.violations import Report, Violation

__all__ = ["Violation", "validate_table"]


class _Row(NamedTuple):
    """A row that is at least an object, with what the rules between rows ask of it."""

    report: Report
    fields: dict[Any, Any]

    @property
    def parent(self) -> Any:
        """The parent's id, or None when there is none or it is not an id."""
        parent = self.fields.get("parent_task_id")
        return parent if is_id(parent) else None

    @property
    def is_root(self) -> bool:
        return self.fields.get("parent_task_id", 0) is None


def validate_table(rows: Any) -> list[Violation]:
    """Return every violation of sections 1 and 2 of the contract by a task table, in order of rows; [] when it is
    valid.

    ``rows`` are JSON objects as in the seed (``tokens_used`` a decimal string) or TaskControlState rows, in any mix.
    Each violation names the row (its index and task id), the field, the value and the rule. An empty table is valid: a
    run that has no tasks yet. Never raises.
    """
    violations: list[Violation] = []
    if not isinstance(rows, list | tuple):
        Report(None, violations=violations).add("table.shape", None, rows)
        return violations
    table: list[_Row] = []
    for index, given in enumerate(rows):
        fields = plain(given)
        report = Report(index, fields.get("task_id") if type(fields) is dict else None)
        check_row(fields, report)
        table.append(_Row(report, fields if type(fields) is dict else {}))
    known = _first_by_id(table)
    for row in table:
        _check_parent(row, known)
        _check_waiting_on(row, known)
    _check_cycles(table, known)
    _check_roots(table)
    for row in table:
        violations += row.report.violations
    if table and not any(row.is_root for row in table):
        Report(None, violations=violations).add("parent.one_root", None, None)
    return violations


def _first_by_id(table: Iterable[_Row]) -> dict[str, _Row]:
    """Return the rows by id, the first of each; note the others as duplicates."""
    known: dict[str, _Row] = {}
    for row in table:
        task_id = row.fields.get("task_id")
        if is_id(task_id) and known.setdefault(task_id, row) is not row:
            row.report.add("task_id.unique", "task_id", task_id)
    return known


def _check_parent(row: _Row, known: dict[str, _Row]) -> None:
    parent = row.parent
    if parent is None:
        return
    if parent not in known:
        row.report.add("parent.known", "parent_task_id", parent)
    elif known[parent].fields.get("lifecycle") == DONE and row.fields.get("lifecycle") in LIVE:
        row.report.add("parent.live", "parent_task_id", parent)


def _check_waiting_on(row: _Row, known: dict[str, _Row]) -> None:
    for at, child in ids_in(row.fields.get("waiting_on")):
        field = f"waiting_on[{at}]"
        if child not in known:
            row.report.add("waiting_on.known", field, child)
        elif child != row.fields.get("task_id"):
            if known[child].parent != row.fields.get("task_id"):
                row.report.add("waiting_on.child", field, child)
            if known[child].fields.get("lifecycle") == DONE:
                row.report.add("waiting_on.live", field, child)


def _check_cycles(table: Iterable[_Row], known: dict[str, _Row]) -> None:
    """Note every row that is its own ancestor. Each row is walked over once."""
    safe: set[str] = set()
    circular: set[str] = set()
    for start in known:
        path: dict[str, int] = {}
        at: str | None = start
        while at is not None and at in known and at not in safe and at not in path:
            path[at] = len(path)
            at = known[at].parent
        if at in path:
            circular.update(list(path)[path[at] :])
        safe.update(path)
    for row in table:
        task_id = row.fields.get("task_id")
        if is_id(task_id) and task_id in circular and known[task_id] is row:
            row.report.add("parent.no_cycle", "parent_task_id", row.parent)


def _check_roots(table: Iterable[_Row]) -> None:
    """Note every root after the first."""
    seen = False
    for row in table:
        if row.is_root:
            if seen:
                row.report.add("parent.one_root", "parent_task_id", None)
            seen = True
