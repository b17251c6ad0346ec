"""Projections as plain functions: whatever a function does with what it is handed, only what it returns counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from engine.core.catalog import EventType, Upcast
from engine.core.command import CommandModel
from engine.core.decider import Moment
from engine.core.errors import InvalidValue, Refused
from engine.core.fields import ID, JSON, U32, Field
from engine.core.model import Model
from engine.core.plain import PlainEvent, PlainProjection
from engine.open_store import Store, open_store

PUT_1 = EventType("shelf.put", (Field("item", ID),))
PUT = EventType("shelf.put", (Field("item", ID), Field("about", JSON)), version=2)
CLEARED = EventType("shelf.cleared", (Field("at_ms", U32),))


class Put(CommandModel):
    projection: ClassVar[str] = "shelf"
    name: ClassVar[str] = "put"
    item: str
    about: Any = None


class Clear(CommandModel):
    projection: ClassVar[str] = "shelf"
    name: ClassVar[str] = "clear"


def decide(shelf: dict[str, Any], command: Any, moment: Moment) -> Any:
    if isinstance(command, Clear):
        return [("shelf.cleared", {"at_ms": moment.at_ms})] if shelf else None
    if command.item == "piano":
        raise Refused("too heavy", hint="take a flute")
    shelf["not"] = "kept"
    return [(PUT, {"item": command.item, "about": command.about})]


def put(shelf: dict[str, Any], event: PlainEvent) -> None:
    shelf[event["item"]] = event.data["about"]


SHELF = PlainProjection(
    "shelf",
    [PUT, CLEARED],
    initial=dict,
    decide=decide,
    evolve={"shelf.put": put, "shelf.cleared": lambda shelf, event: {}},
    upcasts=[Upcast(PUT_1, lambda fields: [*fields, "unknown"])],
)


def opened(projection: PlainProjection[Any], url: str | Path = "memory:") -> Store:
    return open_store(url, model=Model((projection,)), clock=lambda: 7)


def value(run: Any, name: str = "shelf") -> Any:
    return run.ask_projection(name)(lambda state: state.value)


def test_a_run_of_plain_functions_is_a_run(tmp_path: Path) -> None:
    """Commands decide, events fold, a file gives the state back, from a checkpoint and without; refusals pass."""
    with opened(SHELF, tmp_path / "refold.db") as store:
        run = store.run("r")
        assert run.submit(Put(item="flute", about={"keys": [1, 2]})).events[0].type == "shelf.put/2"
        run.checkpoint()
        run.submit(Put(item="horn"))
        with pytest.raises(Refused, match="too heavy"):
            run.submit(Put(item="piano"))
        expected = {"flute": {"keys": [1, 2]}, "horn": None}
        assert value(run) == expected
    with opened(SHELF, tmp_path / "refold.db") as store:
        for start in ("best", "genesis"):
            assert value(store.run("r", start=start)) == expected
        assert store.run("r").submit(Clear()).events[0].data == {"at_ms": 7}
        assert store.run("r").submit(Clear()).count == 0
        assert store.verify("r").ok


def test_what_functions_are_handed_is_theirs() -> None:
    """Changing the value, the event's data or the state given to decide changes nothing."""
    run = opened(SHELF).run("r")
    about = {"keys": [1]}
    run.submit(Put(item="flute", about=about))
    about["keys"].append(2)
    value(run)["flute"]["keys"].append(3)
    assert value(run) == {"flute": {"keys": [1]}}


def test_an_evolve_that_changes_its_event_changes_a_copy() -> None:
    """The stored event is as it was decided, whatever evolve does with it."""

    def greedy(shelf: dict[str, Any], event: PlainEvent) -> None:
        event.data["about"].append("more")
        shelf["kept"] = event.data["about"]

    shelf = PlainProjection("shelf", [PUT], initial=dict, decide=decide, evolve=greedy, commands=[Put])
    store = opened(shelf)
    run = store.run("r")
    with run.batch():
        run.submit(Put(item="a", about=[1]))
        run.submit(Put(item="b", about=[2]))
    assert [event.data["about"] for event in store.history("r")] == [[1], [2]]
    assert value(run) == value(store.run("r", start="genesis")) == {"kept": [2, "more"]}


def test_a_state_that_json_cannot_hold_is_refused_before_anything_is_written() -> None:
    """A set in the state is an error with the path to it; the run is as before."""

    def sets(shelf: dict[str, Any], event: PlainEvent) -> None:
        shelf["items"] = {event["item"]}

    shelf = PlainProjection("shelf", [PUT], initial=dict, decide=decide, evolve=sets, commands=[Put])
    run = opened(shelf).run("r")
    with pytest.raises(InvalidValue, match=r"shelf state\.items"):
        run.submit(Put(item="a"))
    assert run.position == 0 and value(run) == {}


def test_an_old_event_is_lifted() -> None:
    """Version 1 of an event folds as what it is lifted to."""
    state = Model((SHELF,)).initial()
    state.apply([[0, None, None, None, None, [["shelf.put/1", 0, "drum"]]]])
    assert state.parts["shelf"].value == {"drum": "unknown"}


@dataclass
class Shelf:
    items: list[str] = field(default_factory=list)
    cleared: int = 0


def test_the_state_may_be_a_dataclass() -> None:
    """A dataclass of JSON values is kept by its fields and comes back as itself; another type is refused."""

    def place(shelf: Shelf, event: PlainEvent) -> Any:
        if event.name == "shelf.cleared":
            return Shelf([], shelf.cleared + 1)
        shelf.items.append(event["item"])
        return None if event["item"] != "odd" else {"items": []}

    def choose(shelf: Shelf, command: Any) -> Any:
        if isinstance(command, Clear):
            return [(CLEARED, {"at_ms": 0})]
        return [(PUT, {"item": command.item, "about": len(shelf.items)})]

    shelf = PlainProjection("shelf", [PUT, CLEARED], initial=Shelf, decide=choose, evolve=place)
    store = opened(shelf)
    run = store.run("r")
    run.submit(Put(item="a"))
    run.submit(Clear())
    run.submit(Put(item="b"))
    assert value(run) == value(store.run("r", start="genesis")) == Shelf(["b"], 1)
    with pytest.raises(InvalidValue, match="expected Shelf, found dict"):
        run.submit(Put(item="odd"))
    assert run.position == 3


def test_facts_are_admitted_unless_the_projection_refuses_them() -> None:
    """Without admit every fact is taken; with it the function decides, seeing state and event."""
    assert opened(SHELF).run("r").ingest([("shelf.put", {"item": "piano", "about": None})]).count == 1

    def admit(shelf: dict[str, Any], event: PlainEvent) -> None:
        if event["item"] in shelf:
            raise Refused("it stands there", hint="once is enough")

    shelf = PlainProjection("shelf", [PUT], initial=dict, decide=decide, evolve=put, admit=admit)
    run = opened(shelf).run("r")
    run.ingest([("shelf.put", {"item": "a", "about": None})])
    with pytest.raises(Refused, match="it stands there"):
        run.ingest([("shelf.put", {"item": "a", "about": None})])


def test_a_draft_that_is_no_event_of_the_projection_is_named() -> None:
    """A mistake in decide says which events there are; a bad field is named."""
    wrong = PlainProjection("shelf", [PUT], initial=dict, decide=lambda *_: [("shelf.burnt", {})], evolve=put)
    with pytest.raises(InvalidValue, match="its events: shelf"):
        opened(wrong).run("r").submit(Put(item="a"))
    bad = PlainProjection("shelf", [PUT], initial=dict, decide=lambda *_: [(PUT, {"item": ""})], evolve=put)
    with pytest.raises(InvalidValue, match=r"shelf\.put\.item"):
        opened(bad).run("r").submit(Put(item="a"))


def test_the_public_form_is_the_state_itself() -> None:
    """A map is shown by its keys, anything else under one name: diffs and divergences read as people wrote it."""
    run = opened(SHELF).run("r")
    run.submit(Put(item="flute", about=[1]))
    assert run.ask(lambda state: SHELF.document(state.parts["shelf"])) == {"flute": [1]}
    counter = PlainProjection("shelf", [PUT], initial=lambda: 0, decide=decide, evolve=lambda n, event: n + 1)
    assert counter.document(counter.initial()) == {"state": 0}
