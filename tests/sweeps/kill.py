"""Kill at every fault point: a workload dies by SIGKILL before and after each system call that touches its files, and
the store is opened again. It must never count a point at which nothing was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Final

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


class KillSweep:
    """A chunk is one script with one seed: all its points."""

    name = "kill"
    weight = 0.3
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
            count = _count(made, start, where)
            for point in chosen(2 * count, at_most, dice):
                _fresh(start, where)
                done = _killed(made, where, point)
                tally.points += 1
                tally.notes[made.name] += 1
                title = f"kill chunk {number} ({made.name}, seed {made.seed}) point {point}"
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
    """A pipe on which a child says how many steps are done. ``count`` reads it once the child is dead."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()

    def say(self, _: int) -> None:
        """Say, in the child, that one more step is done."""
        os.write(self.writing, b".")

    def count(self) -> int:
        """Return what was said, and release the pipe."""
        os.close(self.writing)
        said = b""
        while piece := os.read(self._reading, 4096):
            said += piece
        os.close(self._reading)
        return len(said)


def _count(made: Script, start: Path, where: Path) -> int:
    """Return how many watched calls the script makes when nothing happens to it."""
    _fresh(start, where)
    pipe = acknowledged()
    with Traced(lambda: made.play(where, pipe.say), WRITING, str(where)) as traced:
        count = 0
        while traced.next_call() is not None:
            count += 1
    assert traced.status == 0, f"the undisturbed script failed: {traced.status}"
    assert pipe.count() == len(made.steps)
    return count


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
