"""The task tables that a recording carries, to compare ours with. No import may read them.

:func:`expected` makes a recorded table comparable by the differences that are deliberate: finished children leave a
join, a join that runs empty has ended, a child that was cancelled by its own report is ``user_abort`` on its row as in
its join result, and usage is left out (the kernel's rows never carry it).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from engine.core.codec import digest

__all__ = ["comparable", "digests", "expected"]

NOT_COMPARED = ("tokens_used", "turns_used")


class Row(Protocol):
    """A row of ours."""

    def to_json(self) -> dict[str, Any]: ...


def comparable(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows of ours as JSON, without what is not compared."""
    return [{key: value for key, value in row.to_json().items() if key not in NOT_COMPARED} for row in rows]


def expected(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a recorded table as ours must be, without what is not compared."""
    done = {row["task_id"] for row in table if row["lifecycle"] == "done"}
    rows = []
    for recorded in table:
        row = {key: value for key, value in recorded.items() if key not in NOT_COMPARED}
        row["waiting_on"] = [child for child in row["waiting_on"] if child not in done]
        if row["wait"] == "sub_agent_join" and not row["waiting_on"]:
            row["lifecycle"], row["wait"] = "running", None
        joined = (row["process"] or {}).get("join_result")
        if joined is not None and joined["result"]["termination"] == "user_abort":
            row["termination"] = "user_abort"
        rows.append(row)
    return rows


def digests(rows: Iterable[Row], recording: Mapping[str, Any], step: int = -1) -> tuple[str, str]:
    """Return the digests of our rows and of the table recorded after ``step``: equal when the tables are."""
    ours, theirs = comparable(rows), expected(recording["task_tables"][step])
    found, wanted = (json.dumps(table, sort_keys=True).encode() for table in (ours, theirs))
    return digest(found), digest(wanted)
