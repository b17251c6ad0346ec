"""The checker of histories: every planted violation is named, and on small histories it agrees with a search of all
orders."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine.testing
from engine.testing import (
    AppendCall,
    LogEntry,
    NotLinearizable,
    ReadCall,
    assert_linearizable,
    log_of,
    violations_of,
)
from tests.engine.kit import toy_store
from tests.toy import Open, Pay

Operation = AppendCall | ReadCall

LOG = [LogEntry(1, 1, ("a",)), LogEntry(2, 4, ("b", "c")), LogEntry(5, 5, ("d",))]


def state_at(position: int) -> str:
    return f"state {position}"


def told(commands: str, invoked: int, ended: int | None, answer: Any = "written", **more: Any) -> AppendCall:
    """An attempt; one that is done was told what the log says."""
    key = tuple(commands)
    entry = next((entry for entry in LOG if entry.commands == key), None)
    if entry is not None and answer in ("written", "repeated", "acknowledged"):
        more = {"first": entry.first, "last": entry.last, **more}
    return AppendCall(key, invoked, ended, answer, process="p", **more)


def saw(position: int, invoked: int, ended: int, state: Hashable = "") -> ReadCall:
    """A read; it saw the right state unless another one is given."""
    return ReadCall(invoked, ended, position, state_at(position) if state == "" else state, process="q")


SOUND: list[Operation] = [
    told("a", 0, 10, after=0),
    told("d", 5, 12, "conflict", after=0),
    saw(1, 11, 15),
    told("bc", 12, 20, "unknown", after=1),
    told("bc", 25, 30, "repeated"),
    told("e", 26, 31, "refused"),
    saw(4, 28, 40),
    told("d", 35, 45, after=4),
    told("f", 50, None, "unknown"),
]
"""What four processes saw: one lost a race, one was killed in ``bc``, another gave it again."""

BROKEN: dict[str, tuple[str, Sequence[LogEntry], list[Operation]]] = {
    "an acknowledged command is not there": ("lost", LOG, [told("x", 1, 2, first=6, last=6)]),
    "what was read is gone": ("lost", LOG, [saw(9, 51, 52)]),
    "a command id is there twice": (
        "doubled",
        [*LOG, LogEntry(6, 6, ("a",))],
        [],
    ),
    "two attempts wrote one command": ("doubled", LOG, [told("a", 0, 10)]),
    "a part of a commit": (
        "half",
        [*LOG, LogEntry(6, 6, ("x",))],
        [told("xy", 46, 60, "unknown")],
    ),
    "an acknowledged commit of which a part is there": (
        "half",
        [*LOG, LogEntry(6, 6, ("x",))],
        [told("xy", 46, 60, first=6, last=7)],
    ),
    "a read of half a commit": ("half", LOG, [saw(3, 28, 40)]),
    "a repeated command was told something else": ("outcome", LOG, [told("a", 50, 51, "repeated", first=2, last=4)]),
    "a refused command is there": (
        "denied",
        [*LOG, LogEntry(6, 6, ("e",))],
        [],
    ),
    "a command that nobody gave": ("invented", [*LOG, LogEntry(6, 6, ("z",))], []),
    "a command that was there before it was first written": (
        "invented",
        [*LOG, LogEntry(6, 6, ("z",))],
        [told("z", 46, 60, "repeated", first=6, last=6)],
    ),
    "a writer that was stopped wrote behind a rival": (
        "fenced",
        [*LOG, LogEntry(6, 6, ("x",))],
        [told("x", 1, 60, first=6, last=6, after=1)],
    ),
    "a writer that was stopped and killed wrote behind a rival": (
        "fenced",
        [*LOG, LogEntry(6, 6, ("x",))],
        [told("x", 1, 60, "unknown", after=1)],
    ),
    "a conflict with nobody": ("spurious", LOG, [told("x", 46, 47, "conflict", after=5)]),
    "a conflict with what came later": ("spurious", LOG, [told("x", 1, 2, "conflict", after=1)]),
    "commits against the order of time": (
        "reordered",
        [*LOG, LogEntry(6, 6, ("x",))],
        [told("x", 1, 2, first=6, last=6)],
    ),
    "a killed process wrote after its death": (
        "reordered",
        [*LOG, LogEntry(6, 6, ("x",))],
        [told("x", 1, 2, "unknown")],
    ),
    "a read that missed what was acknowledged": ("stale", LOG, [saw(1, 46, 47)]),
    "a read that missed what another one saw": (
        "stale",
        [*LOG, LogEntry(6, 6, ("f",))],
        [saw(6, 51, 52), saw(5, 53, 54)],
    ),
    "a read of what was not given yet": ("early", LOG, [saw(5, 20, 34)]),
    "a read of another state": ("state", LOG, [saw(4, 28, 40, "no such state")]),
    "positions that do not follow": ("gap", [*LOG, LogEntry(7, 7, ("f",))], []),
}


def test_a_sound_history_has_no_violation() -> None:
    """Lost races, kills, commands given again and reads in between are all explained."""
    assert violations_of(SOUND, LOG, state_at) == []
    assert_linearizable(reversed(SOUND), LOG)
    assert violations_of([], []) == []


@pytest.mark.parametrize("name", list(BROKEN))
def test_every_planted_violation_is_named(name: str) -> None:
    """Each kind is found, by its name, and is the only one."""
    kind, log, more = BROKEN[name]
    with pytest.raises(NotLinearizable) as caught:
        assert_linearizable([*SOUND, *more], log, state_at)
    assert [violation.kind for violation in caught.value.violations] == [kind]
    assert str(caught.value).startswith(f"{kind}: ")
    assert not linearizable([*SOUND, *more], log)


def test_reads_of_one_position_must_agree_when_nobody_knows_the_state() -> None:
    """Without an oracle the reads are each other's."""
    calls = [*SOUND, saw(5, 50, 51), saw(5, 50, 51)]
    assert violations_of(calls, LOG) == []
    assert [each.kind for each in violations_of([*calls, saw(5, 50, 51, "other")], LOG)] == ["state"]


def test_one_fault_is_told_once() -> None:
    """What comes after a commit in the wrong place is not blamed for it, and further faults are found."""
    log = [*LOG, LogEntry(6, 6, ("x",)), LogEntry(7, 7, ("y",)), LogEntry(8, 8, ("z",))]
    more = [
        told("x", 1, 2, first=6, last=6),
        told("y", 60, 70, first=7, last=7),
        told("z", 50, 55, first=8, last=8),
    ]
    assert [each.kind for each in violations_of([*SOUND, *more], log)] == ["reordered", "reordered"]


def test_a_long_history_is_checked_in_no_time() -> None:
    """Fifty thousand operations are a walk, not a search."""
    log = [LogEntry(number, number, (number,)) for number in range(1, 25_001)]
    calls: list[Operation] = []
    for entry in log:
        now = 10 * entry.first
        calls.append(AppendCall(entry.commands, now - 25, now, "written", entry.first, entry.last, entry.first - 1))
        calls.append(ReadCall(now - 20, now + 20, entry.last))
    assert violations_of(calls, log) == []


# -- against a search of all orders -----------------------------------------------------------------------------------


def linearizable(operations: Sequence[Operation], log: Sequence[LogEntry]) -> bool:
    """Say whether some order of the operations, each within its time, takes an empty log to ``log`` with every answer
    being what a log answers. By trying."""
    return _search(tuple(operations), 0, log, set())


def _search(left: tuple[Operation, ...], held: int, log: Sequence[LogEntry], seen: set[Any]) -> bool:
    if (left, held) in seen:
        return False
    seen.add((left, held))
    if held == len(log) and all(_may_never_happen(each) for each in left):
        return True
    for number, one in enumerate(left):
        rest = left[:number] + left[number + 1 :]
        before = [each for each in rest if each.ended is not None and each.ended < one.invoked]
        if not all(map(_may_never_happen, before)):
            continue
        rest = tuple(each for each in rest if each not in before)
        if any(_search(rest, after, log, seen) for after in _steps(one, held, log)):
            return True
    return False


def _may_never_happen(one: Operation) -> bool:
    return isinstance(one, AppendCall) and one.answer == "unknown"


def _steps(one: Operation, held: int, log: Sequence[LogEntry]) -> list[int]:
    """Return how many entries the log may hold after an operation, when it holds so many before it."""
    head = log[held - 1].last if held else 0
    if isinstance(one, ReadCall):
        return [held] if one.position == head and one.state in (None, state_at(head)) else []
    steps = []
    done_as = [(entry.first, entry.last) for entry in log[:held] if entry.commands == one.commands]
    if one.answer in ("repeated", "acknowledged") and (one.first, one.last) in done_as:
        steps.append(held)
    if one.answer == "refused" or (one.answer == "conflict" and (one.after is None or one.after < head)):
        steps.append(held)
    if one.answer in ("written", "acknowledged", "unknown") and held < len(log):
        new = log[held]
        used = [command for entry in log[:held] for command in entry.commands]
        if (
            new.commands == one.commands
            and len(set(new.commands)) == len(new.commands)
            and not set(used) & set(new.commands)
            and new.first == head + 1 <= new.last
            and one.after in (None, head)
            and (one.answer == "unknown" or (one.first, one.last) == (new.first, new.last))
        ):
            steps.append(held + 1)
    return steps


@st.composite
def histories(draw: Any) -> tuple[list[Operation], list[LogEntry]]:
    """A small history that a log did give, in which then up to three things were changed: mostly to what no log gives,
    and often to what one still might."""
    log: list[LogEntry] = []
    calls: list[Operation] = []
    for moment in range(0, 3 * draw(st.integers(0, 6)), 3):
        head = log[-1].last if log else 0
        invoked, ended = moment - draw(st.integers(0, 7)), moment + draw(st.integers(0, 7))
        commands = draw(st.sampled_from(["a", "b", "c", "de"]))
        key = tuple(commands)
        known = next((entry for entry in log if entry.commands == key), None)
        after = draw(st.sampled_from([None, head, max(0, head - 1)]))
        what = draw(st.sampled_from(["append", "append", "read", "refused"]))
        if what == "read":
            calls.append(ReadCall(invoked, ended, head, draw(st.sampled_from([None, state_at(head)]))))
        elif what == "refused":
            calls.append(AppendCall(key, invoked, ended, "refused", after=after))
        elif after is not None and after != head:
            calls.append(AppendCall(key, invoked, ended, draw(st.sampled_from(["conflict", "unknown"])), after=after))
        elif known is not None:
            answer = draw(st.sampled_from(["repeated", "acknowledged", "unknown"]))
            calls.append(AppendCall(key, invoked, ended, answer, known.first, known.last, after))
        else:
            log.append(LogEntry(head + 1, head + draw(st.sampled_from([1, 1, 2])), key))
            answer = draw(st.sampled_from(["written", "acknowledged", "unknown"]))
            end = None if answer == "unknown" and draw(st.booleans()) else ended
            calls.append(AppendCall(key, invoked, end, answer, log[-1].first, log[-1].last, after))
    for _ in range(draw(st.integers(0, 3))):
        _change(draw, calls, log)
    return calls, log


def _change(draw: Any, calls: list[Operation], log: list[LogEntry]) -> None:
    roll = draw(st.integers(0, 9))
    if roll == 0 and log:
        log.pop(draw(st.integers(0, len(log) - 1)))
    elif roll == 1 and log:
        number = draw(st.integers(0, len(log) - 1))
        change: Any = draw(
            st.sampled_from([{"commands": ("a",)}, {"commands": ("d",)}, {"last": log[number].last + 1}])
        )
        log[number] = replace(log[number], **change)
    elif roll == 2:
        head = log[-1].last if log else 0
        log.append(LogEntry(head + 1, head + 1, draw(st.sampled_from([("a",), ("z",)]))))
    elif calls:
        number = draw(st.integers(0, len(calls) - 1))
        one = calls[number]
        shift = draw(st.integers(-12, 12))
        if roll in (3, 4, 5):
            ended = None if one.ended is None else one.ended + shift
            calls[number] = replace(one, invoked=one.invoked + shift, ended=ended)  # type: ignore[arg-type]
        elif roll == 6:
            calls.pop(number)
        elif isinstance(one, ReadCall):
            state = draw(st.sampled_from([None, "no such state", one.state]))
            calls[number] = replace(one, position=draw(st.integers(0, 5)), state=state)
        else:
            answers = ["written", "repeated", "acknowledged", "conflict", "refused", "unknown"]
            change = draw(
                st.sampled_from(
                    [{"answer": answer} for answer in answers] + [{"after": after} for after in (None, 0, 1, 2)]
                )
            )
            calls[number] = replace(one, **change)


@given(histories())
def test_the_walk_agrees_with_a_search_of_all_orders(history: tuple[list[Operation], list[LogEntry]]) -> None:
    """A history has no violation exactly when some order explains it."""
    calls, log = history
    assert (violations_of(calls, log, state_at) == []) == linearizable(calls, log)


# -- with runs of a store ---------------------------------------------------------------------------------------------


def test_the_log_of_a_run_says_which_commands_wrote_it(tmp_path: Path) -> None:
    """Commits with their commands' ids, in order; a command without one is named as one likes."""
    with toy_store(tmp_path / "refold.db") as store:
        run = store.run("r")
        run.submit(Open(account="a"), command_id="open")
        with run.batch():
            run.submit(Pay(account="a", amount=1), command_id="one")
            run.submit(Open(account="b"), actor="two")
            run.submit(Open(account="a"), command_id="three")
        assert log_of(store, "r") == [LogEntry(1, 1, ("open",)), LogEntry(2, 4, ("one", None, "three"))]
        named = log_of(store, "r", lambda event: event.command_id or event.actor)
        assert named[1].commands == ("one", "two", "three")


def test_the_readme_shows_it_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the README runs, and the history it makes is sound; with an operation lost, it is not."""
    monkeypatch.chdir(tmp_path)
    text = (Path(engine.testing.__file__).parent / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Many processes at once\n")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```py\n(.*?)```", section, re.DOTALL)
    made: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), made)
    written = [call for call in made["calls"] if getattr(call, "answer", "") == "written"]
    assert len(written) == len(made["log"]) == 31
    with pytest.raises(NotLinearizable, match="invented"):
        assert_linearizable(made["calls"][1:], made["log"])
