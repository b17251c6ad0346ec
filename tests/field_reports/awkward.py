"""Values that serialisers stumble over, those that cannot be kept and those that can, and everywhere that refold takes
JSON. It must never hold a value whose making has an effect: each is made anew for every use.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import ipaddress
import math
import pathlib
import re
import threading
import types
import uuid
import weakref
import zoneinfo
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import pydantic

from engine.runs import LiveRun
from projections.contexts import AssistantMsg, ToolCall, ToolMsg

__all__ = ["ENTRIES", "KEPT", "PLACE", "REFUSED", "SECRET", "Odd", "holds", "same", "wrapped"]

SECRET = "hunter2-hunter2"


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


class Mask(enum.IntFlag):
    A = 1


class Text(str):
    __slots__ = ()


class Shouted(str):
    """A text that is another one to whoever asks it to encode itself."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return b"another"


class Number(int):
    pass


class Real(float):
    pass


class Raw(bytes):
    pass


class Mapping(dict):  # type: ignore[type-arg]
    pass


class Emptied(dict):  # type: ignore[type-arg]
    """A mapping that holds something and shows nothing."""

    def items(self) -> Any:
        return ()


class Listing(list):  # type: ignore[type-arg]
    pass


class Pair(NamedTuple):
    one: int


@dataclasses.dataclass
class Late:
    given: int
    made: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    given: int = 1


@dataclasses.dataclass
class Login:
    """Whose representation gives the secret away."""

    password: str = SECRET


class Form(pydantic.BaseModel):
    model_config: ClassVar[pydantic.ConfigDict] = pydantic.ConfigDict(frozen=True)
    field: int = 1


class Account(pydantic.BaseModel):
    password: pydantic.SecretStr = pydantic.SecretStr(SECRET)


class Root(pydantic.RootModel[list[int]]):
    """A model that is a list."""


class Opaque:
    pass


class Hostile:
    """An object that lets nobody look at it."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("do not touch me")

    __repr__ = __str__ = __eq__ = __ne__ = __hash__ = __bool__ = __len__ = __iter__ = __lt__ = _refuse  # type: ignore[assignment]
    __getitem__ = __int__ = __float__ = __index__ = __call__ = __bytes__ = __format__ = _refuse  # type: ignore[assignment]


class Liar:
    """An object that says it is a dict."""

    @property
    def __class__(self) -> Any:
        return dict

    @__class__.setter
    def __class__(self, _: Any) -> None:
        raise AttributeError


class Odd(NamedTuple):
    row: str
    value: Callable[[], Any]


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def circle_of_maps() -> Any:
    value: dict[str, Any] = {}
    value["again"] = [{"and": value}]
    return value


def deep(levels: int = 70) -> Any:
    return functools.reduce(lambda inner, _: [inner], range(levels), 0)


def deep_maps(levels: int = 70) -> Any:
    return functools.reduce(lambda inner, _: {"k": inner}, range(levels), 0)


async def _later() -> None:
    return None


def _coroutine() -> Any:
    made = _later()
    made.close()  # it is not awaited, and says nothing of it
    return made


def _anything(value: Any) -> Callable[[], Any]:
    return lambda: value


_NOON = datetime.datetime(2024, 1, 1, 12)
_WORLD = zoneinfo.ZoneInfo("UTC")

REFUSED: dict[str, Odd] = {
    "enum": Odd("L23", lambda: Colour.RED),
    "int enum": Odd("L23", lambda: Rank.FIRST),
    "text enum": Odd("L23", lambda: Word.YES),
    "StrEnum": Odd("L23", lambda: Plain.YES),
    "flag": Odd("L23", lambda: Bits.A),
    "int flag": Odd("L23", lambda: Mask.A),
    "defaultdict": Odd("L25", lambda: collections.defaultdict(int, a=1)),
    "Counter": Odd("L25", lambda: collections.Counter("aab")),
    "OrderedDict": Odd("L25", lambda: collections.OrderedDict(a=1)),
    "ChainMap": Odd("L25", lambda: collections.ChainMap({"a": 1})),
    "mapping proxy": Odd("L25", lambda: types.MappingProxyType({"a": 1})),
    "UserDict": Odd("L25", lambda: collections.UserDict(a=1)),
    "subclass of dict": Odd("L25", lambda: Mapping(a=1)),
    "subclass of dict that hides": Odd("L25", lambda: Emptied(a=1)),
    "object that says it is a dict": Odd("L25", Liar),
    "subclass of list": Odd("L25", lambda: Listing([1])),
    "UserList": Odd("L25", lambda: collections.UserList([1])),
    "keys of a dict": Odd("L25", lambda: {"a": 1}.keys()),
    "deque": Odd("L26", lambda: collections.deque([1, 2], maxlen=2)),
    "dataclass": Odd("L28", lambda: Late(1)),
    "frozen dataclass": Odd("L28", Frozen),
    "dataclass with a secret": Odd("L31", Login),
    "Fraction": Odd("L29", lambda: fractions.Fraction(1, 3)),
    "Decimal": Odd("L29", lambda: decimal.Decimal("1.10")),
    "Decimal that is none": Odd("L29", lambda: decimal.Decimal("sNaN")),
    "complex": Odd("L29", lambda: 1j),
    "range": Odd("L29", lambda: range(3)),
    "slice": Odd("L29", lambda: slice(3)),
    "path": Odd("L29", lambda: pathlib.PurePosixPath("/tmp")),
    "pattern": Odd("L29", lambda: re.compile("x")),
    "address": Odd("L29", lambda: ipaddress.ip_address("::1")),
    "tuple": Odd("L29", lambda: (1, 2)),
    "empty tuple": Odd("L29", lambda: ()),
    "named tuple": Odd("L29", lambda: Pair(1)),
    "set": Odd("L29", lambda: {1, 2}),
    "empty set": Odd("L29", set),
    "frozenset": Odd("L29", lambda: frozenset({1})),
    "bytes": Odd("L29", lambda: b"\0"),
    "subclass of bytes": Odd("L29", lambda: Raw(b"\0")),
    "bytearray": Odd("L29", lambda: bytearray(b"\0")),
    "memoryview": Odd("L29", lambda: memoryview(b"\0")),
    "array": Odd("L29", lambda: array.array("i", [1])),
    "generator": Odd("L29", lambda: (number for number in range(3))),
    "iterator": Odd("L29", lambda: iter([1])),
    "coroutine": Odd("L29", _coroutine),
    "function": Odd("L29", _anything(deep)),
    "class": Odd("L29", _anything(Opaque)),
    "builtin class": Odd("L29", _anything(dict)),
    "module": Odd("L29", _anything(math)),
    "object": Odd("L29", Opaque),
    "namespace": Odd("L29", lambda: types.SimpleNamespace(a=1)),
    "hostile object": Odd("L29", Hostile),
    "exception": Odd("L29", lambda: ValueError("x")),
    "Ellipsis": Odd("L29", _anything(...)),
    "NotImplemented": Odd("L29", _anything(NotImplemented)),
    "file": Odd("L29", io.StringIO),
    "lock": Odd("L29", threading.Lock),
    "weak reference": Odd("L29", lambda: weakref.ref(Opaque)),
    "NaN": Odd("L29", _anything(math.nan)),
    "infinity": Odd("L29", _anything(math.inf)),
    "minus infinity": Odd("L29", _anything(-math.inf)),
    "2^64": Odd("L29", _anything(2**64)),
    "-2^63-1": Odd("L29", _anything(-(2**63) - 1)),
    "number of 5,000 digits": Odd("L29", lambda: 10**5_000),
    "minus that": Odd("L29", lambda: -(10**5_000)),
    "lone surrogate": Odd("L29", _anything("\ud800")),
    "pair of surrogates": Odd("L29", _anything("\ud83d\ude00")),
    "circle": Odd("L29", circle),
    "circle of maps": Odd("L29", circle_of_maps),
    "70 levels": Odd("L29", deep),
    "70 levels of maps": Odd("L29", deep_maps),
    "20,000 levels": Odd("L29", lambda: deep(20_000)),
    "1025 entries": Odd("L29", lambda: list(range(1025))),
    "1025 keys": Odd("L29", lambda: {str(number): number for number in range(1025)}),
    "text of more than 8 MiB": Odd("L29", lambda: "x" * (8 * 1024 * 1024 + 1)),
    "secret text": Odd("L31", lambda: pydantic.SecretStr(SECRET)),
    "secret bytes": Odd("L31", lambda: pydantic.SecretBytes(SECRET.encode())),
    "model with a secret": Odd("L31", Account),
    "subclass of str": Odd("T14", lambda: Text("x")),
    "subclass of str that encodes itself": Odd("T14", lambda: Shouted("x")),
    "UserString": Odd("T14", lambda: collections.UserString("x")),
    "subclass of int": Odd("T14", lambda: Number(1)),
    "subclass of float": Odd("T14", lambda: Real(1.5)),
    "key of a subclass of str": Odd("T14", lambda: {Text("k"): 1}),
    "key that is a text enum": Odd("T14", lambda: {Word.YES: 1}),
    "key that is a number": Odd("T14", lambda: {1: 1}),
    "key that is true": Odd("T14", lambda: {True: 1}),
    "key that is None": Odd("T14", lambda: {None: 1}),
    "key that is bytes": Odd("T14", lambda: {b"k": 1}),
    "key that is a tuple": Odd("T14", lambda: {("k",): 1}),
    "key with a lone surrogate": Odd("T14", lambda: {"\udfff": 1}),
    "datetime": Odd("T15", lambda: _NOON.replace(tzinfo=datetime.UTC)),
    "datetime without a zone": Odd("T15", _anything(_NOON)),
    "datetime of an offset": Odd("T15", lambda: _NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))),
    "datetime of a place": Odd("T15", lambda: _NOON.replace(tzinfo=_WORLD)),
    "date": Odd("T15", lambda: datetime.date(2024, 1, 1)),
    "time": Odd("T15", lambda: datetime.time(12, tzinfo=datetime.UTC)),
    "timedelta": Odd("T15", lambda: datetime.timedelta(seconds=1)),
    "zone": Odd("T15", _anything(datetime.UTC)),
    "UUID": Odd("T15", lambda: uuid.UUID(int=1)),
    "pydantic model": Odd("T15", Form),
    "pydantic model of a list": Odd("T15", lambda: Root([1])),
}
"""What JSON cannot hold exactly, each with its row of ``rows.py``."""

KEPT: dict[str, Any] = {
    "None": None,
    "true": True,
    "one": 1,
    "one point nought": 1.0,
    "smallest": -(2**63),
    "2^63-1": 2**63 - 1,
    "2^63": 2**63,
    "largest": 2**64 - 1,
    "2^53+1": 2**53 + 1,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "empty": ["", [], {}, None],
    "null characters": "a\0b",
    "control characters": "\x1b[31m\x7f\x85\u2028",
    "astral": "\U0001f600",
    "composed and not": ["\u00e9", "e\u0301"],
    "order of writing": "\u202e\ufeff",
    "our markers": {"$bytes": "AA=="},
    "our markers, wrong": {"$bytes": 5},
    "our markers, nested": {"$map": {"$bytes": 5}},
    "our markers, twice": {"$map": {"$map": {}}},
    "our markers among others": {"$bytes": "AA==", "a": 1},
    "our forms": {"refold": 1, "link": "00", "end": True},
    "foreign markers": {"__type__": "set", "lc": 1, "__module__": "os", "py/object": "os.system", "__class__": "dict"},
    "keys that look alike": {"a": 1, "A": 2, "\u00e1": 3, "a\u0301": 4, "": 5, "a.b": 6, "a[0]": 7},
    "1024 entries": list(range(1024)),
    "63 levels": deep(58),
}
"""What comes back as it was, type for type."""


def wrapped(value: Any) -> Any:
    """A JSON object with the value three levels down, at ``a[1].b``."""
    return {"a": [0, {"b": value}]}


PLACE = "a[1].b"
Entry = Callable[[LiveRun, Any], Any]
NODE = {"id": 0, "title": "t", "description": "d"}
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
"""Everywhere that refold takes JSON of its callers, by way of the public commands."""


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down: True is not 1, nor is 1 1.0, nor is 0.0 -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and repr(one) == repr(other)


def holds(value: Any, wanted: Any) -> bool:
    """Whether a value is, or holds somewhere inside, the wanted one."""
    if same(value, wanted):
        return True
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(holds(inner, wanted) for inner in inside)
