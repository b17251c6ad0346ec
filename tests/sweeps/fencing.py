"""Fencing: many processes write the same runs while they are stopped, let go on and killed at random, most of all with
the write lock in their hands. It must never judge by what a process believes, but by one order that explains what all
of them were told and what the store holds.

A stopped process comes back as if no time had passed: it believes in a state that others have long left behind, and
must lose. A killed one does not know what became of its last command, and the one after it gives the same command
again. A chunk is a seed, not a schedule: the kernel has its say. What fails leaves its store and the notes of all
processes in a folder, so that it can be looked at without happening again.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.core.envelope import Event
from engine.core.errors import EngineError
from engine.open_store import Store
from engine.store import sqlite_connections
from engine.testing import AppendCall, ReadCall, Twin, log_of, violations_of
from engine.testing.failure import FOLDER_VARIABLE
from projections.model import MODEL
from tests.engine.kit import second_fold, stored_rows
from tests.sweeps.fencing_forks import Forks, ForkWork, clean_up
from tests.sweeps.fencing_work import Plan, Told, Work, told_in
from tests.sweeps.harness import Tally, seed_of
from tests.toy import BANK

__all__ = ["KINDS", "SWEEP", "FencingSweep"]

PROCESSES: Final = 16
STEPS: Final = 60
DISTURBED_HZ: Final = 6
"""How often each process is stopped or killed, on average."""
TOO_LONG_S: Final = 240
_WRITE_LOCK_BYTE: Final = 120  # of the -shm file, see sqlite.org/walformat.html
_FLOCK: Final = struct.Struct("@hhqqi4x")


@dataclass(frozen=True)
class Kind:
    """What is done in a chunk. ``patience_s`` is the busy timeout where it is not the engine's own; then processes are
    stopped for longer than that, and others do give up. ``work`` is what each process does."""

    name: str
    signals: bool = True
    patience_s: float | None = None
    stops_max_s: float = 0.15
    work: type[Work] = Work


KINDS: Final = (
    Kind("bank"),
    Kind("model"),
    Kind("bank, impatient", patience_s=0.03, stops_max_s=0.3),
    Kind("bank, undisturbed", signals=False),
    Kind("model, impatient", patience_s=0.03, stops_max_s=0.3),
    Kind("model, forked", work=ForkWork),
    Kind("bank, forked", work=ForkWork),
    Kind("bank, forked, impatient", patience_s=0.03, stops_max_s=0.3, work=ForkWork),
)


class FencingSweep:
    """A chunk is a seed and one of the kinds; a point is an operation that was explained."""

    name = "fencing"
    weight = 0.06
    round_size = None

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        kind = KINDS[number % len(KINDS)]
        dice = seed_of("fencing", number)
        processes = PROCESSES if at_most is None else 5
        plan = Plan(
            number,
            folder / "refold.db",
            MODEL if kind.name.startswith("model") else BANK,
            tuple(f"r{each}" for each in range(dice.choice((1, 2, 4)))),
            STEPS if at_most is None else max(2, at_most // processes),
            kind.patience_s is None,
        )
        tally = Tally()
        with _patience(kind.patience_s):
            problems = Herd(plan, kind, processes, dice, tally).drive()
            problems += _judge(plan, tally, dice)
        if problems:
            problems.append(f"what they did is in {_kept(folder, number)}")
        tally.violations = [f"fencing chunk {number} ({kind.name}): {problem}" for problem in problems]
        return tally


@contextmanager
def _patience(seconds: float | None) -> Iterator[None]:
    before = sqlite_connections.BUSY_TIMEOUT_S
    sqlite_connections.BUSY_TIMEOUT_S = before if seconds is None else seconds  # type: ignore[misc]
    try:
        yield
    finally:
        sqlite_connections.BUSY_TIMEOUT_S = before  # type: ignore[misc]


def _kept(folder: Path, number: int) -> Path:
    """Keep what a chunk left; return where."""
    kept = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "refold-failures")
    target = kept / f"fencing-{number}-{time.time_ns()}"
    shutil.copytree(folder, target)
    return target


# -- the processes ----------------------------------------------------------------------------------------------------


class Herd:
    """The processes of a chunk, and what is done to them until each has taken its steps."""

    def __init__(self, plan: Plan, kind: Kind, count: int, dice: random.Random, tally: Tally) -> None:
        self._plan = plan
        self._kind = kind
        self._count = count
        self._dice = dice
        self._tally = tally
        self._names: dict[int, str] = {}  # of those that live, by pid
        self._asleep: dict[int, float] = {}  # until when
        self._problems: list[str] = []

    def drive(self) -> list[str]:
        """Let the processes do their work; return what went wrong with them."""
        self._start("p0", lambda: Work(self._plan, "p0").begin())
        while self._names:
            self._reap()
        for number in range(1, self._count + 1):
            name = f"p{number}"
            self._start(name, self._work(name))
        next_at = time.monotonic()
        deadline = next_at + TOO_LONG_S
        try:
            while self._names and not self._problems:
                self._reap()
                self._wake()
                if self._kind.signals and self._names and time.monotonic() > next_at:
                    self._disturb()
                    next_at = time.monotonic() + self._dice.expovariate(DISTURBED_HZ * len(self._names))
                time.sleep(0.002)
                if time.monotonic() > deadline:
                    self._problems.append(f"{sorted(self._names.values())} were not done after {TOO_LONG_S} s")
        finally:
            for pid in list(self._names):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return self._problems

    def _work(self, name: str, died: int | None = None) -> Callable[[], None]:
        return lambda: self._kind.work(self._plan, name, died).all_steps()

    def _start(self, name: str, work: Callable[[], None]) -> None:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work()
                status = 0
            except BaseException:
                error = traceback.format_exc()
                self._plan.path.with_name(f"{name}.failed").write_text(error)
            finally:
                os._exit(status)
        self._names[pid] = name

    def _reap(self) -> None:
        """Start anew who was killed; a process that ended by itself is done, or failed."""
        for pid in list(self._names):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == 0:
                continue
            died = time.monotonic_ns()
            name = self._names.pop(pid)
            self._asleep.pop(pid, None)
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                self._tally.notes["killed"] += 1
                self._start(name, self._work(name, died))
            elif status:
                failed = self._plan.path.with_name(f"{name}.failed")
                said = failed.read_text().strip().splitlines() if failed.exists() else [f"status {status}"]
                self._problems.append(f"{name} failed: {said[-1]} ({' '.join(said[-3:-1]).strip()})")

    def _wake(self) -> None:
        now = time.monotonic()
        for pid, until in list(self._asleep.items()):
            if now >= until:
                del self._asleep[pid]
                os.kill(pid, signal.SIGCONT)

    def _disturb(self) -> None:
        """Stop or kill somebody, mostly whoever has the write lock."""
        dice, roll = self._dice, self._dice.random()
        pid = self._stopped_in_commit() if roll < 0.7 else None
        if pid is not None:
            self._tally.notes["stopped with the write lock"] += 1
            if dice.random() < 0.3:
                self._tally.notes["killed with the write lock"] += 1
                os.kill(pid, signal.SIGKILL)
                return
        else:
            pid = dice.choice(list(self._names))
            os.kill(pid, signal.SIGKILL if dice.random() < 0.3 else signal.SIGSTOP)
        self._tally.notes["stopped"] += 1
        self._asleep[pid] = time.monotonic() + self._kind.stops_max_s ** dice.uniform(1, 4)

    def _stopped_in_commit(self) -> int | None:
        """Stop a process that has the write lock of the store, and return it; None when that did not come off."""
        if sys.platform != "linux":  # the record of a lock is laid out otherwise elsewhere
            return None
        try:
            index = os.open(f"{self._plan.path}-shm", os.O_RDWR)
        except OSError:
            return None
        try:
            for _ in range(300):
                pid = self._writer(index)
                if pid is None or pid in self._asleep:
                    continue
                os.kill(pid, signal.SIGSTOP)
                if self._writer(index) == pid:
                    return pid
                os.kill(pid, signal.SIGCONT)  # too late
            return None
        finally:
            os.close(index)  # this process has no lock on it that it could lose

    def _writer(self, index: int) -> int | None:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _WRITE_LOCK_BYTE, 1, 0)
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(index, fcntl.F_GETLK, asked))
        return pid if kind == fcntl.F_WRLCK and pid in self._names else None


# -- the judgement ----------------------------------------------------------------------------------------------------


def _judge(plan: Plan, tally: Tally, dice: random.Random) -> list[str]:
    """Return every promise that was broken, as far as the store and the processes' notes know."""
    told = Told()
    for path in sorted(plan.path.parent.glob("*.jsonl")):
        told_in(path, told)
    tally.notes["gave up waiting"] += told.waited
    forks = Forks(plan, told, tally)
    problems = []
    with closing(sqlite3.connect(plan.path)) as connection:
        sound = [text for (text,) in connection.execute("PRAGMA integrity_check")]
        problems += [] if sound == ["ok"] else [f"SQLite says of the file: {text}" for text in sound]
    for operations in told.operations.values():
        tally.points += len(operations)
        for operation in operations:
            tally.notes["read" if isinstance(operation, ReadCall) else operation.answer] += 1
    with plan.open() as store:
        runs = [summary.run for summary in store.runs()]
        if missing := set(plan.runs) - set(runs):
            problems.append(f"the runs {sorted(missing)} are gone")
        problems += forks.judge(runs)
        for run in runs:
            try:
                operations = told.operations.get(run, [])
                problems += [f"run {run}: {text}" for text in _judge_run(plan, store, run, operations, forks)]
                problems += [f"run {run}: {text}" for text in forks.judge_joint(store, run, runs)]
            except EngineError as error:
                problems.append(f"run {run} cannot be judged: {type(error).__name__}: {error}")
        if not problems:  # else it is left as it is
            problems += clean_up(plan, store, dice)
    return problems


def _judge_run(
    plan: Plan, store: Store, run: str, operations: list[AppendCall | ReadCall], forks: Forks
) -> Iterator[str]:
    log = log_of(store, run, _name)
    digests = _digests(store, run, {each.position for each in operations if isinstance(each, ReadCall)})
    for violation in violations_of([*operations, *forks.attempts(run, log)], log, digests.get):
        yield str(violation)
    for fault in store.verify(run).faults:
        yield str(fault)
    head = store.view(run)
    if digests.get(head.position) != head.digest():
        yield f"restored to {head.position} from {head.report.used} it is not what its events give"
    if plan.model is BANK and run in plan.runs and second_fold(stored_rows(plan.path, run), run) != head.digest():
        yield "the second fold gives another state"


def _name(event: Event) -> str | None:
    return event.command_id or event.actor


def _digests(store: Store, run: str, positions: set[int]) -> dict[int, str]:
    """Return the digest at each of the positions and at the end, of one fold from the first event."""
    twin = Twin(store.model, run)
    digests = {}
    for commit in store.journal.commits(run):
        twin.append(commit.groups)
        if twin.position in positions:
            digests[twin.position] = twin.state.digest()
    return {**digests, twin.position: twin.state.digest()}


SWEEP = FencingSweep()
