"""Values that serialisers stumble over (rows L23 to L31, T14 and T15 of ``rows.py``): each comes back exactly, or is
refused before anything changes, with the path to it. Nothing in between."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from engine.core.errors import EngineError, InvalidValue
from engine.core.fields import JSON, JSON_OBJECT, optional
from engine.documents import document
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from tests.engine.kit import NEVER, Ticks
from tests.engine.strategies import json_values
from tests.field_reports.awkward import (
    ENTRIES,
    KEPT,
    PLACE,
    REFUSED,
    SECRET,
    Colour,
    Mapping,
    Opaque,
    Text,
    Word,
    holds,
    same,
    wrapped,
)
from tests.field_reports.prepared import prepared
from tests.field_reports.surface import spied
from tests.field_reports.whole_run import STEPS, TAKE_OVER


@pytest.fixture(scope="module")
def run() -> Iterator[LiveRun]:
    """A prepared run in memory; what these tests give it is refused or taken back."""
    with open_store("memory:", checkpoints=NEVER, clock=Ticks()) as opened:
        yield prepared(opened)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_exactly_is_refused_with_its_path(run: LiveRun, name: str) -> None:
    """L23, L25, L26, L28, L29, L31, T14, T15: enums, subclasses, deques, dataclasses, fractions, secrets, dates, models
    and all that JSON cannot hold: wherever JSON is taken, InvalidValue before anything changes, naming the place in the
    value; and what is secret is in no message."""
    before, journal = run.state_bytes(), run.position
    for entry, give in ENTRIES.items():
        with pytest.raises(EngineError) as caught:
            give(run, wrapped(REFUSED[name].value()))
        error = caught.value
        assert error.code in ("invalid_value", "import_refused"), entry
        assert PLACE in str(error), entry
        assert SECRET not in str(error) + repr(error.details), entry
    assert (run.state_bytes(), run.position) == (before, journal)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_can_be_kept_comes_back_type_for_type(entry: str) -> None:
    """L23, L32, T15: None, empty, numbers at their limits, texts of any kind and dicts that look like type tags, taken
    anywhere, are given back exactly, type for type, by the event, a restore from a checkpoint and one from nothing."""
    with open_store("memory:", checkpoints=NEVER, clock=Ticks()) as store:
        run = prepared(store)
        outcome = ENTRIES[entry](run, wrapped(KEPT))
        assert outcome.changed
        run.checkpoint()
        assert any(holds(event.data, wrapped(KEPT)["a"]) for event in outcome.events)
        shown = [document(view) for view in (run, store.view("r"), store.view("r", start="genesis"))]
        assert same(shown[0], shown[1]) and same(shown[0], shown[2])
        assert store.view("r").report.used == run.position
        assert any(holds(event.data, wrapped(KEPT)["a"]) for event in store.history("r"))


JSON_LABELS = {kind.label for plain in (JSON, JSON_OBJECT) for kind in (plain, optional(plain))}


def test_every_json_field_of_every_event_refuses_what_it_cannot_keep(whole: Store) -> None:
    """L29, T14: by reflection over the catalogue: each JSON field of each event type, given through ingest among
    otherwise good data, refuses every value of the battery by the event's and the field's name."""
    catalog, tried = whole.model.catalog, set()
    for event in (*whole.history("r"), *whole.history("taken over")):
        event_type = catalog.by_name[event.type.partition("/")[0]]
        for field in event_type.fields:
            if field.type.label not in (
                JSON.label,
                JSON_OBJECT.label,
                optional(JSON).label,
                optional(JSON_OBJECT).label,
            ):
                continue
            tried.add(f"{event_type.name}.{field.name}")
            for odd in REFUSED.values():
                with pytest.raises(InvalidValue) as caught:
                    catalog.check(event_type.name, {**event.data, field.name: {"x": odd.value()}})
                assert caught.value.path.startswith(f"{event_type.name}.{field.name}.x")
    assert {"task.finished.result", "swarm.metadata_set.value", "context.preflight_set.value"} <= tried


class Abandoned(Exception):
    """Ends a batch so that nothing of it stays."""


UNEXPECTED = [Text("x"), Mapping(a=1), Word.YES, 1.5, (1,), "\ud800", math.nan, {1, 2}, [["a", 1]], Opaque(), Colour]


def test_every_argument_of_every_command_is_refused_or_kept() -> None:
    """L23, L29, T14: by reflection over the public commands: each argument in turn replaced by what nobody expects is
    taken as it is or refused with an error of refold, never another exception, and the run is as before."""
    with open_store("memory:", checkpoints=NEVER, clock=Ticks()) as store:
        run, other = store.run("r"), store.run("taken over")
        calls, calls_there = spied(run), spied(other)
        for step in STEPS:
            step(run)
        TAKE_OVER(other)
        given_there = {name: noted for name, noted in calls_there.items() if noted}
        for where, given_calls in ((run, calls), (other, given_there)):
            before = where.state_bytes()
            for method, arguments in (noted[0] for noted in given_calls.values() if noted):
                for name in {*arguments, "command_id", "actor", "at_ms", "cause"}:
                    for odd in UNEXPECTED:
                        with suppress(Abandoned, EngineError), where.batch():
                            method(**{**arguments, name: odd})
                            raise Abandoned
            assert where.state_bytes() == before == store.run(where.id).state_bytes()


@given(json_values)
def test_any_json_value_comes_back_exactly(run: LiveRun, value: Any) -> None:
    """L23: whatever JSON value is drawn, the event holds it type for type."""
    with suppress(Abandoned), run.batch():
        outcome = run.swarm.set_metadata("any", value)
        assert not outcome.changed or same(outcome.events[0].data["value"], value)
        raise Abandoned
