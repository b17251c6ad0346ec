"""Deciders: what a projection must supply. Nothing here reads a clock, a file or a random number.

A projection is a table of event types, a state made of :class:`~engine.core.table.Table`, an ``evolve`` table (event
name -> function that changes the state in place and never refuses) and ``decide`` (refuses, or returns the events that
follow from a command). :mod:`engine.core.state` folds several of them from one stream, :mod:`engine.core.model` decides
across them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol, TypeAlias

from engine.core.catalog import EventType, Upcast, Wire
from engine.core.codec import encode_exactly
from engine.core.table import Table

__all__ = [
    "Admit",
    "Command",
    "Decision",
    "Evolve",
    "Guard",
    "Moment",
    "Projection",
    "Reaction",
    "State",
    "fingerprint_of",
]

FINGERPRINT_BYTES = 16


class State(Protocol):
    """A projection's state: its tables, and ``reindex`` to rebuild whatever is derived from them."""

    @property
    def tables(self) -> tuple[Table[Any], ...]: ...

    def reindex(self) -> None: ...


class Moment:
    """What the shell knows and a decision may use: the run, the seq that the decision's first event will get, the
    time, the actor.

    The engine moves ``seq`` on between the facts of one ingest; a projection reads it and keeps nothing of it.
    """

    __slots__ = ("actor", "at_ms", "run_id", "seq")

    def __init__(self, run_id: str, seq: int, at_ms: int, actor: str | None = None) -> None:
        self.run_id, self.seq, self.at_ms, self.actor = run_id, seq, at_ms, actor


class Command(Protocol):
    """A request to a projection. ``content`` is what makes two commands the same: a plain JSON value without time and
    actor."""

    @property
    def projection(self) -> str: ...

    @property
    def name(self) -> str: ...

    def content(self) -> Any: ...


class Decision:
    """The events of one decision in the making. ``emit`` returns a handle that later events can name as their cause."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[Wire] = []

    def emit(self, event_type: EventType, *values: Any, cause: int = 0) -> int:
        """Append an event with values in field order, already checked; ``cause`` is a handle from an earlier emit, or
        0 for the command."""
        wire = event_type.wire(*values)
        self.events.append(wire)
        handle = len(self.events)
        if cause:
            assert 0 < cause < handle
            wire[1] = handle - cause
        return handle


Evolve: TypeAlias = Callable[[Any, Wire, int], None]
"""``evolve(state, wire, seq)``: changes the state in place; ``wire[2:]`` are the fields; never refuses."""

Reaction: TypeAlias = Callable[[Mapping[str, Any], Wire, Moment], Sequence[Wire]]
"""``react(states by projection, event just applied, moment)``: the events of other projections that follow from it in
the same commit."""


Admit: TypeAlias = Callable[[Any, Wire, Moment], Sequence[Wire]]
"""``admit(state, wire, moment)``: what recording a fact appends."""

Guard: TypeAlias = Callable[[Mapping[str, Any], Wire], None]
"""``guard(states by projection, event about to be folded)``: raises Refused when another projection's state forbids
it."""


class Projection(Protocol):
    """One bounded context: events, state, evolve, decide."""

    @property
    def name(self) -> str: ...

    @property
    def events(self) -> tuple[EventType, ...]: ...

    @property
    def upcasts(self) -> tuple[Upcast, ...]: ...

    @property
    def evolve(self) -> Mapping[str, Evolve]: ...

    def initial(self) -> Any:
        """Return the empty state."""
        ...

    def decide(self, state: Any, command: Any, moment: Moment) -> Sequence[Wire]:
        """Return the events that follow from the command, [] when it repeats what already is; raise Refused. Changes
        nothing."""
        ...

    def admit(self, state: Any, wire: Wire, moment: Moment) -> Sequence[Wire]:
        """Return what recording a fact that another runtime decided appends: the fact itself, checked by the same
        legality table. Raise Refused.

        A projection that has one such function an event may name them in ``rules`` (event name -> function); these are
        then called without the way through here.
        """
        ...


def fingerprint_of(command: Command) -> bytes:
    """Return what identifies a command's content, for the ledger: 16 bytes of SHA-256 over projection, name and
    content. Raises InvalidValue when the content is not plain values."""
    content = [command.projection, command.name, command.content()]
    return sha256(encode_exactly(content, command.name)).digest()[:FINGERPRINT_BYTES]
