"""Projections with one planted bug each, and the sound one that they are all made from: a bag of words in tables. What
the kit must find, and what it must leave alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from engine.core.catalog import EventType, Upcast, Wire
from engine.core.codec import normalise
from engine.core.command import CommandModel
from engine.core.decider import Decision, Evolve, Moment
from engine.core.errors import NotFound
from engine.core.fields import ID, JSON, TEXT, U32, Field
from engine.core.model import Model
from engine.core.table import Table

STARTED = EventType("bag.started", (Field("bag", ID), Field("note", JSON)))
FILLED_1 = EventType("bag.filled", (Field("bag", ID), Field("word", TEXT)))
FILLED = EventType("bag.filled", (Field("bag", ID), Field("word", TEXT), Field("times", U32)), version=2)
EMPTIED = EventType("bag.emptied", (Field("bag", ID),))


class StartBag(CommandModel):
    projection: ClassVar[str] = "bags"
    name: ClassVar[str] = "start"
    bag: str
    note: Any = None


class FillBag(CommandModel):
    projection: ClassVar[str] = "bags"
    name: ClassVar[str] = "fill"
    bag: str
    words: list[str]


class EmptyBag(CommandModel):
    projection: ClassVar[str] = "bags"
    name: ClassVar[str] = "empty"
    bag: str


class Bag:
    """A bag: its note, its words in order, and how often it was filled."""

    __slots__ = ("fills", "note", "words")

    def __init__(self, note: Any, words: list[str], fills: int) -> None:
        self.note, self.words, self.fills = normalise(note), list(words), fills

    def dump(self) -> list[Any]:
        return [normalise(self.note), list(self.words), self.fills]

    @classmethod
    def load(cls, dumped: list[Any]) -> Bag:
        return cls(*dumped)


class Bags:
    def __init__(self, record: type[Any]) -> None:
        self.bags: Table[Any] = Table("bags", record)
        self.tables = (self.bags,)

    def reindex(self) -> None:
        """Nothing is derived."""


class Sound:
    """The projection without a bug. Each of the others overrides what it needs for its own."""

    name = "bags"
    events = (STARTED, FILLED, EMPTIED)
    upcasts = (Upcast(FILLED_1, lambda fields: [*fields, 1]),)
    commands = (StartBag, FillBag, EmptyBag)
    record: type[Any] = Bag

    @property
    def evolve(self) -> dict[str, Evolve]:
        return {"bag.started": self.started, "bag.filled": self.filled, "bag.emptied": self.emptied}

    def initial(self) -> Bags:
        return Bags(self.record)

    @staticmethod
    def started(state: Bags, wire: Wire, seq: int) -> None:
        state.bags.add(wire[2], state.bags.load([wire[3], [], 0]))

    @staticmethod
    def filled(state: Bags, wire: Wire, seq: int) -> None:
        bag = state.bags.edit(wire[2])
        bag.words += [wire[3]] * wire[4]
        bag.fills += 1

    @staticmethod
    def emptied(state: Bags, wire: Wire, seq: int) -> None:
        state.bags.edit(wire[2]).words = []

    def decide(self, state: Bags, command: Any, moment: Moment) -> Sequence[Wire]:
        bag = state.bags.get(command.bag)
        if isinstance(command, StartBag):
            return [] if bag is not None else [STARTED.check({"bag": command.bag, "note": command.note})]
        if bag is None:
            raise NotFound(f"no bag {command.bag!r}", hint="start it first")
        if isinstance(command, EmptyBag):
            return [EMPTIED.wire(command.bag)] if bag.words else []
        decision = Decision()
        for word in dict.fromkeys(command.words):
            decision.emit(FILLED, command.bag, word, min(3, command.words.count(word)))
        return decision.events

    def admit(self, state: Bags, wire: Wire, moment: Moment) -> Sequence[Wire]:
        if (state.bags.get(wire[2]) is None) != (wire[0] == STARTED.tag):
            raise NotFound(f"no such bag, or one too many: {wire[2]!r}", hint="start it once")
        if wire[0] == FILLED.tag and wire[4] > 3:
            raise NotFound("that is too often", hint="3 is the most")
        return [wire]


# -- hidden caches ----------------------------------------------------------------------------------------------------

_seen: set[str] = set()


class HiddenGlobal(Sound):
    """Decides by a module variable that evolve fills: a restore from a checkpoint does not."""

    @staticmethod
    def filled(state: Bags, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        _seen.add(wire[3])

    def decide(self, state: Bags, command: Any, moment: Moment) -> Sequence[Wire]:
        events = super().decide(state, command, moment)
        return [wire for wire in events if wire[0] != FILLED.tag or wire[3] not in _seen]


class HiddenInObject(Sound):
    """Keeps what it knows on the projection object."""

    def __init__(self) -> None:
        self.last: dict[str, list[str]] = {}

    def decide(self, state: Bags, command: Any, moment: Moment) -> Sequence[Wire]:
        if isinstance(command, FillBag):
            if self.last.get(command.bag) == command.words:
                return []
            self.last[command.bag] = command.words
        return super().decide(state, command, moment)


class HiddenInState(Sound):
    """Keeps a counter on the state beside its tables, and never rebuilds it."""

    def initial(self) -> Bags:
        state = super().initial()
        state.fills = 0  # type: ignore[attr-defined]
        return state

    @staticmethod
    def filled(state: Any, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        state.fills += 1

    def decide(self, state: Any, command: Any, moment: Moment) -> Sequence[Wire]:
        events = super().decide(state, command, moment)
        return events if state.fills < 3 else events[:1]


# -- what a process should not look at --------------------------------------------------------------------------------


class ClockInEvolve(Sound):
    """Puts the hour of the fold into the state: the same for as long as a test runs, and another one tomorrow."""

    @staticmethod
    def filled(state: Bags, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        state.bags.edit(wire[2]).fills = int(time.time()) // 3600


class OutgrowsItsRecord(Sound):
    """Lets a number grow beyond what can be stored: its checkpoints can be written, and none can be read."""

    @staticmethod
    def filled(state: Bags, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        state.bags.edit(wire[2]).fills *= 2**40


class HashOrder(Sound):
    """Lets the order of a set, which is another one in every process, decide the order of events."""

    def decide(self, state: Bags, command: Any, moment: Moment) -> Sequence[Wire]:
        events = super().decide(state, command, moment)
        return [
            event
            for word in {wire[3] for wire in events if wire[0] == FILLED.tag}
            for event in events
            if event[3] == word
        ] or ([] if isinstance(command, FillBag) else events)


class HashOrderInState(Sound):
    """Lets the order of a set into the state."""

    @staticmethod
    def filled(state: Bags, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        bag = state.bags.edit(wire[2])
        bag.words = list(set(bag.words))


# -- checkpoints ------------------------------------------------------------------------------------------------------


class _LosesFills(Bag):
    __slots__ = ()

    def dump(self) -> list[Any]:
        return [normalise(self.note), list(self.words)]

    @classmethod
    def load(cls, dumped: list[Any]) -> Bag:
        return cls(dumped[0], dumped[1], 0)


class LostField(Sound):
    """A field that decides is in no checkpoint, and in no digest."""

    record = _LosesFills

    def decide(self, state: Bags, command: Any, moment: Moment) -> Sequence[Wire]:
        events = super().decide(state, command, moment)
        bag = state.bags.get(command.bag)
        return events if bag is None or bag.fills < 2 else []


class _LoadsBackwards(Bag):
    __slots__ = ()

    @classmethod
    def load(cls, dumped: list[Any]) -> Bag:
        return cls(dumped[0], sorted(dumped[1]), dumped[2])


class ChangedInLoad(Sound):
    """What is loaded is not what was dumped."""

    record = _LoadsBackwards


class _SharesWords(Bag):
    __slots__ = ()

    def dump(self) -> list[Any]:
        return [normalise(self.note), self.words, self.fills]


class SharedDump(Sound):
    """A dump shares a list with its record: the undo of a refused batch then undoes nothing."""

    record = _SharesWords


class Unnoted(Sound):
    """Changes a record without telling its table: checkpoints of what changed miss it."""

    @staticmethod
    def emptied(state: Bags, wire: Wire, seq: int) -> None:
        state.bags.rows[wire[2]].words = []


# -- events -----------------------------------------------------------------------------------------------------------


class _KeepsNote(Bag):
    __slots__ = ()

    def __init__(self, note: Any, words: list[str], fills: int) -> None:
        super().__init__(None, words, fills)
        self.note = note


class KeepsEvent(Sound):
    """The state keeps a part of the event it was given."""

    record = _KeepsNote


class ChangesEvent(Sound):
    """Evolve changes the event it was given."""

    @staticmethod
    def filled(state: Bags, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        wire[4] = 0


class SharesWithWire(Sound):
    """Evolve says that it replaces what it shares with events, and changes it in place."""

    shares_values = True
    record = _KeepsNote

    @staticmethod
    def filled(state: Bags, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        note = state.bags.edit(wire[2]).note
        if isinstance(note, list):
            note.append(wire[3])


class Reordered(Sound):
    """Holds an event back until the next one comes, and folds them the other way round."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    @property
    def evolve(self) -> dict[str, Evolve]:
        return {**super().evolve, "bag.filled": self.hold}

    def hold(self, state: Bags, wire: Wire, seq: int) -> None:
        self.held.append(wire)
        if len(self.held) == 2:
            for held in reversed(self.held):
                Sound.filled(state, held, seq)
            self.held.clear()


class DecideChanges(Sound):
    """Decide changes the state it is only to look at."""

    def decide(self, state: Bags, command: Any, moment: Moment) -> Sequence[Wire]:
        events = super().decide(state, command, moment)
        if isinstance(command, EmptyBag) and events:
            state.bags.rows[command.bag].fills = 0
        return events


class BadUpcast(Sound):
    """Lifting an old event depends on how many were lifted before."""

    upcasts = (Upcast(FILLED_1, lambda fields: [*fields, 1 + _lifted()]),)


class WrongUpcast(Sound):
    """Lifting an old event gives a field that the new version's table refuses."""

    upcasts = (Upcast(FILLED_1, lambda fields: [*fields, "one"]),)


class ShortUpcast(Sound):
    """Lifting an old event gives a field too few."""

    upcasts = (Upcast(FILLED_1, lambda fields: fields),)


class FailingUpcast(Sound):
    """Lifting an old event fails."""

    upcasts = (Upcast(FILLED_1, lambda fields: [*fields, 1 // 0]),)


_lifts = [0]


def _lifted() -> int:
    _lifts[0] += 1
    return _lifts[0]


SOUND = Model((Sound(),))
HIDDEN_GLOBAL = Model((HiddenGlobal(),))
HIDDEN_IN_OBJECT = Model((HiddenInObject(),))
HIDDEN_IN_STATE = Model((HiddenInState(),))
CLOCK_IN_EVOLVE = Model((ClockInEvolve(),))
OUTGROWN = Model((OutgrowsItsRecord(),))
HASH_ORDER = Model((HashOrder(),))
HASH_ORDER_IN_STATE = Model((HashOrderInState(),))
LOST_FIELD = Model((LostField(),))
CHANGED_IN_LOAD = Model((ChangedInLoad(),))
SHARED_DUMP = Model((SharedDump(),))
UNNOTED = Model((Unnoted(),))
KEEPS_EVENT = Model((KeepsEvent(),))
CHANGES_EVENT = Model((ChangesEvent(),))
SHARES_WITH_WIRE = Model((SharesWithWire(),))
REORDERED = Model((Reordered(),))
DECIDE_CHANGES = Model((DecideChanges(),))
BAD_UPCAST = Model((BadUpcast(),))
WRONG_UPCAST = Model((WrongUpcast(),))
SHORT_UPCAST = Model((ShortUpcast(),))
FAILING_UPCAST = Model((FailingUpcast(),))
