"""Deciders: what a projection must supply, and their product, the model. Nothing here reads a clock, a file or a
random number.

A projection is a table of event types, a state made of :class:`~engine.core.table.Table`, an ``evolve`` table (event
name -> function that changes the
state in place and never refuses) and ``decide`` (refuses, or returns the events that follow from a command). A model
is several projections folded
from one stream, and the reactions between them. Restore and the live path both go through :meth:`ModelState.apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from types import MethodType
from typing import Any, Protocol, TypeAlias

from engine.core.catalog import Catalog, EventType, Tag, Upcast, Wire
from engine.core.codec import encode, encode_exactly
from engine.core.envelope import Group
from engine.core.errors import NotFound, Refused, SchemaError
from engine.core.table import Table

__all__ = [
    "COMMAND_NOTED",
    "Command",
    "Decision",
    "Evolve",
    "Guard",
    "Model",
    "ModelState",
    "Moment",
    "Projection",
    "Reaction",
    "State",
]

STATE_FORMAT = 1
FINGERPRINT_BYTES = 16

COMMAND_NOTED = EventType(
    "run.command_noted", (), "A command with an id was accepted and changed nothing; its id is taken.", number=1
)


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


class _LedgerRow:
    """What a command id was used for: the fingerprint of its content, and the events it gave."""

    __slots__ = ("count", "fingerprint", "first")

    def __init__(self, fingerprint: bytes, first: int, count: int) -> None:
        self.fingerprint, self.first, self.count = fingerprint, first, count

    def dump(self) -> list[Any]:
        return [self.fingerprint, self.first, self.count]

    @classmethod
    def load(cls, dumped: list[Any]) -> _LedgerRow:
        return cls(*dumped)


class ModelState:
    """Everything a run is at one position: the states of all projections and the ledger of command ids. Changed only
    by :meth:`apply`."""

    __slots__ = ("admits", "handlers", "ledger", "model", "parts", "seq", "tables")

    def __init__(self, model: Model) -> None:
        self.model = model
        self.seq = 0
        self.parts: dict[str, Any] = {projection.name: projection.initial() for projection in model.projections}
        self.ledger: Table[_LedgerRow] = Table("ledger", _LedgerRow)
        self.tables: dict[str, Table[Any]] = {"run.ledger": self.ledger}
        for name, part in self.parts.items():
            for table in part.tables:
                self.tables[f"{name}.{table.name}"] = table
        self.handlers = self._bind()
        self.admits: dict[Tag, Callable[[Wire, Moment], Sequence[Wire]]] = {
            tag: MethodType(admit, self.parts[projection]) for tag, (projection, admit) in model.admitting.items()
        }

    def _bind(self) -> dict[Tag, Callable[[Wire, int], None]]:
        """Return tag -> function of (wire, seq), with the state bound in and older versions lifted on the way."""
        handlers: dict[Tag, Callable[[Wire, int], None]] = {COMMAND_NOTED.tag: lambda wire, seq: None}
        for projection in self.model.projections:
            part = self.parts[projection.name]
            for event_type in projection.events:
                handlers[event_type.tag] = MethodType(projection.evolve[event_type.name], part)
        lift = self.model.catalog.lift
        for tag in self.model.catalog.older:

            def lifted(wire: Wire, seq: int) -> None:
                current = lift(wire)
                handlers[current[0]](current, seq)

            handlers[tag] = lifted
        return handlers

    def part(self, name: str) -> Any:
        """Return the state of one projection. Raises NotFound when the model has none of that name."""
        found = self.parts.get(name)
        if found is None:
            has = ", ".join(self.parts)
            raise NotFound(f"the model has no projection {name!r}", hint=f"it has: {has}", projection=name)
        return found

    # -- the fold ---------------------------------------------------------------------------------------------------

    def apply(self, groups: Iterable[Group]) -> None:
        """Fold the groups of a commit into the state. The one function that live, restore, verify and time travel
        share."""
        handlers = self.handlers
        seq = self.seq
        for _, _, command_id, fingerprint, _, events in groups:
            if command_id is not None:
                self.note(command_id, fingerprint, seq + 1, len(events))
            for wire in events:
                seq += 1
                try:
                    handler = handlers[wire[0]]
                except (KeyError, TypeError, IndexError):
                    raise self._unknown(wire, seq) from None
                handler(wire, seq)
        self.seq = seq

    def _unknown(self, wire: Wire, seq: int) -> SchemaError:
        error = self.model.catalog.unknown(wire[0] if wire else None)
        return SchemaError(f"position {seq}: {error.message}", hint=error.hint, position=seq, **error.details)

    def apply_wire(self, wire: Wire) -> None:
        """Fold one event of a decision in the making."""
        self.seq += 1
        self.handlers[wire[0]](wire, self.seq)

    def note(self, command_id: str, fingerprint: bytes, first: int, count: int) -> None:
        """Record that a command id is taken. A prefix that ends inside the command's events notes the events it has;
        the rest of them, folded later, is noted with them."""
        row = self.ledger.rows.get(command_id)
        if row is None:
            self.ledger.add(command_id, _LedgerRow(fingerprint, first, count))
        elif first == row.first + row.count and fingerprint == row.fingerprint:
            self.ledger.edit(command_id).count += count

    # -- a commit in the making ---------------------------------------------------------------------------------------

    def begin(self) -> int:
        """Start a commit in the making; return the seq to give to :meth:`put_back`."""
        for table in self.tables.values():
            table.begin()
        return self.seq

    def keep(self) -> None:
        """The commit is durable."""
        for table in self.tables.values():
            table.keep()

    def put_back(self, seq: int) -> None:
        """The commit did not happen: state, indexes and position are as they were at :meth:`begin`."""
        folded = self.seq != seq  # an interrupted evolve may have changed what is derived before it touched a table
        touched = [table.put_back() for table in self.tables.values()]
        self.seq = seq
        if folded or any(touched):
            self.reindex()

    def reindex(self) -> None:
        """Rebuild everything that is derived from the tables."""
        for part in self.parts.values():
            part.reindex()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def encoded(self) -> Iterable[bytes]:
        """Yield the deterministic encoding of the whole state in pieces; equal states give equal bytes and the other
        way round.

        Tables come in the order of their names; empty ones are left out, so that a projection added later does not
        move old digests.
        """
        yield encode(["refold.state", STATE_FORMAT, self.seq])
        for name in sorted(self.tables):
            table = self.tables[name]
            if not table.rows:
                continue
            yield encode([name, len(table.rows)])
            for key, row in table.ordered():
                yield encode([key, row.dump()])

    def digest(self) -> str:
        """Return SHA-256 over :meth:`encoded`, 64 hex digits."""
        hasher = sha256()
        for piece in self.encoded():
            hasher.update(piece)
        return hasher.hexdigest()

    def bytes(self) -> bytes:
        """Return :meth:`encoded` as one string, for comparisons that want to see the difference."""
        return b"".join(self.encoded())


@dataclass(frozen=True)
class Model:
    """The product of several projections over one stream; the reactions and guards between them, by event name."""

    projections: tuple[Projection, ...]
    reactions: Mapping[str, tuple[Reaction, ...]] = field(default_factory=dict)
    guards: Mapping[str, tuple[Guard, ...]] = field(default_factory=dict)
    catalog: Catalog = field(init=False)
    by_name: Mapping[str, Projection] = field(init=False)
    owner: Mapping[Tag, Projection] = field(init=False)
    reacting: Mapping[Tag, tuple[Reaction, ...]] = field(init=False)
    guarded: Mapping[Tag, tuple[Guard, ...]] = field(init=False)
    admitting: Mapping[Tag, tuple[str, Admit]] = field(init=False)
    fingerprint: bytes = field(init=False)

    def __post_init__(self) -> None:
        types = [COMMAND_NOTED, *(event_type for projection in self.projections for event_type in projection.events)]
        catalog = Catalog(types, (step for projection in self.projections for step in projection.upcasts))
        put = object.__setattr__
        put(self, "catalog", catalog)
        put(self, "by_name", {projection.name: projection for projection in self.projections})
        put(
            self,
            "owner",
            {event_type.tag: projection for projection in self.projections for event_type in projection.events},
        )
        put(self, "reacting", {catalog.by_name[name].tag: reactions for name, reactions in self.reactions.items()})
        put(self, "guarded", {catalog.by_name[name].tag: guards for name, guards in self.guards.items()})
        put(
            self,
            "admitting",
            {
                event_type.tag: (
                    projection.name,
                    getattr(projection, "rules", {}).get(event_type.name, projection.admit),
                )
                for projection in self.projections
                for event_type in projection.events
            },
        )
        put(self, "fingerprint", self._fingerprint())

    def _fingerprint(self) -> bytes:
        """Return what a checkpoint must have been written under to be read back: state format, table names, event
        schemas, state versions."""
        schema = [
            [
                projection.name,
                getattr(projection, "state_version", 1),
                [[e.label, *(f"{f.name}:{f.type.label}" for f in e.fields)] for e in projection.events],
            ]
            for projection in self.projections
        ]
        tables = sorted(
            f"{projection.name}.{table.name}"
            for projection in self.projections
            for table in projection.initial().tables
        )
        return sha256(encode([STATE_FORMAT, schema, tables])).digest()[:8]

    def initial(self) -> ModelState:
        """Return the state before the first event."""
        return ModelState(self)

    def decide(self, state: ModelState, command: Command, moment: Moment) -> list[Wire]:
        """Decide a command and its consequences in other projections, folding each event into ``state`` (a commit in
        the making).

        Raises Refused; the caller puts the state back.
        """
        projection = self.by_name[command.projection]
        first = moment.seq
        drafts = list(projection.decide(state.parts[projection.name], command, moment))
        return self._settle(state, drafts, moment, first)

    def admit(self, state: ModelState, wires: Sequence[Wire], moment: Moment) -> list[Wire]:
        """As :meth:`decide`, for facts that another runtime decided, each checked against the state that those before
        it left."""
        events: list[Wire] = []
        admits, handlers = state.admits, state.handlers
        reacting, guarded = self.reacting, self.guarded
        first = moment.seq
        for fact in wires:
            admit = admits.get(fact[0])
            if admit is None:
                raise Refused("the engine's own events cannot be ingested", hint="give the facts of a projection")
            moment.seq = first + len(events)
            admitted = admit(fact, moment)
            if len(admitted) == 1 and (tag := admitted[0][0]) not in guarded:  # nearly always
                wire = admitted[0]
                state.seq += 1
                handlers[tag](wire, state.seq)  # a projection may record the fact as another event
                events.append(wire)
                if tag in reacting:
                    self._follow(state, events, len(events) - 1, moment, first)
            else:
                events += self._settle(state, list(admitted), moment, first + len(events))
        return events

    def _settle(self, state: ModelState, events: list[Wire], moment: Moment, first: int) -> list[Wire]:
        """Fold the drafts of a decision that begins at ``first``, and what follows from them; return all of it."""
        for wire in events:
            for guard in self.guarded.get(wire[0], ()):
                guard(state.parts, wire)
        for wire in events:
            state.apply_wire(wire)
        if self.reacting:
            self._follow(state, events, 0, moment, first)
        return events

    def _follow(self, state: ModelState, events: list[Wire], done: int, moment: Moment, first: int) -> None:
        """Let the other projections react to each event from index ``done`` on, in turn, until nothing follows."""
        while done < len(events):
            for react in self.reacting.get(events[done][0], ()):
                moment.seq = first + len(events)
                for wire in react(state.parts, events[done], moment):
                    if wire[1] == 0:
                        wire[1] = len(events) - done
                    events.append(wire)
                    state.apply_wire(wire)
            done += 1


def fingerprint_of(command: Command) -> bytes:
    """Return what identifies a command's content, for the ledger: 16 bytes of SHA-256 over projection, name and
    content. Raises InvalidValue when the content is not plain values."""
    content = [command.projection, command.name, command.content()]
    return sha256(encode_exactly(content, command.name)).digest()[:FINGERPRINT_BYTES]
