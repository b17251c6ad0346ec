"""Checks what many processes, some of them killed, saw of one append-only log: is there an order in which all of it
happened, one thing at a time, each between its beginning and its end? It must never pass a history that has no such
order, nor fail one that has.

For any object that question is a search. For a log with optimistic concurrency it is a walk: what the log holds at the
end says in which order the commits happened, and every other operation only bounds the moment of a commit. An
acknowledgement says that the commit happened before it came; a read says that the commits it shows had happened when
it ended, and that the next one had not when it began; a conflict says that somebody was ahead. So each commit, in the
order of the log, is put at the earliest moment that is left to it; where none is left, there is no such order.

Several logs are checked one by one: a history is linearizable when that of each object is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Final, Literal, TypeAlias

from engine.core.envelope import Event, events_of
from engine.open_store import Store

__all__ = [
    "Answer", "AppendCall", "LogEntry", "NotLinearizable", "ReadCall", "Violation", "assert_linearizable", "log_of",
    "violations_of",
]  # fmt: skip

Answer: TypeAlias = Literal["written", "repeated", "acknowledged", "conflict", "refused", "unknown"]
"""What an attempt was told: that it wrote its commands; that they had been written before; that they are written, by
this attempt or before; that another writer was ahead and nothing was written; that nothing was written for any other
reason; or nothing that says whether it was written."""

_DONE: Final = ("written", "repeated", "acknowledged")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One commit as the log holds it: positions ``first..last``, and the commands that wrote them, by the ids under
    which they were given."""

    first: int
    last: int
    commands: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class AppendCall:
    """One attempt to append one commit. Given again, the same commands are another attempt.

    ``invoked`` and ``ended`` are of one clock that all processes share, such as ``time.monotonic_ns()`` on one machine.
    What a process was at when it was killed ended when it was dead for certain; ``ended`` None says that it may happen
    for ever. ``first`` and ``last`` are what a done attempt was told of its commit; ``after`` is the position that the
    process decided at, where that is known: then the commit stands right behind it.
    """

    commands: tuple[Hashable, ...]
    invoked: int
    ended: int | None
    answer: Answer
    first: int = 0
    last: int = 0
    after: int | None = None
    process: str = ""

    def __str__(self) -> str:
        who = f"{self.process}'s " if self.process else ""
        end = "" if self.ended is None else self.ended
        return f"{who}attempt at {_named(self.commands)} ({self.invoked}..{end}, {self.answer})"


@dataclass(frozen=True, slots=True)
class ReadCall:
    """One read that claims to be up to date: the position it showed, and the state there (a digest, or anything that
    can be compared), None when it was not looked at."""

    invoked: int
    ended: int
    position: int
    state: Hashable = None
    process: str = ""

    def __str__(self) -> str:
        who = f"{self.process}'s " if self.process else ""
        return f"{who}read of {self.position} ({self.invoked}..{self.ended})"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that no order explains. ``kind``, and what it says:

    ``lost``: acknowledged, or read, and not in the log. ``doubled``: a command is there twice, or two attempts wrote
    it. ``half``: a commit of some of an attempt's commands, a read within a commit. ``outcome``: an attempt was told
    of other positions. ``denied``: written by an attempt that was told it was not. ``invented``: written by nobody.
    ``fenced``: written behind another position than it was decided at. ``spurious``: a conflict with nobody ahead.
    ``reordered``: commits that are not in the order of time. ``stale``: a read that does not show what was there
    before it. ``early``: a read of what nobody had asked for yet. ``state``: a read of another state. ``gap``: a log
    whose positions do not follow one another.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class NotLinearizable(AssertionError):
    """No order explains a history; ``violations`` says why."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        super().__init__("\n".join(map(str, violations)))
        self.violations = tuple(violations)


def log_of(
    store: Store, run_id: str, name: Callable[[Event], Hashable] = lambda event: event.command_id
) -> list[LogEntry]:
    """Return what a run holds, as the log for :func:`violations_of`; ``name`` gives the id of an event's command.

    Raises NotFound, CorruptJournal.
    """
    store.journal.existing_head(run_id)
    entries = []
    for commit in store.journal.commits(run_id):
        names = map(name, events_of(commit, store.model.catalog))
        entries.append(LogEntry(commit.first, commit.last, tuple(each for each, _ in groupby(names))))
    return entries


def assert_linearizable(
    operations: Iterable[AppendCall | ReadCall],
    log: Sequence[LogEntry],
    state_at: Callable[[int], Hashable] | None = None,
) -> None:
    """Check a history as :func:`violations_of` does. Raises NotLinearizable."""
    violations = violations_of(operations, log, state_at)
    if violations:
        raise NotLinearizable(violations)


def violations_of(
    operations: Iterable[AppendCall | ReadCall],
    log: Sequence[LogEntry],
    state_at: Callable[[int], Hashable] | None = None,
) -> list[Violation]:
    """Return why no order of the operations on an empty log explains what they saw and what the log holds at the end;
    an empty list when one does.

    The operations are all that were given to the log, in any order; ``state_at(position)`` is the state that a read of
    the position should show, and is asked once for each that was read. Without it reads of one position must agree.
    Costs n log n.
    """
    history = _History(log)
    for operation in operations:
        if isinstance(operation, AppendCall):
            history.take_attempt(operation)
        else:
            history.take_read(operation, state_at)
    history.place()
    return history.violations


# -- the walk ---------------------------------------------------------------------------------------------------------


_Bound: TypeAlias = tuple[float, AppendCall | ReadCall | None]
"""A moment, and the operation that it is known from."""


class _Moment:
    """What is known of the moment of one commit: who may have written it, and what it lies between."""

    def __init__(self, entry: LogEntry) -> None:
        self.entry = entry
        self.attempts: list[AppendCall] = []
        self.explained = False  # a violation says already why nobody wrote it
        self.low: _Bound = (-inf, None)
        self.high: _Bound = (inf, None)

    def not_before(self, operation: ReadCall) -> None:
        self.low = max(self.low, (operation.invoked, operation), key=_time)

    def not_after(self, operation: AppendCall | ReadCall) -> None:
        self.high = min(self.high, (inf if operation.ended is None else operation.ended, operation), key=_time)


class _History:
    def __init__(self, log: Sequence[LogEntry]) -> None:
        self.violations: list[Violation] = []
        self._moments = [_Moment(entry) for entry in log]
        self._lasts = [entry.last for entry in log]
        self._of: dict[Hashable, _Moment] = {}
        self._given: set[Hashable] = set()
        self._states: dict[int, Hashable] = {}
        last = 0
        for moment in self._moments:
            entry = moment.entry
            if entry.first != last + 1 or entry.last < entry.first:
                self._say("gap", f"{_at(entry)} follows position {last}")
            last = entry.last
            for command in entry.commands:
                if command in self._of:
                    self._say("doubled", f"{command!r} is in {_at(self._of[command].entry)} and in {_at(entry)}")
                    moment.explained = True
                self._of.setdefault(command, moment)

    def _say(self, kind: str, message: str) -> None:
        self.violations.append(Violation(kind, message))

    def take_attempt(self, call: AppendCall) -> None:
        """Find the commit of an attempt, and note what the attempt says of it."""
        assert call.ended is None or call.invoked <= call.ended, "an attempt ends after it began"
        self._given.update(call.commands)
        found = {id(moment): moment for command in call.commands if (moment := self._of.get(command)) is not None}
        moment = next(iter(found.values()), None)
        whole = moment is not None and moment.entry.commands == call.commands
        if whole and moment is not None:
            moment.attempts.append(call)
        if call.answer in _DONE:
            if moment is None:
                self._say("lost", f"{call} was told of {call.first}..{call.last}, which is not in the log")
            elif not whole:
                self._say("half", f"{call} is one commit, and the log has {_at(moment.entry)}")
                for part in found.values():
                    part.explained = True
            elif (call.first, call.last) != (moment.entry.first, moment.entry.last):
                self._say("outcome", f"{call} was told of {call.first}..{call.last}, and it is {_at(moment.entry)}")
            else:
                moment.not_after(call)
        elif call.answer == "conflict" and call.after is not None:
            ahead = bisect_right(self._lasts, call.after)
            if ahead == len(self._moments):
                self._say("spurious", f"{call} was decided at {call.after}, and nothing was ever behind that")
            else:
                self._moments[ahead].not_after(call)

    def take_read(self, call: ReadCall, state_at: Callable[[int], Hashable] | None) -> None:
        """Note what a read says of the last commit that it shows and of the next one."""
        assert call.invoked <= call.ended, "a read ends after it began"
        shown = bisect_right(self._lasts, call.position)
        if call.position != (self._lasts[shown - 1] if shown else 0):
            kind = "half" if shown < len(self._moments) else "lost"
            there = f"the log has {_at(self._moments[shown].entry)}" if kind == "half" else "the log ends before it"
            self._say(kind, f"{call}, and {there}")
            return
        if shown:
            self._moments[shown - 1].not_after(call)
        if shown < len(self._moments):
            self._moments[shown].not_before(call)
        if call.state is None:
            return
        if call.position not in self._states:
            self._states[call.position] = call.state if state_at is None else state_at(call.position)
        if call.state != self._states[call.position]:
            self._say("state", f"{call} saw {call.state!r}, and it is {self._states[call.position]!r}")

    def place(self) -> None:
        """Put each commit at the earliest moment that is left to it."""
        now: _Bound = (-inf, None)
        for moment in self._moments:
            now = max(now, moment.low, key=_time)
            writers = self._writers(moment)
            if not writers:
                continue
            ends = [(inf if writer.ended is None else writer.ended, writer) for writer in writers]
            possible = [max(now, (writer.invoked, writer), key=_time) for end, writer in ends if now[0] <= end]
            if possible:
                now, until = min(possible, key=_time), moment.high
            else:
                until = max(ends, key=_time)
            if now[0] > until[0]:
                kind = "reordered"
                if isinstance(now[1], ReadCall):
                    kind = "stale"
                elif isinstance(until[1], ReadCall):
                    kind = "early"
                elif isinstance(until[1], AppendCall) and until[1].answer == "conflict":
                    kind = "spurious"
                self._say(kind, f"{_at(moment.entry)} is there by the {until[1]}, and not before the {now[1]}")
                now = until  # so that what follows is not blamed for it

    def _writers(self, moment: _Moment) -> list[AppendCall]:
        """Return the attempts that may have written a commit: one that was told so, else those that may not know."""
        entry, attempts = moment.entry, moment.attempts
        told = [call for call in attempts if call.answer == "written"]
        if len(told) > 1:
            self._say("doubled", f"{_at(entry)} was written by the {told[0]} and by the {told[1]}")
        candidates = told[:1] or [call for call in attempts if call.answer in ("acknowledged", "unknown")]
        able = [call for call in candidates if call.after is None or call.after == entry.first - 1]
        if able:
            return able
        if moment.explained:
            return []
        if candidates:
            self._say("fenced", f"{_at(entry)}, and the {candidates[0]} was decided at {candidates[0].after}")
        elif denied := [call for call in attempts if call.answer in ("conflict", "refused")]:
            self._say("denied", f"{_at(entry)} was written, and so says no attempt, such as the {denied[0]}")
        elif not attempts and not self._given.isdisjoint(entry.commands):
            self._say("half", f"{_at(entry)}, and no attempt was of just these commands")
        else:
            self._say("invented", f"{_at(entry)}, and no attempt can have written it")
        return []


def _time(bound: _Bound) -> float:
    return bound[0]


def _at(entry: LogEntry) -> str:
    place = f"{entry.first}" if entry.first == entry.last else f"{entry.first}..{entry.last}"
    return f"{_named(entry.commands)} at {place}"


def _named(commands: tuple[Hashable, ...]) -> str:
    return ", ".join(map(str, commands))
