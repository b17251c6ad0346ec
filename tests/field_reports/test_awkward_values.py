"""Values that serialisers stumble over (rows L23 to L31, T14 and T15 of ``rows.py``): each comes back exactly, or is
refused before anything changes, with the path to it. Nothing in between."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import math
import pathlib
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import pydantic
import pytest
from hypothesis import given

from engine.core.errors import EngineError, InvalidValue
from engine.core.fields import JSON, JSON_OBJECT, optional
from engine.documents import document
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from projections.contexts import AssistantMsg, ToolCall, ToolMsg
from tests.engine.kit import NEVER, Ticks
from tests.engine.strategies import json_values
from tests.field_reports.surface import spied
from tests.field_reports.whole_run import STEPS, TAKE_OVER


class Colour(enum.Enum):
    RED = 1


class Rank(enum.IntEnum):
    FIRST = 1


class Word(str, enum.Enum):  # noqa: UP042  # StrEnum is a kind of its own, below
    YES = "yes"


class Plain(enum.StrEnum):
    YES = "yes"


class Bits(enum.Flag):
    A = 1


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Mapping(dict):  # type: ignore[type-arg]
    pass


class Listing(list):  # type: ignore[type-arg]
    pass


class Pair(NamedTuple):
    one: int


@dataclasses.dataclass
class Late:
    given: int
    made: int = dataclasses.field(init=False, default=0)


class Form(pydantic.BaseModel):
    model_config: ClassVar[pydantic.ConfigDict] = pydantic.ConfigDict(frozen=True)
    field: int = 1


class Opaque:
    pass


class Odd(NamedTuple):
    row: str
    value: Callable[[], Any]


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def deep() -> Any:
    return functools.reduce(lambda inner, _: [inner], range(70), 0)


SECRET = "hunter2-hunter2"
REFUSED: dict[str, Odd] = {
    "enum": Odd("L23", lambda: Colour.RED),
    "int enum": Odd("L23", lambda: Rank.FIRST),
    "text enum": Odd("L23", lambda: Word.YES),
    "StrEnum": Odd("L23", lambda: Plain.YES),
    "flag": Odd("L23", lambda: Bits.A),
    "defaultdict": Odd("L25", lambda: collections.defaultdict(int, a=1)),
    "Counter": Odd("L25", lambda: collections.Counter("aab")),
    "OrderedDict": Odd("L25", lambda: collections.OrderedDict(a=1)),
    "ChainMap": Odd("L25", lambda: collections.ChainMap({"a": 1})),
    "mapping proxy": Odd("L25", lambda: types.MappingProxyType({"a": 1})),
    "subclass of dict": Odd("L25", lambda: Mapping(a=1)),
    "subclass of list": Odd("L25", lambda: Listing([1])),
    "deque": Odd("L26", lambda: collections.deque([1, 2], maxlen=2)),
    "dataclass": Odd("L28", lambda: Late(1)),
    "Fraction": Odd("L29", lambda: fractions.Fraction(1, 3)),
    "Decimal": Odd("L29", lambda: decimal.Decimal("1.10")),
    "complex": Odd("L29", lambda: 1j),
    "range": Odd("L29", lambda: range(3)),
    "path": Odd("L29", lambda: pathlib.PurePosixPath("/tmp")),
    "tuple": Odd("L29", lambda: (1, 2)),
    "named tuple": Odd("L29", lambda: Pair(1)),
    "set": Odd("L29", lambda: {1, 2}),
    "frozenset": Odd("L29", lambda: frozenset({1})),
    "bytes": Odd("L29", lambda: b"\0"),
    "bytearray": Odd("L29", lambda: bytearray(b"\0")),
    "memoryview": Odd("L29", lambda: memoryview(b"\0")),
    "generator": Odd("L29", lambda: (number for number in range(3))),
    "function": Odd("L29", lambda: deep),
    "class": Odd("L29", lambda: Opaque),
    "module": Odd("L29", lambda: math),
    "object": Odd("L29", Opaque),
    "exception": Odd("L29", lambda: ValueError("x")),
    "NaN": Odd("L29", lambda: math.nan),
    "infinity": Odd("L29", lambda: -math.inf),
    "2^64": Odd("L29", lambda: 2**64),
    "-2^63-1": Odd("L29", lambda: -(2**63) - 1),
    "lone surrogate": Odd("L29", lambda: "\ud800"),
    "circle": Odd("L29", circle),
    "70 levels": Odd("L29", deep),
    "1025 entries": Odd("L29", lambda: list(range(1025))),
    "secret text": Odd("L31", lambda: pydantic.SecretStr(SECRET)),
    "secret bytes": Odd("L31", lambda: pydantic.SecretBytes(SECRET.encode())),
    "subclass of str": Odd("T14", lambda: Text("x")),
    "subclass of int": Odd("T14", lambda: Number(1)),
    "subclass of float": Odd("T14", lambda: Real(1.5)),
    "key of a subclass of str": Odd("T14", lambda: {Text("k"): 1}),
    "key that is a number": Odd("T14", lambda: {1: 1}),
    "key that is None": Odd("T14", lambda: {None: 1}),
    "key with a lone surrogate": Odd("T14", lambda: {"\udfff": 1}),
    "datetime": Odd("T15", lambda: datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)),
    "date": Odd("T15", lambda: datetime.date(2024, 1, 1)),
    "timedelta": Odd("T15", lambda: datetime.timedelta(seconds=1)),
    "UUID": Odd("T15", lambda: uuid.UUID(int=1)),
    "pydantic model": Odd("T15", Form),
}

KEPT: dict[str, Any] = {
    "None": None,
    "true": True,
    "one": 1,
    "one point nought": 1.0,
    "smallest": -(2**63),
    "largest": 2**64 - 1,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "empty": ["", [], {}, None],
    "null characters": "a\0b",
    "astral": "\U0001f600",
    "composed and not": ["\u00e9", "e\u0301"],
    "our markers": {"$bytes": "AA=="},
    "our markers, nested": {"$map": {"$bytes": 5}},
    "foreign markers": {"__type__": "set", "lc": 1, "__module__": "os", "py/object": "os.system"},
    "keys that look alike": {"a": 1, "A": 2, "\u00e1": 3, "a\u0301": 4},
    "63 levels": functools.reduce(lambda inner, _: [inner], range(58), 0),
}


def wrapped(value: Any) -> Any:
    """A JSON object with the value three levels down, at ``a[1].b``."""
    return {"a": [0, {"b": value}]}


PLACE = "a[1].b"
Entry = Callable[[LiveRun, Any], Any]
ENTRIES: dict[str, Entry] = {
    "a task's result": lambda run, value: run.tasks.finish("work", attempt=1, result=value),
    "a delivery": lambda run, value: run.tasks.deliver("waits", kind="signal", payload=value),
    "an expiry": lambda run, value: run.tasks.expire_wait("waits", payload=value),
    "an approval": lambda run, value: run.tasks.resolve_approval("asks", approved=True, payload=value),
    "a preflight": lambda run, value: run.contexts.set_preflight("c", value),
    "a tool's result": lambda run, value: run.contexts.append("c", ToolMsg("c1", "t", value)),
    "a call's arguments": lambda run, value: run.contexts.append("c", AssistantMsg("x", (ToolCall("c9", "t", value),))),
    "a message's own key": lambda run, value: run.contexts.append("c", {"role": "note", "text": "x", "own": value}),
    "a graph's own keys": lambda run, value: run.graphs.create("g", "x", [{**NODE}], extra=value),
    "a node's own key": lambda run, value: run.graphs.create("g", "x", [{**NODE, "own": value}]),
    "metadata": lambda run, value: run.swarm.set_metadata("k", value),
    "a verdict's details": lambda run, value: run.swarm.record_verdict(True, details=value),
    "an ingested fact": lambda run, value: run.ingest([("swarm.metadata_set", {"key": "k", "value": value})]),
}
NODE = {"id": 0, "title": "t", "description": "d"}


def prepared(store: Store) -> LiveRun:
    """A run in which every entry may be given its value."""
    run = store.run("r")
    tasks = run.tasks
    tasks.open_root("root")
    tasks.start("root")
    for name in ("work", "waits", "asks"):
        tasks.spawn(name, parent="root")
        tasks.publish_launch(name)
        tasks.acknowledge_launch(name, 1)
    tasks.suspend("waits", wait="signal")
    tasks.suspend("asks", wait="approval")
    run.contexts.create("c")
    run.contexts.append("c", AssistantMsg(None, (ToolCall("c1", "t", {}),)))
    run.swarm.start(1)
    return run


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


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down: True is not 1, nor is 1 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def holds(value: Any, wanted: Any) -> bool:
    """Whether a value is, or holds somewhere inside, the wanted one."""
    if same(value, wanted):
        return True
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(holds(inner, wanted) for inner in inside)


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
