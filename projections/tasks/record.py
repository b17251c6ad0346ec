"""The stored record of a task: the row's facts and what the fold knows beyond it. It must never hold anything derived.

``waiting_on`` is not here: which children a join still waits on stands in the children (``join_place``), so a child
that finishes changes its own record only, however many its parent waits on.
"""

from __future__ import annotations

from typing import Any, Self

__all__ = ["TaskRecord"]


class TaskRecord:
    """One task. ``result`` is the inner result as its canonical CBOR: immutable, so that nothing outside can change
    it."""

    __slots__ = (
        "attempt",
        "awaited",
        "capability_ids",
        "due_ms",
        "failure",
        "inheritance",
        "isolation",
        "join_place",
        "lifecycle",
        "number",
        "parent",
        "result",
        "role",
        "termination",
        "token",
        "tokens",
        "turns",
        "wait",
    )

    def __init__(
        self,
        number: int,
        parent: str | None,
        lifecycle: str,
        capability_ids: list[str],
        role: str | None = None,
        isolation: str | None = None,
        inheritance: str | None = None,
        token: str | None = None,
        attempt: int = 1,
        tokens: int = 0,
        turns: int = 0,
        termination: str | None = None,
        wait: str | None = None,
        join_place: int | None = None,
        awaited: str | None = None,
        due_ms: int | None = None,
        failure: str | None = None,
        result: bytes | None = None,
    ) -> None:
        self.number = number
        self.parent = parent
        self.lifecycle = lifecycle
        self.capability_ids = capability_ids
        self.role = role
        self.isolation = isolation
        self.inheritance = inheritance
        self.token = token
        self.attempt = attempt
        self.tokens = tokens
        self.turns = turns
        self.termination = termination
        self.wait = wait
        self.join_place = join_place
        self.awaited = awaited
        self.due_ms = due_ms
        self.failure = failure
        self.result = result

    def dump(self) -> list[Any]:
        """Return the record in the order of ``__init__``."""
        return [
            self.number,
            self.parent,
            self.lifecycle,
            self.capability_ids.copy(),
            self.role,
            self.isolation,
            self.inheritance,
            self.token,
            self.attempt,
            self.tokens,
            self.turns,
            self.termination,
            self.wait,
            self.join_place,
            self.awaited,
            self.due_ms,
            self.failure,
            self.result,
        ]

    @classmethod
    def load(cls, dumped: list[Any]) -> Self:
        """Return a record equal to the one dumped, sharing nothing with the list."""
        record = cls(*dumped)
        record.capability_ids = record.capability_ids.copy()
        return record
