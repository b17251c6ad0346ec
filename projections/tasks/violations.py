"""Violations of the contract of the task table: every rule by its name, and how a broken one is reported. It must never
raise, whatever it is given to show.

A rule has a stable name and one line of text; a violation names the row, the field, the value and the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from reprlib import Repr
from typing import Any, Final, NamedTuple

from projections.tasks.transitions import INHERITANCES, ISOLATIONS, JOIN, LIFECYCLES, ROLES, TERMINATIONS, WAITS

__all__ = ["PROCESS_FIELDS", "ROW_FIELDS", "RULE_TEXTS", "Report", "Violation", "shown"]

ROW_FIELDS: Final = (
    "task_id",
    "parent_task_id",
    "lifecycle",
    "termination",
    "wait",
    "waiting_on",
    "capability_ids",
    "process",
    "tokens_used",
    "turns_used",
)
"""The ten fields, in the order of the seed."""

PROCESS_FIELDS: Final = ("role", "isolation", "context_inheritance", "join_result")

RULE_TEXTS: Final[Mapping[str, str]] = {
    "table.shape": "a task table is a list of rows",
    "row.shape": "a row is an object",
    "row.missing_field": "every one of the ten fields is there",
    "row.unknown_field": "there are no fields but the ten",
    "task_id.form": "an id is text of 1..256 UTF-8 bytes, not blank, without control characters",
    "task_id.unique": "a task id is unique in the run",
    "parent.form": "the parent is a task id, or null for the root",
    "parent.known": "the parent is an existing row",
    "parent.no_cycle": "no task is its own ancestor",
    "parent.one_root": "exactly one row has no parent: the root",
    "parent.live": "a finished task has no live children: they are cancelled or detached when it finishes",
    "lifecycle.label": f"lifecycle is one of: {', '.join(LIFECYCLES)}",
    "termination.label": f"termination is null or one of: {', '.join(TERMINATIONS)}",
    "termination.exactly_done": "termination is set exactly when lifecycle is done",
    "wait.label": f"wait is null or one of: {', '.join(WAITS)}",
    "wait.exactly_suspended": "wait is set exactly when lifecycle is suspended",
    "waiting_on.form": "waiting_on is a list of task ids",
    "waiting_on.exactly_join": f"waiting_on is non-empty exactly for {JOIN}",
    "waiting_on.not_self": "a task never waits on itself",
    "waiting_on.unique": "waiting_on holds no duplicates",
    "waiting_on.known": "waiting_on names existing tasks",
    "waiting_on.child": "waiting_on names the task's own children",
    "waiting_on.live": "waiting_on names no finished child",
    "capability_ids.form": "capability_ids is a list of text",
    "capability_ids.unique": "capability_ids holds no duplicates",
    "process.exactly_child": "process is null exactly for the root",
    "process.shape": f"process is an object with exactly: {', '.join(PROCESS_FIELDS)}",
    "role.label": f"role is one of: {', '.join(ROLES)}",
    "isolation.label": f"isolation is one of: {', '.join(ISOLATIONS)}",
    "context_inheritance.label": f"context_inheritance is one of: {', '.join(INHERITANCES)}",
    "join_result.json": "join_result is JSON: depth <= 64, <= 1024 entries a container, finite numbers",
    "join_result.shape": (
        "join_result is {agent_id, result: {termination, final_message, turns_used, total_tokens_used, ...}}"
    ),
    "join_result.only_done": "only a finished child has a join_result",
    "join_result.agent_id": "agent_id in a join_result equals task_id",
    "join_result.termination": "termination in a join_result agrees with the row",
    "tokens_used.form": "tokens_used is an unsigned 64-bit number as a decimal string: no sign, no leading zero",
    "turns_used.form": "turns_used is an unsigned 32-bit number",
}
"""Every rule by its stable name."""

_SHOWN_ITEMS_MAX: Final = 100
"""Items that a list or an object may hold, all in all, to be shown as it is in a violation."""

_shorten = Repr()
_shorten.maxstring = _shorten.maxother = 120


class Violation(NamedTuple):
    """One broken rule: ``row`` is the index in the table (None: the table itself), ``field`` a path inside the row."""

    row: int | None
    task_id: str | None
    field: str | None
    value: Any
    rule: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the violation as a plain JSON object."""
        return self._asdict()

    def __str__(self) -> str:
        place = "table" if self.row is None else f"row {self.row}"
        name = "" if self.task_id is None else f" ({self.task_id})"
        field = "" if self.field is None else f" {self.field} = {self.value!r}:"
        return f"{place}{name}{field} {self.text} [{self.rule}]"


def shown(value: Any) -> Any:
    """Return a small plain JSON value that shows ``value``: itself, or a copy, when it is one, else a shortened
    description."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if value.bit_length() <= 64 else f"<integer of {value.bit_length()} bits>"
    if kind is float:
        return value if isfinite(value) else repr(value)
    if kind is str:
        short = value if len(value) <= 300 else f"{value[:297]}..."
        return short.encode("utf-8", "backslashreplace").decode("utf-8")
    if _is_small(value):
        if kind is dict:
            return {shown(key): shown(item) for key, item in value.items()}
        return [shown(item) for item in value]
    try:
        described = _shorten.repr(value)
    except Exception:  # somebody's __repr__, or an integer too long to print
        described = f"<{kind.__name__}>"
    return described.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_small(value: Any) -> bool:
    """Return whether a value is lists and objects of few plain items."""
    ahead, items = [value], 0
    while ahead:
        at = ahead.pop()
        kind = type(at)
        if kind is dict:
            if not all(type(key) is str for key in at):
                return False
            ahead += at.values()
        elif kind is list or kind is tuple:
            ahead += at
        elif not (at is None or kind is bool or kind is int or kind is float or kind is str):
            return False
        items += 1
        if items + len(ahead) > _SHOWN_ITEMS_MAX:
            return False
    return True


class Report:
    """Collects the violations of one row under construction of the list of all."""

    __slots__ = ("row", "task_id", "violations")

    def __init__(self, row: int | None, task_id: Any = None, violations: list[Violation] | None = None) -> None:
        self.row = row
        self.task_id = shown(task_id) if type(task_id) is str else None
        self.violations = [] if violations is None else violations

    def add(self, rule: str, field: str | None = None, value: Any = None) -> None:
        """Note that ``rule`` is broken by ``value`` in ``field``."""
        self.violations.append(Violation(self.row, self.task_id, field, shown(value), rule, RULE_TEXTS[rule]))
