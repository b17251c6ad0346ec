"""What is believed: bytes whose links hold were valid when they were written, so nothing checks their fields again on
the way into a fold. Here is what becomes of those that were written by somebody else. It must never hide an error that
has another cause: only code that reads nothing but what is stored may stand in a ``believing`` block.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

from engine.core.errors import CorruptJournal

__all__ = ["IMPOSSIBLE", "believing", "impossible"]

IMPOSSIBLE: Final = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError, ArithmeticError,
)  # fmt: skip
"""What code that believes may raise over bytes that verify but that no decision could have given."""


class believing:
    """A block that reads what a commit of ``run_id`` at ``position`` says, or the state that follows from it; whatever
    it stumbles over leaves it as CorruptJournal."""

    __slots__ = ("_position", "_run_id")

    def __init__(self, run_id: str, position: int) -> None:
        self._run_id, self._position = run_id, position

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, IMPOSSIBLE):
            raise impossible(self._run_id, self._position, error) from error


def impossible(run_id: str, position: int, error: BaseException) -> CorruptJournal:
    """Return the error for one of IMPOSSIBLE that was met at ``position`` of a run."""
    return CorruptJournal(run_id, position, "events that follow from those before", f"{type(error).__name__}: {error}")
