"""Errors of the operating system: a workload whose system calls fail one by one (no space, input/output errors, short
writes and reads, failed flushes, no locks, no memory) and that gives the failed step again. It must never accept an
error that is not typed, a store that is neither as before nor as after, or a step that goes on failing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from engine.core.errors import EngineError
from engine.open_store import Store
from tests.sweeps.damage import within
from tests.sweeps.harness import Tally, chosen, seed_of
from tests.sweeps.kill import WRITING, acknowledged, forbidden, prepared, small_wal
from tests.sweeps.ptrace import Call, Traced
from tests.sweeps.script import SCRIPTS, Player, Script, examine, script, world_of

__all__ = ["ERRORS", "SWEEP"]

SHORT: Final = -1
ERRORS: Final[dict[str, tuple[int, ...]]] = {
    "openat": (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES),
    "write": (errno.ENOSPC, errno.EIO, SHORT),
    "pwrite64": (errno.ENOSPC, errno.EIO, errno.EDQUOT, SHORT),
    "fsync": (errno.EIO, errno.ENOSPC),
    "fdatasync": (errno.EIO, errno.ENOSPC),
    "ftruncate": (errno.EIO, errno.ENOSPC),
    "pread64": (errno.EIO, SHORT),
    "read": (errno.EIO,),
    "fcntl": (errno.EAGAIN, errno.ENOLCK, errno.EIO),
    "mmap": (errno.ENOMEM,),
    "unlink": (errno.EIO,),
    "unlinkat": (errno.EIO,),
    "rename": (errno.EIO, errno.ENOSPC),
    "renameat": (errno.EIO, errno.ENOSPC),
    "chmod": (errno.EIO,),
    "fchmodat": (errno.EIO,),
    "close": (errno.EIO,),
}
"""What each call may answer. ``SHORT`` lets a write or read do half of its work."""

WATCH: Final = (*WRITING, "pread64", "read", "fcntl", "mmap", "close")
_SET_LOCK: Final = (6, 7, 37, 38)
ATTEMPTS: Final = 40


LASTING: Final = 9
TURNS: Final = 1 + max(map(len, ERRORS.values()))


class SyscallsSweep:
    """A chunk is one script with one seed: every call, each with one of its errors. In a round every call of every
    script meets each of its errors once, and at least one of them for as long as nine calls."""

    name = "syscalls"
    weight = 0.22
    round_size = len(SCRIPTS) * TURNS

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        names = list(SCRIPTS)
        seed, place = divmod(number, self.round_size)
        turn, which = divmod(place, len(names))
        made = script(names[which], 1000 + seed)
        setting, dice = seed_of("syscalls", seed, which), seed_of("syscalls", seed, which, turn)
        tally = Tally()
        with small_wal(setting.choice((None, 2, 7))):  # the same in every turn
            start = prepared(made, folder / "start", live=setting.random() < 0.5)
            where = folder / "store"
            if (reason := forbidden()) is not None:
                tally.notes[f"by file size limits, since the kernel forbids tracing: {reason}"] += 1
                _by_limit(made, start, where, tally, 40 if at_most is None else at_most)
                return tally
            calls = _listed(made, start, where)
            for place in chosen(len(calls), at_most, dice):
                name, index = calls[place]
                errors = ERRORS[name]
                error = errors[turn] if turn < len(errors) else dice.choice(errors)
                lasting = 1 if turn < len(errors) else LASTING
                problems = _failed(made, start, where, name, index, error, lasting)
                tally.points += 1
                what = "short" if error == SHORT else errno.errorcode[error]
                tally.notes[f"{name} {what}"] += 1
                title = f"syscalls chunk {number} ({made.name}, seed {made.seed}) {name} {index} {what} x{lasting}"
                tally.violations += [f"{title}: {problem}" for problem in problems]
        return tally


def _may_fail(traced: Traced, call: Call) -> bool:
    if call.name != "fcntl":
        return call.name in ERRORS
    kind = int.from_bytes(traced.read(call.arguments[2], 2), sys.byteorder)
    return call.arguments[1] in _SET_LOCK and kind != fcntl.F_UNLCK  # giving a lock back does not fail


def _fresh(start: Path, where: Path) -> None:
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(start, where)


def _listed(made: Script, start: Path, where: Path) -> list[tuple[str, int]]:
    """Return the calls that can fail in an undisturbed play, in order: (name, which of that name)."""
    _fresh(start, where)
    calls = []
    count: Counter[str] = Counter()
    with Traced(lambda: _stubborn(made, where, lambda _: None, where.parent / "report"), WATCH, str(where)) as traced:
        while (call := traced.next_call()) is not None:
            if _may_fail(traced, call):
                calls.append((call.name, count[call.name]))
                count[call.name] += 1
    assert traced.status == 0 and not _report(where), f"the undisturbed script failed: {_report(where)}"
    return calls


def _report(where: Path) -> list[str]:
    path = where.parent / "report"
    return path.read_text().splitlines() if path.exists() else []


def _failed(made: Script, start: Path, where: Path, name: str, index: int, error: int, lasting: int) -> list[str]:
    """Play the script with ``lasting`` calls of a name failing from the ``index``-th on; return what broke."""
    _fresh(start, where)
    report = where.parent / "report"
    report.unlink(missing_ok=True)
    pipe = acknowledged()
    seen = 0
    with Traced(lambda: _stubborn(made, where, pipe.say, report), (name,), str(where)) as traced:
        while (call := traced.next_call()) is not None:
            if not _may_fail(traced, call):
                continue
            if index <= seen < index + lasting:
                if error != SHORT:
                    traced.fail(error)
                elif call.arguments[2] > 1:
                    traced.shorten(call.arguments[2] // 2)
            seen += 1
    done = pipe.count()
    problems = _report(where)
    if traced.status != 0:
        problems.append(f"the process ended with {os.waitstatus_to_exitcode(traced.status or 0)}")
    return problems or examine(made, where, done)


def _stubborn(made: Script, where: Path, say: Callable[[int], None], report: Path) -> None:
    """Play a script in a process whose calls fail now and then: give every failed step again, and note in ``report``
    what should not have been."""
    problems: list[str] = []
    with within(60):
        store = _insisted(made, lambda: made.open(where), problems)
        player = Player(store, where)
        for number, act in enumerate(made.steps):

            def step(act: Callable[[Player], None] = act) -> None:
                act(player)

            def settled(number: int = number) -> bool:
                return _settled(made, number, where, player, problems)

            _insisted(made, step, problems, settled)
            say(number)
        _insisted(made, store.close, problems)
    if problems:
        report.write_text("\n".join(problems))


def _insisted(
    made: Script, act: Callable[[], Store | None], problems: list[str], settled: Callable[[], bool] = lambda: False
) -> Store:
    """Do something until it works; only typed errors may come in between, and for files those of the system."""
    error: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            return act()  # type: ignore[return-value]
        except (EngineError, OSError) as failed:
            error = failed
            if isinstance(failed, OSError) and made.name != "export":
                problems.append(f"untyped {type(failed).__name__}: {failed}")
            if settled():
                return None  # type: ignore[return-value]
        except Exception as failed:
            problems.append(f"untyped {type(failed).__name__}: {failed}")
            raise
    problems.append(f"it still fails after {ATTEMPTS} attempts: {error}")
    raise AssertionError(problems[-1])


def _settled(made: Script, number: int, where: Path, player: Player, problems: list[str]) -> bool:
    """Return whether a step that failed has happened all the same; note a store that is neither as before nor as
    after, or a handle that says otherwise."""
    for _ in range(ATTEMPTS):
        try:
            with made.open(where) as store:
                world = world_of(store)
            held = {name: (run.digest(), run.position) for name, run in player._runs.items() if name in world}
        except EngineError:
            continue  # the error goes on
        break
    else:
        problems.append("the store cannot be read again")
        return False
    if world not in made.allowed(number):
        problems.append(f"after a failed step {number} the store is {world}, allowed: {made.allowed(number)}")
    problems += [
        f"after a failed step {number} the handle of {name} is at {position}, the journal at {world[name]}"
        for name, (digest, position) in held.items()
        if (position, digest) != world[name]
    ]
    return world == made.worlds[number + 1] != made.worlds[number]


def _by_limit(made: Script, start: Path, where: Path, tally: Tally, count: int) -> None:
    """Make writes fail for real, at so many sizes of the largest file a process may write: all that is left where calls
    cannot be traced."""
    sizes = [path.stat().st_size for path in start.iterdir()]
    high = max([*sizes, 4096]) + 200_000
    for number in range(count):
        _fresh(start, where)
        limit = 4096 + number * high // count
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
                with suppress(EngineError, OSError):
                    made.play(where, lambda _: None)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        tally.points += 1
        title = f"syscalls ({made.name}, seed {made.seed}) files up to {limit} bytes"
        if status:
            tally.violations.append(f"{title}: status {status}")
        with made.open(where) as store:
            world = world_of(store)
        allowed = [world for worlds in (*made.between, made.worlds) for world in worlds]
        if world not in allowed:
            tally.violations.append(f"{title}: {world}")


SWEEP = SyscallsSweep()
