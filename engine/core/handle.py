"""Handles: how callers read a projection and command it. A handle must never keep state of its own; it holds two
functions and asks them.

``Queries`` run a function over the projection's state under the run's lock and hand out immutable copies; ``Commands``
add ``submit``.
A view of the past hands out Queries only, so a command to the past is not even spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from engine.core.decider import Command
from engine.core.envelope import Event

__all__ = ["Commands", "Outcome", "Queries", "Submit"]

S = TypeVar("S")
T = TypeVar("T")


class Outcome:
    """What a command gave: its events (none when it repeated what already was) and the run's position after them.

    ``repeated`` is true when the command id had been used before with the same content; events and position are then
    those of the first time. Inside a batch the events are final but not yet durable; they are durable when the batch
    block ends without an error. Events are built when they are first asked for.
    """

    __slots__ = ("_events", "_load", "count", "position", "repeated")

    def __init__(
        self, position: int, count: int, load: Callable[[], Sequence[Event]], *, repeated: bool = False
    ) -> None:
        self.position = position
        self.count = count
        self.repeated = repeated
        self._load = load
        self._events: tuple[Event, ...] | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        """The events in order of seq."""
        if self._events is None:
            self._events = tuple(self._load())
        return self._events

    @property
    def changed(self) -> bool:
        """Whether anything was recorded, now or the first time."""
        return self.count > 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Outcome):
            return NotImplemented
        return self.position == other.position and self.events == other.events

    __hash__ = None  # type: ignore[assignment]  # compared by value, never a key

    def __repr__(self) -> str:
        return f"Outcome(position={self.position}, count={self.count}, repeated={self.repeated})"


class Submit(Protocol):
    """The shell's entry: decides, appends and folds one command. Raises Refused, Conflict, BackendUnavailable,
    LimitExceeded."""

    def __call__(
        self,
        command: Command,
        *,
        command_id: str | None = None,
        actor: str | None = None,
        at_ms: int | None = None,
        cause: int | str | None = None,
    ) -> Outcome: ...


class Queries(Generic[S]):
    """Reading side of a projection at one position."""

    def __init__(self, ask: Callable[[Callable[[Any], Any]], Any]) -> None:
        self._ask_untyped = ask

    def _ask(self, question: Callable[[S], T]) -> T:
        """Return ``question(state)``, asked under the run's lock. The answer must share nothing mutable with the
        state."""
        answer: T = self._ask_untyped(question)
        return answer


class Commands(Queries[S]):
    """Reading and commanding side of a projection of a live run."""

    def __init__(self, ask: Callable[[Callable[[Any], Any]], Any], submit: Submit) -> None:
        super().__init__(ask)
        self._submit = submit
