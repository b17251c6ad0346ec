"""Views: the whole state as of a position, read-only. A view must never offer a command; it has queries only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from engine.core.decider import ModelState
from engine.restore import Restored, RestoreReport

__all__ = ["StateView"]

T = TypeVar("T")


class StateView:
    """The state of a run at one position. Made by ``run.at(n)`` and ``store.view(run, at=n)``."""

    def __init__(self, run_id: str, restored: Restored) -> None:
        self.id = run_id
        self._restored = restored

    @property
    def position(self) -> int:
        """The position that this view shows."""
        return self._restored.state.seq

    @property
    def report(self) -> RestoreReport:
        """How the view was restored."""
        return self._restored.report

    def ask(self, question: Callable[[ModelState], T]) -> T:
        """Return ``question(state)``. The answer must share nothing mutable with the state."""
        return question(self._restored.state)

    def ask_projection(self, name: str) -> Callable[[Callable[[Any], Any]], Any]:
        """Return the ``ask`` of one projection, as its Queries class takes it. Raises NotFound when the model has none
        of that name."""
        part = self._restored.state.part(name)
        return lambda question: question(part)

    def digest(self) -> str:
        """Return the state digest, 64 hex digits."""
        return self._restored.state.digest()

    def state_bytes(self) -> bytes:
        """Return the deterministic encoding of the state."""
        return self._restored.state.bytes()
