"""Kill at every fault point: a workload dies by SIGKILL before and after each system call that touches its files, and
the store is opened again. It must never count a point at which the process was not stopped.

A process that is stopped at a system call and killed there leaves its files as they are while it stands still: nobody
else writes them, and the kernel writes nothing on its behalf. So one play of a script, stopped at every call, shows
what a kill leaves at each of them; disks that are the same, bit by bit and acknowledgement by acknowledgement, are
opened once. Some points of every script are killed in earnest, each in a play of its own.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from engine.store.sqlite_connections import Pool
from tests.sweeps.harness import Tally, chosen, seed_of
from tests.sweeps.ptrace import Traced, why_forbidden
from tests.sweeps.script import SCRIPTS, Script, examine, script

__all__ = ["SWEEP", "WRITING", "acknowledged", "prepared", "small_wal", "with_pragma"]

WRITING: Final = (
    "openat", "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "truncate", "ftruncate", "fallocate",
    "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "chmod", "fchmodat",
)  # fmt: skip
"""The calls that can change what is on disk."""

forbidden = cache(why_forbidden)


KILLED_IN_EARNEST: Final = 2
"""Of every script so many points."""


class KillSweep:
    """A chunk is one script with one seed: all its points."""

    name = "kill"
    weight = 0.2
    round_size = len(SCRIPTS)

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        names = list(SCRIPTS)
        made = script(names[number % len(names)], number // len(names))
        dice = seed_of("kill", number)
        tally = Tally()
        with small_wal(dice.choice((None, 2, 7))):
            start = prepared(made, folder / "start", live=dice.random() < 0.5)
            where = folder / "store"
            if (reason := forbidden()) is not None:
                tally.notes[f"by timer, since the kernel forbids tracing: {reason}"] += 1
                _by_timer(made, start, where, tally, dice.random, 40 if at_most is None else at_most)
                return tally
            points = _snapshots(made, start, where, at_most, dice)
            for (done, files), same in points.items():
                _put(files, where)
                tally.points += len(same)
                tally.notes["disks"] += 1
                title = f"kill chunk {number} ({made.name}, seed {made.seed}) points {_some(same)}"
                tally.violations += [f"{title}: {problem}" for problem in examine(made, where, done)]
            every = sorted(point for same in points.values() for point in same)
            for point in dice.sample(every, min(KILLED_IN_EARNEST, len(every))):
                _fresh(start, where)
                done = _killed(made, where, point)
                tally.notes["killed in earnest"] += 1
                title = f"kill chunk {number} ({made.name}, seed {made.seed}) killed at point {point}"
                tally.violations += [f"{title}: {problem}" for problem in examine(made, where, done)]
        return tally


@contextmanager
def with_pragma(text: str) -> Iterator[None]:
    """Let every connection of every store that is opened in the block run a pragma after ours."""
    connect = Pool.connect

    def connected(pool: Pool) -> sqlite3.Connection:
        made = connect(pool)
        try:
            made.execute(f"PRAGMA {text}")
        except sqlite3.Error:
            made.close()
            raise
        return made

    Pool.connect = connected  # type: ignore[method-assign]
    try:
        yield
    finally:
        Pool.connect = connect  # type: ignore[method-assign]


def small_wal(pages: int | None) -> AbstractContextManager[None]:
    """Let SQLite checkpoint its write-ahead log after so few pages that a short script gets there."""
    return nullcontext() if pages is None else with_pragma(f"wal_autocheckpoint={pages}")


def prepared(made: Script, folder: Path, *, live: bool) -> Path:
    """Make the store that a script starts from; ``live`` leaves it as a killed writer would, with its log not yet
    copied."""
    folder.mkdir()
    if not live:
        made.prepare(folder)
        return folder
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            store = made.open(folder)  # never closed
            from tests.sweeps.script import Player

            player = Player(store, folder)
            for act in made.setup:
                act(player)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the set-up failed"
    return folder


def _fresh(start: Path, where: Path) -> None:
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(start, where)


class acknowledged:
    """A pipe on which a child says how many steps are done. ``count`` reads it once the child is dead, ``so_far`` while
    it stands still."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._said = 0

    def say(self, _: int) -> None:
        """Say, in the child, that one more step is done."""
        os.write(self.writing, b".")

    def so_far(self) -> int:
        """Return what was said up to now."""
        os.set_blocking(self._reading, False)
        try:
            while piece := os.read(self._reading, 4096):
                self._said += len(piece)
        except BlockingIOError:
            pass
        return self._said

    def count(self) -> int:
        """Return what was said, and release the pipe."""
        os.close(self.writing)
        os.set_blocking(self._reading, True)
        while piece := os.read(self._reading, 4096):
            self._said += len(piece)
        os.close(self._reading)
        return self._said


Files: TypeAlias = tuple[tuple[str, bytes], ...]
"""What lies in a folder: names and bytes."""


def _snapshots(
    made: Script, start: Path, where: Path, at_most: int | None, dice: random.Random
) -> dict[tuple[int, Files], list[int]]:
    """Play a script, stopping before (even points) and after (odd points) each call; return what a kill leaves: (steps
    acknowledged, files) -> the points that leave just this."""
    _fresh(start, where)
    pipe = acknowledged()
    left: dict[tuple[int, Files], list[int]] = {}
    with Traced(lambda: made.play(where, pipe.say), WRITING, str(where)) as traced:
        point = 0
        while traced.next_call() is not None:
            left.setdefault((pipe.so_far(), _files(where)), []).append(point)
            traced.finish()
            left.setdefault((pipe.so_far(), _files(where)), []).append(point + 1)
            point += 2
    assert traced.status == 0, f"the undisturbed script failed: {traced.status}"
    assert pipe.count() == len(made.steps)
    if at_most is None:
        return left
    disks = list(left)
    return {disks[index]: left[disks[index]] for index in chosen(len(disks), at_most, dice)}


def _files(where: Path) -> Files:
    return tuple((path.name, path.read_bytes()) for path in sorted(where.iterdir()))


def _put(files: Files, where: Path) -> None:
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    for name, data in files:
        (where / name).write_bytes(data)


def _some(points: list[int]) -> str:
    return str(points[0]) if len(points) == 1 else f"{points[0]} and {len(points) - 1} like it"


def _killed(made: Script, where: Path, point: int) -> int:
    """Play the script and kill it before (even) or after (odd) a call; return how many steps it had acknowledged."""
    pipe = acknowledged()
    with Traced(lambda: made.play(where, pipe.say), WRITING, str(where)) as traced:
        for _ in range(point // 2 + 1):
            call = traced.next_call()
            assert call is not None, "the script made fewer calls than the last time"
        if point % 2:
            traced.finish()
        traced.kill()
    assert os.WTERMSIG(traced.status or 0) == signal.SIGKILL
    return pipe.count()


def _by_timer(made: Script, start: Path, where: Path, tally: Tally, dice: Callable[[], float], count: int) -> None:
    """Kill at moments instead of calls: all that is left where a process may not trace its own child."""
    began = time.monotonic()
    _fresh(start, where)
    _timed(made, where, 60.0)
    whole = time.monotonic() - began
    for _ in range(count):
        _fresh(start, where)
        after = dice() * whole
        done = _timed(made, where, after)
        tally.points += 1
        for problem in examine(made, where, done):
            tally.violations.append(f"kill ({made.name}, seed {made.seed}) after {after:.6f} s: {problem}")


def _timed(made: Script, where: Path, seconds: float) -> int:
    pipe = acknowledged()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            made.play(where, pipe.say)
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(0.0001)
    return pipe.count()


SWEEP = KillSweep()
