"""The model: the product of several projections over one stream, and the reactions and guards between them. It must
never know what any of their events mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from engine.core.catalog import Catalog, Tag, Wire
from engine.core.codec import encode
from engine.core.decider import Admit, Command, Guard, Moment, Projection, Reaction
from engine.core.errors import Refused
from engine.core.state import COMMAND_NOTED, STATE_FORMAT, ModelState

__all__ = ["Model"]


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
