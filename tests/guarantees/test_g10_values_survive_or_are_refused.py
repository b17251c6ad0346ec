"""G10: A value survives exactly, or is refused before anything is written, with the path to it. Nothing is coerced in
silence."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from engine import EngineError, InvalidValue, LiveRun, Refused, open_store
from engine.checkpoint import CheckpointPolicy
from engine.core.json_patch import same


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    __slots__ = ()


class Number(int):
    pass


class Pairs(dict[str, int]):
    pass


@dataclasses.dataclass
class Point:
    x: int = 1
    y: int = dataclasses.field(init=False, default=2)


class Person(BaseModel):
    name: str = "a"


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


SURVIVES: dict[str, Any] = {
    "null": None,
    "true": True,
    "one": 1,
    "one as a float": 1.0,
    "minus 2^63": -(2**63),
    "2^63": 2**63,
    "2^64 - 1": 2**64 - 1,
    "smallest float": 5e-324,
    "largest float": 1.7976931348623157e308,
    "a float of 17 digits": 0.1 + 0.2,
    "empty text": "",
    "text": "日本語 \U0001f600 é e\u0301 \u202e \x00 \n",
    "empty list": [],
    "empty map": {},
    "a key that is empty": {"": 1},
    "a map like our own tag for bytes": {"$bytes": "AAAA"},
    "a map like our own tag for maps": {"$map": {"$bytes": "x"}},
    "a map like a JSON Patch": {"op": "remove", "path": "/tasks"},
    "63 levels": _nested(60),
    "1024 entries": list(range(1024)),
    "true beside one": [True, 1, 1.0, "1", None, [], {}],
}

REFUSED: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "2^64": 2**64,
    "below -2^63": -(2**63) - 1,
    "an enum": Colour.RED,
    "an int enum": Level.LOW,
    "a str subclass": Name("a"),
    "an int subclass": Number(1),
    "a dict subclass": Pairs(a=1),
    "a tuple": (1, 2),
    "a set": {1},
    "a frozenset": frozenset((1,)),
    "bytes": b"x",
    "a bytearray": bytearray(b"x"),
    "a Decimal": Decimal("1.0"),
    "a Fraction": Fraction(1, 3),
    "complex": 1j,
    "a range": range(3),
    "a path": PurePosixPath("/a"),
    "a date": date(2026, 1, 1),
    "a datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "a timedelta": timedelta(seconds=1),
    "a UUID": uuid.UUID(int=1),
    "a deque": deque([1], maxlen=2),
    "a defaultdict": defaultdict(int, a=1),
    "a Counter": Counter("a"),
    "an OrderedDict": OrderedDict(a=1),
    "a dataclass": Point(),
    "a pydantic model": Person(),
    "a secret": SecretStr("hush"),
    "a function": len,
    "an object": object(),
    "a lone surrogate": "\ud800",
    "a key with a lone surrogate": {"\ud800": 1},
    "a key that is a number": {1: 2},
    "a key that is a bool": {True: 2},
    "a key that is None": {None: 2},
    "a cycle": _cycle(),
    "200 levels": _nested(200),
    "1025 entries": list(range(1025)),
}


def _run(store: Any) -> LiveRun:
    run: LiveRun = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")
    run.tasks.suspend("root", wait="external")
    run.contexts.create("chat")
    run.swarm.start(worker_count=1, max_ticks=0, failure_threshold=0)
    return run


def _preflight(run: LiveRun, value: Any) -> None:
    run.contexts.set_preflight("chat", value)


def _metadata(run: LiveRun, value: Any) -> None:
    run.swarm.set_metadata("k", value)


def _tool_content(run: LiveRun, value: Any) -> None:
    run.contexts.append("chat", {"role": "tool", "id": "c", "name": "kv", "content": value})


def _payload(run: LiveRun, value: Any) -> None:
    run.tasks.deliver("root", kind="external", payload=value)


def _fact(run: LiveRun, value: Any) -> None:
    run.ingest([("swarm.metadata_set", {"key": "k", "value": value})])


WAYS: dict[str, tuple[Callable[[LiveRun, Any], None], Callable[[Any], Any]]] = {
    "preflight": (_preflight, lambda view: view.contexts.get("chat").preflight),
    "metadata": (_metadata, lambda view: view.swarm.context().get("k")),
    "tool content": (_tool_content, lambda view: view.contexts.messages("chat")[0].content),
    "ingested fact": (_fact, lambda view: view.swarm.context().get("k")),
}


@pytest.mark.parametrize("value", SURVIVES.values(), ids=SURVIVES)
@pytest.mark.parametrize("way", WAYS)
def test_a_value_survives_exactly(way: str, value: Any, tmp_path: Path) -> None:
    """G10: type and value are the same live, restored from nothing, from a checkpoint, and in history, on disk."""
    put, got = WAYS[way]
    path = tmp_path / "refold.db"
    with open_store(path, checkpoints=CheckpointPolicy(every_events=None)) as store:
        run = _run(store)
        put(run, value)
        assert same(got(run), value)
        run.checkpoint()
    with open_store(path, create=False) as store:
        for start in ("best", "genesis"):
            assert same(got(store.view("r", start=start)), value)
        assert store.verify("r").ok


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("way", [*WAYS, "payload"])
def test_a_value_that_would_not_survive_is_refused_with_its_path(way: str, value: Any) -> None:
    """G10: what cannot be kept exactly is refused deep inside too, by path, and neither state nor journal has moved."""
    put = WAYS[way][0] if way in WAYS else _payload
    with open_store("memory:") as store:
        run = _run(store)
        before, position = run.state_bytes(), run.position
        for wrapped, path in ((value, ""), ({"deep": [0, value]}, "deep[1]")):
            with pytest.raises((InvalidValue, Refused)) as caught:
                put(run, wrapped)
            if path and isinstance(caught.value, InvalidValue) and "levels" not in caught.value.problem:
                assert path in caught.value.path, caught.value.path
            assert run.state_bytes() == before
            assert run.position == position == store.journal.existing_head("r").position
        run.contexts.append("chat", {"role": "user", "text": "goes on"})
        assert store.verify("r").ok


def test_minus_zero_is_zero_and_says_so_nowhere_else() -> None:
    """G10: -0.0 is the one value that is put in one form, because JSON readers do not tell it from 0.0."""
    with open_store("memory:") as store:
        run = _run(store)
        run.swarm.set_metadata("k", -0.0)
        assert str(run.swarm.context().get("k")) == "0.0"


def test_what_is_handed_in_may_be_changed_afterwards() -> None:
    """G10: the state shares nothing with a caller's value, on the way in or out."""
    with open_store("memory:") as store:
        run = _run(store)
        value: dict[str, Any] = {"a": [1, {"b": 2}]}
        run.swarm.set_metadata("k", value)
        before = run.digest()
        value["a"][1]["b"] = 3
        value["a"].append(4)
        shown = run.swarm.context().get("k")
        assert shown == {"a": [1, {"b": 2}]}
        shown["a"].append(5)  # a caller's own copy
        assert run.digest() == before


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_json_value_survives(value: Any) -> None:
    """G10: for every JSON value: either the same value comes back from the journal, or a typed refusal came first."""
    with open_store("memory:") as store:
        run = _run(store)
        try:
            run.swarm.set_metadata("k", value)
        except EngineError:
            assert run.position == store.journal.existing_head("r").position
            return
        back = store.view("r", start="genesis").swarm.context().get("k")
        assert same(back, run.swarm.context().get("k"))
        assert back == value
