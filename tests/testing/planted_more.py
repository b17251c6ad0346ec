"""More projections with one planted bug each, made from the sound bag: what evolve must not do, what must not be drawn
by chance, and what two runs must not share."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engine.core.catalog import EventType, Upcast, Wire
from engine.core.command import CommandModel
from engine.core.decider import Moment
from engine.core.errors import NotFound
from engine.core.fields import ID, U32, Field
from engine.core.model import Model
from engine.core.plain import PlainProjection
from tests.testing.planted import EMPTIED, STARTED, Bag, Bags, FillBag, Sound, StartBag

WEIGHT = {"a": 0.1, "b": 0.2, "c": 0.3, "root": 0.7}
"""What a word weighs: numbers whose sums depend on their order."""


class ReturnsState(Sound):
    """Evolve returns another state instead of changing the one it is given: nobody keeps it."""

    @staticmethod
    def emptied(state: Bags, wire: Wire, seq: int) -> Any:
        after = Bags(Bag)
        after.bags.rows.update(state.bags.rows)
        after.bags.rows[wire[2]] = Bag(None, [], 0)
        return after


class ChanceInEvolve(Sound):
    """The state holds a number that was drawn while folding."""

    @staticmethod
    def filled(state: Bags, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        state.bags.edit(wire[2]).fills = random.randrange(1_000_000)


class ChanceInDecide(Sound):
    """What a command leads to is left to chance."""

    def decide(self, state: Bags, command: Any, moment: Moment) -> Sequence[Wire]:
        events = super().decide(state, command, moment)
        return events if random.random() < 0.5 else []


_names: list[str] = []


class SharedByRuns(Sound):
    """Numbers its bags by a list of the module, which every run of the process writes to."""

    def decide(self, state: Bags, command: Any, moment: Moment) -> Sequence[Wire]:
        events = super().decide(state, command, moment)
        if not isinstance(command, StartBag) or not events:
            return events
        first_here = len(state.bags) == 0
        _names.append(command.bag)
        return events if not first_here or len(_names) == 1 else [STARTED.check({"bag": "one more", "note": None})]


class FloatOrder(Sound):
    """Keeps a sum of weights: added up event by event while it lives, bag by bag after a restore."""

    commands = (StartBag, FillBag)

    def initial(self) -> Bags:
        return _Weighed()

    def admit(self, state: Bags, wire: Wire, moment: Moment) -> Sequence[Wire]:
        if wire[0] == EMPTIED.tag:
            raise NotFound("nothing is taken out", hint="fill it")
        return super().admit(state, wire, moment)

    @staticmethod
    def filled(state: Any, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        for _ in range(wire[4]):
            state.weight += WEIGHT.get(wire[3], 1.1)

    def decide(self, state: Any, command: Any, moment: Moment) -> Sequence[Wire]:
        events = super().decide(state, command, moment)
        if not isinstance(command, StartBag) or not events:
            return events
        return [STARTED.check({"bag": command.bag, "note": {"weight": state.weight}})]


class _Weighed(Bags):
    def __init__(self) -> None:
        super().__init__(Bag)
        self.weight = 0.0

    def reindex(self) -> None:
        words = [word for _, bag in self.bags.ordered() for word in reversed(bag.words)]
        self.weight = sum((WEIGHT.get(word, 1.1) for word in words), 0.0)


class RaisesHalfWay(Sound):
    """Evolve stops in the midst of an event that it cannot fold, when some of it is folded."""

    @staticmethod
    def filled(state: Bags, wire: Wire, seq: int) -> None:
        Sound.filled(state, wire, seq)
        if wire[3] == "b":
            raise ValueError("no room for b")


class RaisesInDecide(Sound):
    """Decide stops with an error of its own instead of a refusal."""

    def decide(self, state: Bags, command: Any, moment: Moment) -> Sequence[Wire]:
        if isinstance(command, FillBag) and not command.words and command.bag in state.bags:
            raise IndexError("no words")
        return super().decide(state, command, moment)


# -- a user's own projection whose events have got a second version ---------------------------------------------------

GREETED_1 = EventType("greeter.greeted", (Field("who", ID),))
GREETED = EventType("greeter.greeted", (Field("who", ID), Field("times", U32)), version=2)


class Greet(CommandModel):
    projection: ClassVar[str] = "greeter"
    name: ClassVar[str] = "greet"
    who: str


def greet(state: Mapping[str, int], command: Greet) -> Any:
    return [(GREETED, {"who": command.who, "times": 1})]


def greeted(state: dict[str, int], event: Any) -> None:
    state[event["who"]] = state.get(event["who"], 0) + event["times"]


_lifted: set[str] = set()


def lift_by_memory(fields: Sequence[Any]) -> Sequence[Any]:
    """The bug: the first time that somebody is met counts double."""
    (who,) = fields
    times = 1 if who in _lifted else 2
    _lifted.add(who)
    return [who, times]


def _greeter(lift: Any) -> PlainProjection[Any]:
    return PlainProjection(
        "greeter", [GREETED], initial=dict, decide=greet, evolve=greeted, upcasts=[Upcast(GREETED_1, lift)],
        commands=[Greet],
    )  # fmt: skip


RETURNS_STATE = Model((ReturnsState(),))
CHANCE_IN_EVOLVE = Model((ChanceInEvolve(),))
CHANCE_IN_DECIDE = Model((ChanceInDecide(),))
SHARED_BY_RUNS = Model((SharedByRuns(),))
FLOAT_ORDER = Model((FloatOrder(),))
RAISES_HALF_WAY = Model((RaisesHalfWay(),))
RAISES_IN_DECIDE = Model((RaisesInDecide(),))
GREETER = _greeter(lambda fields: [*fields, 1])
GREETER_LIFTED_BY_MEMORY = _greeter(lift_by_memory)
