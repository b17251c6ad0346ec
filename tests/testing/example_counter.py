"""A counter with a bug that only a restart shows. The README of the testing kit quotes this file."""

from typing import ClassVar

from engine.core.catalog import EventType
from engine.core.command import CommandModel
from engine.core.fields import ID, U32, Field
from engine.testing import PlainProjection, restore_machine

ADDED = EventType("counter.added", (Field("counter", ID), Field("by", U32)))


class Add(CommandModel):
    projection: ClassVar[str] = "counters"
    name: ClassVar[str] = "add"
    counter: str
    by: int


last: dict[str, int] = {}  # the bug: what decides must be in the state


def decide(counters, command):
    if last.get(command.counter) == command.by:
        return []  # the same again is no news
    return [(ADDED, {"counter": command.counter, "by": command.by})]


def evolve(counters, event):
    last[event["counter"]] = event["by"]
    counters[event["counter"]] = counters.get(event["counter"], 0) + event["by"]


COUNTERS = PlainProjection("counters", [ADDED], initial=dict, decide=decide, evolve=evolve)

TestCounters = restore_machine(COUNTERS).TestCase
