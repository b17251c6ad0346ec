"""The simulated memory of a process: everything that functions keep outside their state belongs to one process."""

from __future__ import annotations

import time
from collections import Counter, deque
from functools import cache, partial
from typing import Any

from engine.core.catalog import EventType
from engine.core.fields import ID, Field
from engine.core.model import Model
from engine.core.plain import PlainProjection
from engine.testing.memory import Memory

SEEN = EventType("seen.seen", (Field("what", ID),))

names: set[str] = set()
count = 0
late = None
log: deque[str] = deque(maxlen=3)
tally: Counter[str] = Counter()


class Remembers:
    shared: list[str] = []  # noqa: RUF012  # the very mistake that is looked for
    number = 0

    def __init__(self) -> None:
        self.own: dict[str, list[str]] = {"all": []}


remembers = Remembers()


@cache
def length(what: str) -> float:
    return time.perf_counter()


def with_default(what: str, known: dict[str, int] = {}) -> None:  # noqa: B006  # the very mistake that is looked for
    known[what] = len(known)
    with_default.calls = getattr(with_default, "calls", 0) + 1


def closing() -> Any:
    inner: list[str] = []
    number = 0

    def remember(what: str) -> tuple[list[str], int]:
        nonlocal number
        number += 1
        inner.append(what)
        return inner, number

    return remember


closed = closing()


def evolve(state: Any, event: Any, extra: Any = None) -> None:
    global count, late
    what = event["what"]
    names.add(what)
    count += 1
    late = late or {}
    late[what] = True
    log.append(what)
    tally[what] += 1
    remembers.own["all"].append(what)
    Remembers.shared.append(what)
    Remembers.number += 1
    length(what)
    with_default(what)
    closed(what)
    extra.append(what)


PROJECTION = PlainProjection(
    "seen", [SEEN], initial=dict, decide=lambda state, command: [], evolve=partial(evolve, extra=[])
)
MODEL = Model((PROJECTION,))


def see(*things: str) -> None:
    state = MODEL.initial()
    for what in things:
        state.apply([[0, None, None, None, None, [SEEN.wire(what)]]])


def everything() -> Any:
    inner, number = closed.__closure__[0].cell_contents, closed.__closure__[1].cell_contents
    (extra,) = [
        part for part in (PROJECTION.evolve["seen.seen"].__closure__ or ()) if isinstance(part.cell_contents, partial)
    ]
    return (
        sorted(names), count, late, list(log), dict(tally), remembers.own["all"].copy(), Remembers.shared.copy(),
        Remembers.number, dict(with_default.__defaults__[0]), getattr(with_default, "calls", 0), list(inner), number,
        list(extra.cell_contents.keywords["extra"]),
    )  # fmt: skip


NOTHING = ([], 0, None, [], {}, [], [], 0, {}, 0, [], 0, [])
A = (["a"], 1, {"a": True}, ["a"], {"a": 1}, ["a"], ["a"], 1, {"a": 0}, 1, ["a"], 1, ["a"])


def test_two_processes_share_nothing_and_remember_everything() -> None:
    """What one process keeps is there when it runs again, is not there in another, and outside nothing has changed."""
    memory = Memory(MODEL)
    one, other = memory.process(), memory.process()
    with one.running():
        see("a")
        assert everything() == A
        first = length("a")
    assert everything() == NOTHING
    with other.running():
        assert everything() == NOTHING
        assert length("a") != first
        see("x", "y")
    with one.running():
        assert everything() == A
    assert everything() == NOTHING


def test_a_branch_remembers_and_is_another_process() -> None:
    """A branch begins with what the process knew; what happens in it stays in it."""
    memory = Memory(MODEL)
    one = memory.process()
    with one.running():
        see("a")
    with one.branch().running():
        assert everything() == A
        see("b", "c")
    with one.running():
        assert everything() == A


def test_an_error_inside_leaves_outside_as_it_was() -> None:
    """A fold that raises half-way is still inside."""
    process = Memory(MODEL).process()
    try:
        with process.running():
            see("a")
            raise ZeroDivisionError
    except ZeroDivisionError:
        assert everything() == NOTHING


def test_a_process_within_itself_is_itself() -> None:
    """Nested blocks of one process are one."""
    process = Memory(MODEL).process()
    with process.running():
        see("a")
        with process.running():
            assert everything() == A
        assert everything() == A
