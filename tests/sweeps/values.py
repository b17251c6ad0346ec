"""Types: awkward values, wherever refold takes JSON and for every argument of every command. It must never let a value
through that does not come back exactly, nor one that is refused change anything.

Each value is judged by rules of its own that are written here from the contract, not by the engine's. A value that is
taken is looked for, type for type, in the event, in what restores give, and in what an export brings elsewhere; one
that is refused must be refused by name and place.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from engine.core.errors import EngineError
from engine.documents import document
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from tests.engine.kit import NEVER, Ticks
from tests.field_reports.awkward import ENTRIES, KEPT, PLACE, REFUSED, SECRET, holds, same, wrapped
from tests.field_reports.prepared import prepared
from tests.field_reports.surface import Call, spied
from tests.field_reports.whole_run import STEPS, TAKE_OVER
from tests.sweeps.harness import Tally, chosen, seed_of

__all__ = ["SWEEP"]

VALUES: Final = 120
ARGUMENTS: Final = 400
"""How many points make a chunk."""

_DEPTH_KEPT: Final = 62
_DEPTH_REFUSED: Final = 65
"""Levels, those of :func:`wrapped` counted, up to which a value must be kept, and from which it must be refused. In
between it depends on what stands round it."""
_ENTRIES_MAX: Final = 1024
_TEXT_BYTES_MAX: Final = 8 * 1024 * 1024
_WORDS: Final = ("k", "name", "own_key", "x1")
_RARE: Final = {"20,000 levels", "text of more than 8 MiB", "1025 entries", "1025 keys"}
"""Values that take long to make or to look through."""


class Abandoned(Exception):
    """Ends a batch so that nothing of it stays."""


# -- what is drawn ----------------------------------------------------------------------------------------------------


def _drawn(dice: random.Random) -> Any:
    """Return a value: something awkward, some levels down in something that is not."""
    value = _leaf(dice)
    for _ in range(dice.choice((0, 0, 1, 2, 3))):
        beside = [dice.choice((None, True, 1, 1.5, "x", [], {})) for _ in range(dice.randrange(3))]
        if dice.random() < 0.5:
            value = [*beside, value]
        else:
            value = {**{f"b{index}": one for index, one in enumerate(beside)}, dice.choice(_WORDS): value}
    return value


def _leaf(dice: random.Random) -> Any:
    roll = dice.random()
    if roll < 0.25:
        name = dice.choice(list(REFUSED))
        return REFUSED[name].value() if name not in _RARE or dice.random() < 0.1 else {1}
    if roll < 0.4:
        return dice.choice(list(KEPT.values()))
    return dice.choice(_MADE)(dice)


def _integer(dice: random.Random) -> int:
    return dice.choice((-1, 1)) * 2 ** dice.randrange(72) + dice.randrange(-2, 3)


def _fraction(dice: random.Random) -> float:
    (bits,) = struct.unpack("<d", dice.randbytes(8))
    scaled = math.ldexp(dice.random(), dice.randrange(-1070, 1000))
    return dice.choice((bits, scaled, float(dice.randrange(2**53)), -0.0, math.nan, -math.inf))


def _text(dice: random.Random) -> str:
    low, high = dice.choice(((0, 0x80), (0x80, 0x800), (0x2000, 0x2100), (0xD000, 0xE000), (0x10000, 0x110000)))
    return "".join(chr(dice.randrange(low, high)) for _ in range(dice.choice((0, 1, 3, 30, 300))))


def _map(dice: random.Random) -> Any:
    keys: list[Any] = [_text(dice) for _ in range(dice.randrange(6))]
    if dice.random() < 0.3:
        keys.append(dice.choice((0, None, True, 1.5, b"k", ("k",), type("Key", (str,), {})("k"))))
    dice.shuffle(keys)
    return {key: _scalar(dice) for key in keys}


def _many(dice: random.Random) -> Any:
    count = dice.choice((_ENTRIES_MAX - 1, _ENTRIES_MAX, _ENTRIES_MAX + 1, 3 * _ENTRIES_MAX))
    return [0] * count if dice.random() < 0.5 else {f"{index:04}": None for index in range(count)}


def _nested(dice: random.Random) -> Any:
    value: Any = 1
    for _ in range(dice.choice((dice.randrange(50), dice.randrange(50, 70), 600))):
        value = [value] if dice.random() < 0.5 else {"k": value}
    return value


def _subclass(dice: random.Random) -> Any:
    base, given = dice.choice(((str, "x"), (int, 1), (float, 1.5), (list, [1]), (dict, {"k": 1}), (bytes, b"x")))
    return type("Own", (base,), {})(given)


def _scalar(dice: random.Random) -> Any:
    return dice.choice((_integer, _fraction, _text))(dice)


_MADE: Final[tuple[Callable[[random.Random], Any], ...]] = (
    _integer, _fraction, _text, _map, _many, _nested, _subclass,
    lambda dice: tuple(range(dice.randrange(3))),
    lambda dice: {"$bytes": _scalar(dice), "__class__": _scalar(dice)},
    lambda dice: [_scalar(dice) for _ in range(dice.randrange(5))],
)  # fmt: skip


# -- what must become of it -------------------------------------------------------------------------------------------


def _places(value: Any, place: str, depth: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield where a value cannot be kept, as far as the place has an undoubted spelling, and whether that is sure."""
    kind = type(value)
    if kind is list or kind is dict:
        if depth >= _DEPTH_KEPT - 3:
            yield place, depth >= _DEPTH_REFUSED - 3
            if depth >= _DEPTH_REFUSED - 3:
                return
        if len(value) > _ENTRIES_MAX:
            yield place, True
            return
    if kind is list:
        for index, inner in enumerate(value):
            yield from _places(inner, f"{place}[{index}]", depth + 1)
    elif kind is dict:
        for key, inner in value.items():
            simple = type(key) is str and key.isascii() and key.isidentifier()
            if not simple and (type(key) is not str or not _encodes(key)):
                yield place, True
            inside = f"{place}.{key}" if simple else place
            for found, sure in _places(inner, inside, depth + 1):
                yield (found if simple else place), sure
    elif not _is_scalar(value):
        yield place, True


def _is_scalar(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return -(2**63) <= value < 2**64
    if kind is float:
        return math.isfinite(value)
    if kind is str:
        return _encodes(value)
    return value is None or kind is bool


def _encodes(text: str) -> bool:
    try:
        return len(text.encode()) <= _TEXT_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _form(value: Any) -> Any:
    """Return what a value is kept as: itself, but that there is one nought."""
    if type(value) is dict:
        return {key: _form(inner) for key, inner in value.items()}
    if type(value) is list:
        return [_form(inner) for inner in value]
    return value + 0.0 if type(value) is float else value


# -- one value, one place ---------------------------------------------------------------------------------------------


class _Values:
    """Gives drawn values to one run, and keeps some of those that were taken in another."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "refold.db"
        self._store = open_store(self._path, checkpoints=NEVER, clock=Ticks())
        self._run = prepared(self._store)
        self._before = self._run.state_bytes(), self._run.position
        self._keeping = self._store.run("kept")
        self._keeping.swarm.start(1)
        self._kept: dict[str, Any] = {}

    def attempt(self, dice: random.Random, tally: Tally) -> str | None:
        """Try one value; return what is wrong, if anything."""
        value, entry = _drawn(dice), dice.choice(list(ENTRIES))
        places = list(_places(value, PLACE))
        seen: list[Any] = []
        try:
            with suppress(Abandoned), self._run.batch():
                seen += ENTRIES[entry](self._run, wrapped(value)).events
                raise Abandoned
        except EngineError as error:
            tally.notes["refused"] += 1
            problem = _refused_wrongly(error, places)
        else:
            tally.notes["kept"] += 1
            problem = self._kept_wrongly(value, places, seen)
            if problem is None and dice.random() < 0.25:
                key = f"k{len(self._kept)}"
                self._keeping.swarm.set_metadata(key, value)
                self._kept[key] = _form(value)
        if (self._run.state_bytes(), self._run.position) != self._before:
            problem = f"{problem or ''} the run is not as before"
        return None if problem is None else f"{entry}, value {_shown(value)}: {problem}"

    @staticmethod
    def _kept_wrongly(value: Any, places: list[tuple[str, bool]], events: list[Any]) -> str | None:
        if any(sure for _, sure in places):
            return f"taken, though not at {places[0][0]}"
        if not any(holds(event.data, _form(wrapped(value))["a"]) for event in events):
            return "taken, and no event holds it"
        return None

    def at_last(self) -> list[str]:
        """Return what is wrong with what was kept, by every way there is to it."""
        if not self._kept:
            return []
        self._keeping.checkpoint()
        self._store.close()
        problems = []
        with open_store(self._path) as store, open_store("memory:") as elsewhere:
            elsewhere.import_lines(store.export_lines("kept"))
            ways = {
                "a checkpoint": store.view("kept"),
                "genesis": store.view("kept", start="genesis"),
                "an export": elsewhere.view("kept"),
            }
            for way, view in ways.items():
                found = document(view)["swarm"]["swarm"]["metadata"]
                for key, form in self._kept.items():
                    if not same(found.get(key), form):
                        problems.append(f"{_shown(form)} came back otherwise by {way}: {_shown(found.get(key))}")
        return problems


def _refused_wrongly(error: EngineError, places: list[tuple[str, bool]]) -> str | None:
    said = str(error) + repr(error.details)
    if not places:
        return f"refused, though JSON holds it: {error}"
    if error.code not in ("invalid_value", "import_refused"):
        return f"refused as {error.code}: {error}"
    if not any(place in str(error) for place, _ in places):
        return f"refused without its place ({places[0][0]}): {error}"
    return "a secret was told" if SECRET in said else None


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.120}"
    except Exception:  # what lets nobody look at it, or has too many digits
        return f"of type {type(value).__name__}"


# -- any argument -----------------------------------------------------------------------------------------------------


class _Arguments:
    """Replaces one argument of a command that was right by a drawn value."""

    def __init__(self, _: Path) -> None:
        self._store: Store = open_store("memory:", checkpoints=NEVER, clock=Ticks())
        self._where: list[tuple[LiveRun, list[Call], bytes]] = []
        for name, steps in (("r", STEPS), ("taken over", (TAKE_OVER,))):
            run = self._store.run(name)
            calls = spied(run)
            for step in steps:
                step(run)
            given = [noted[0] for noted in calls.values() if noted]
            self._where.append((run, given, run.state_bytes()))

    def attempt(self, dice: random.Random, tally: Tally) -> str | None:
        """Give one command; return what is wrong, if anything."""
        run, given, before = self._where[dice.random() < 0.1]
        method, arguments = dice.choice(given)
        name = dice.choice(sorted({*arguments, "command_id", "actor", "at_ms", "cause"}))
        value = _drawn(dice)
        problem = None
        try:
            with suppress(Abandoned), run.batch():
                method(**{**arguments, name: value})
                tally.notes["arguments taken"] += 1
                raise Abandoned
        except EngineError as error:
            tally.notes["arguments refused"] += 1
            if SECRET in str(error) + repr(error.details):
                problem = "a secret was told"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if run.state_bytes() != before:
            problem = f"{problem or ''} the run is not as before"
        return None if problem is None else f"{method.__name__}({name}={_shown(value)}): {problem}"

    def at_last(self) -> list[str]:
        """Return what is wrong with the runs in the end: a handle that knows something else than the store."""
        return [
            f"run {run.id} is otherwise in the store"
            for run, _, before in self._where
            if self._store.view(run.id).state_bytes() != before
        ]


class ValuesSweep:
    """A chunk is so many values for the entries that take JSON; every third one, so many for arguments."""

    name = "values"
    weight = 0.03
    round_size = None

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        kind, count = (_Arguments, ARGUMENTS) if number % 3 == 2 else (_Values, VALUES)
        tried: _Values | _Arguments = kind(folder)
        tally = Tally()
        problems: list[str] = []
        for case in chosen(count, at_most, seed_of("values", number)):
            tally.points += 1
            problem = tried.attempt(seed_of("values", number, case), tally)
            if problem is not None:
                problems.append(f"case {case}: {problem}")
        problems += tried.at_last()
        tally.violations = [f"values chunk {number}: {problem}" for problem in problems]
        return tally


SWEEP = ValuesSweep()
