"""Quoting: whatever a value is, a message can show it, at a small cost, and gives nothing away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from engine.core.errors import EngineError, InvalidValue
from engine.core.fields import one_of
from engine.core.quoted import quoted
from engine.open_store import open_store
from projections.model import MODEL
from tests.engine.strategies import json_values
from tests.field_reports.awkward import REFUSED, SECRET

ROLE = one_of("role", ["explore", "plan"])


@pytest.mark.parametrize("name", REFUSED)
def test_any_value_can_be_quoted(name: str) -> None:
    """Also one that is nested without end, holds itself, is too long to be printed, or lets nobody look at it."""
    text = quoted(REFUSED[name].value())
    assert 0 < len(text) <= 62 and SECRET not in text and text.isprintable()


@given(json_values)
def test_a_small_plain_value_is_quoted_as_it_is_written(value: Any) -> None:
    """As Python writes it, or by how much it holds."""
    text = quoted(value, 1_000)
    assert text == repr(value) or " of " in text


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("x" * 100, "'" + "x" * 59),
        ([1, 2], "[1, 2]"),
        ({"a": [None]}, "{'a': [None]}"),
        ([0] * 41, "a list of 41"),
        (dict.fromkeys(range(50)), "an object of 50"),
        (10**5_000, "a number of 16610 bits"),
        ({1, 2}, "an object of type set"),
    ],
    ids=range(7),
)
def test_what_a_quotation_looks_like(value: Any, wanted: str) -> None:
    """Short, and enough to know it again."""
    assert quoted(value) == wanted


@pytest.mark.parametrize("name", REFUSED)
def test_a_label_that_is_none_is_refused_whatever_it_is(name: str) -> None:
    """A choice among labels quotes what it was given instead."""
    with pytest.raises(InvalidValue, match="is not a role") as caught:
        ROLE.check(REFUSED[name].value())
    assert SECRET not in str(caught.value)


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "a text for a list": ("context.compacted", {"verdict": ["abc", [], [], [], None, 0, 0]}),
    "an object for a list": ("context.compacted", {"verdict": [{"k": 1}, [], [], [], None, 0, 0]}),
    "a list of texts for a list of calls": ("context.messages_appended", {"messages": [[2, 5, None, ["abc"]]]}),
    "an object for a call": ("context.messages_appended", {"messages": [[2, 5, None, [{"a": 1, "b": 2, "c": 3}]]]}),
    "something behind the end": ("context.messages_appended", {"messages": [[4, 5, "n", None, 1]]}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_arrays_without_keys_take_nothing_in_the_place_of_a_list(what: str) -> None:
    """Neither a text for the list of its letters, nor an object for the list of its keys, nor more than there are
    places."""
    event, data = OTHERS[what]
    around = {"fold": 1, "fallback": False} if "verdict" in data else {}
    with pytest.raises(InvalidValue):
        MODEL.catalog.check(event, {"context": "c", "at_ms": 1, **around, **data})


MAPPINGS = ("mapping proxy", "ChainMap", "defaultdict", "Counter", "subclass of dict", "subclass of dict that hides",
            "UserDict", "object that says it is a dict", "pydantic model", "dataclass")  # fmt: skip


@pytest.mark.parametrize("name", MAPPINGS)
def test_records_of_graphs_are_dicts(name: str) -> None:
    """What only behaves like one, or says so, may hold other keys than it shows."""
    with open_store("memory:") as store:
        graphs = store.run("r").graphs
        for node in (
            REFUSED[name].value(),
            {"id": 0, "title": "t", "description": "d", "recovery": REFUSED[name].value()},
        ):
            with pytest.raises(EngineError):
                graphs.create("g", "goal", [node])
            with pytest.raises(EngineError):
                graphs.import_graph({"id": "g", "goal": "goal", "nodes": [node]})
        with pytest.raises(EngineError):
            graphs.create("g", "goal", [{"id": 0, "title": "t", "description": "d"}], extra=REFUSED[name].value())
        with pytest.raises(EngineError):
            graphs.import_graph(REFUSED[name].value())
        assert not graphs.ids()


ARRAYS: dict[str, Callable[[Any], tuple[str, dict[str, Any]]]] = {
    "a message": lambda odd: ("context.messages_appended", {"context": "c", "at_ms": 1, "messages": [[1, 5, odd]]}),
    "a call": lambda odd: ("context.messages_appended", {"context": "c", "at_ms": 1, "messages": [[2, 5, None, odd]]}),
    "guidance": lambda odd: ("swarm.guidance_issued", {"worker": 0, "guidance": {"actions": odd, "content": odd}}),
}


@pytest.mark.parametrize("what", ARRAYS)
@pytest.mark.parametrize("name", REFUSED)
def test_arrays_without_keys_take_no_other_sequence_for_a_list(name: str, what: str) -> None:
    """A generator that has been used up is no empty list of messages, nor is a set a list in some order."""
    event, data = ARRAYS[what](REFUSED[name].value())
    with pytest.raises(InvalidValue) as caught:
        MODEL.catalog.check(event, data)
    assert caught.value.path.startswith(f"{event}.") and SECRET not in str(caught.value)
