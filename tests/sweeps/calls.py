"""Errors at every call: a verb is run again and again, and each time another one of the calls it makes raises:
MemoryError, KeyboardInterrupt, CancelledError, what SQLite raises, what the operating system raises. It must never
accept an error that is neither typed nor the one put in, nor a store or a handle that is not as before or as after.

Calls are counted by the interpreter's own profiling hook, in the code of refold and of the library under it. An
interrupt strikes where the interpreter looks for one: as a function begins, and after a call into C.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from engine.core.errors import EngineError, NotAStore
from engine.open_store import open_store
from engine.store import sqlite_connections as backend
from tests.sweeps.damage import within
from tests.sweeps.harness import ROOT, Tally, chosen, seed_of
from tests.sweeps.kill import small_wal
from tests.sweeps.script import Act, Player, Script, script, world_of
from tests.toy import Open

__all__ = ["KINDS", "SWEEP", "Fault", "Kind", "impatient"]

TOO_LONG_S: Final = 3


def _sqlite(number: int, kind: type[sqlite3.Error], text: str) -> Callable[[], BaseException]:
    def make() -> BaseException:
        error = kind(text)
        error.sqlite_errorcode = number
        return error

    return make


def _os(number: int) -> Callable[[], BaseException]:
    return lambda: OSError(number, os.strerror(number))


@dataclass(frozen=True)
class Kind:
    """A kind of fault: what is raised, at which events of the profiling hook, and whether every call may raise it."""

    name: str
    make: Callable[[], BaseException]
    events: tuple[str, ...]
    where: str = "any"


KINDS: Final = (
    Kind("MemoryError", MemoryError, ("call", "c_call")),
    Kind("KeyboardInterrupt", KeyboardInterrupt, ("call", "c_return")),
    Kind("CancelledError", asyncio.CancelledError, ("call", "c_return")),
    Kind("SQLITE_BUSY", _sqlite(5, sqlite3.OperationalError, "database is locked"), ("c_call",), "sqlite"),
    Kind("SQLITE_FULL", _sqlite(13, sqlite3.OperationalError, "database or disk is full"), ("c_call",), "sqlite"),
    Kind("SQLITE_IOERR", _sqlite(10, sqlite3.OperationalError, "disk I/O error"), ("c_call", "c_return"), "sqlite"),
    Kind(
        "SQLITE_CORRUPT", _sqlite(11, sqlite3.DatabaseError, "database disk image is malformed"), ("c_call",), "sqlite"
    ),
    Kind("SQLITE_NOMEM", lambda: MemoryError(), ("c_call", "c_return"), "sqlite"),
    Kind("ENOSPC", _os(errno.ENOSPC), ("c_call", "c_return"), "os"),
    Kind("EIO", _os(errno.EIO), ("c_call",), "os"),
)

_TOUCHING: Final = frozenset(
    ("open", "fsync", "rename", "replace", "unlink", "remove", "chmod", "stat", "lstat", "mkdir")
)
"""The functions of the operating system that reach the disk."""

_OURS: Final = tuple(
    str(folder) + os.sep
    for folder in (ROOT / "engine", ROOT / "projections", Path(sys.modules["eventsourcing"].__file__ or "").parent)
)


class Fault:
    """Raises at the ``at``-th matching event, counted from 1; with 0 it only counts."""

    def __init__(self, kind: Kind, at: int) -> None:
        self.kind = kind
        self.at = at
        self.count = 0
        self.raised: BaseException | None = None
        self.place = ""
        self._ours: dict[Any, bool] = {}

    def __enter__(self) -> Fault:
        self._before = sys.unraisablehook
        sys.unraisablehook = self._swallowed
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        sys.unraisablehook = self._before

    def _swallowed(self, what: Any) -> None:
        """Be silent about our own error raised where the interpreter drops every error, as in a finaliser."""
        if what.exc_value is not self.raised:
            self._before(what)

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        if event not in self.kind.events or self.raised is not None:
            return
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            ours = self._ours[code] = code.co_filename.startswith(_OURS)
        if not ours or not self._concerns(event, arg):
            return
        self.count += 1
        if self.count == self.at:
            called = getattr(arg, "__qualname__", "")
            self.place = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_qualname} {event} {called}".strip()
            self.raised = self.kind.make()
            raise self.raised

    def _concerns(self, event: str, arg: Any) -> bool:
        if self.kind.where == "any":
            # No lock fails to be given back: nothing is allocated for it, and no interrupt is looked for before it.
            return event != "c_call" or arg.__name__ not in ("__exit__", "release")
        owner = getattr(arg, "__self__", None)
        if self.kind.where == "sqlite":
            return isinstance(owner, sqlite3.Cursor | sqlite3.Connection) or arg is sqlite3.connect
        if isinstance(owner, io.IOBase):
            return not isinstance(owner, io.BytesIO | io.StringIO)
        return getattr(arg, "__module__", "") in ("posix", "io", "_io") and arg.__name__ in _TOUCHING


# -- what is run ------------------------------------------------------------------------------------------------------


def _reading(question: Callable[[Player], Any]) -> Act:
    """Return an act that only asks, and that insists on the answer it was given first."""
    first: list[Any] = []

    def act(player: Player) -> None:
        answer = question(player)
        if player.store.url == "memory:":
            return
        if not first:
            first.append(answer)
        assert answer == first[0], f"another answer: {answer!r:.100}, before {first[0]!r:.100}"

    return act


def _reopened(player: Player) -> Any:
    if player.store.url == "memory:":
        return None
    with open_store(player.folder / "refold.db", model=player.store.model, clock=lambda: 5) as store:
        return world_of(store)


def _verified(player: Player) -> Any:
    """Return the verdict; one that says what SQLite said, that the file is damaged, is as good as the error."""
    verdict = player.store.verify("main")
    if verdict.faults and all("is damaged" in fault.found for fault in verdict.faults):
        raise NotAStore(verdict.faults[0].found)
    return verdict


_READING: Final[dict[str, Act]] = {
    "open": _reading(_reopened),
    "restore": _reading(lambda player: player.store.view("main").digest()),
    "restore from genesis": _reading(lambda player: player.store.view("main", start="genesis").digest()),
    "handle": _reading(lambda player: player.store.run("main").digest()),
    "at": _reading(lambda player: player.run("main").at(2).digest()),
    "history": _reading(lambda player: [repr(event) for event in player.store.history("main")]),
    "verify": _reading(_verified),
    "export lines": _reading(lambda player: list(player.store.export_lines("main"))),
    "runs": _reading(lambda player: list(player.store.runs())),
}


def _with_reading(name: str) -> Script:
    made = script("checkpoint", 5)
    made.setup += made.steps
    made.steps = [_READING[name]]
    made.worlds, made.files, made.between = [made.worlds[-1]] * 2, [{}, {}], [[]]
    return made


def _behind(other: Act, act: Act) -> Act:
    """Return ``act`` on a handle that has not seen what another writer appended."""

    def both(player: Player) -> None:
        with open_store(player.store.url, model=player.store.model, clock=lambda: 5) as store:
            other(Player(store, player.folder))
        act(player)

    return both


_SCRIPTED: Final = (
    ("first", 0), ("append", 0), ("append", 2), ("append", 3), ("batch", 0), ("checkpoint", 0), ("checkpoint", 1),
    ("checkpoint", 3), ("export", 0), ("export", 2), ("import", 0), ("import", 1), ("fork", 0), ("fork", 2),
    ("delete", 0), ("delete", 1), ("tasks", 0), ("tasks", 2),
)  # fmt: skip
VERBS: Final = (*(f"{name} {step}" for name, step in _SCRIPTED), *_READING)


PARTS: Final = 6
"""Into how many chunks the calls of a verb are dealt, where every call may fail."""
_CHUNKS: Final = tuple(
    (verb, kind, part, parts)
    for verb in VERBS
    for kind in KINDS
    for parts in (PARTS if kind.where == "any" else 1,)
    for part in range(parts)
)


class CallsSweep:
    """A chunk is one verb and one kind of fault: every call of it, or every sixth from one on."""

    name = "calls"
    weight = 0.39
    round_size = len(_CHUNKS)

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        seed, place = divmod(number, self.round_size)
        verb, kind, part, parts = _CHUNKS[place]
        if verb in _READING:
            made, step = _with_reading(verb), 0
        else:
            name, _, step_text = verb.rpartition(" ")
            made, step = script(name, 100 + seed), int(step_text)
        tally = Tally()
        with small_wal(seed_of("calls", seed, verb).choice((None, 2))), impatient():  # the same for all kinds and parts
            start = folder / "start"
            start.mkdir()
            made.prepare(start)
            before = Script(made.name, made.seed, made.model, made.policy, steps=made.steps[:step])
            if before.steps:
                before.play(start, lambda _: None)
            where = folder / "store"
            count = self._once(made, step, kind, 0, start, where)[0]
            mine = range(part, count, parts)
            for index in (mine[place] for place in chosen(len(mine), at_most, seed_of("calls", number))):
                _, place_of, problems = self._once(made, step, kind, index + 1, start, where)
                tally.points += 1
                tally.notes[kind.name] += 1
                title = f"calls chunk {number} ({verb}, {kind.name} at call {index + 1}: {place_of})"
                tally.violations += [f"{title}: {problem}" for problem in problems]
        return tally

    def _once(
        self, made: Script, step: int, kind: Kind, at: int, start: Path, where: Path
    ) -> tuple[int, str, list[str]]:
        """Run one step with one fault; return (calls counted, the call that failed, broken promises)."""
        shutil.rmtree(where, ignore_errors=True)
        shutil.copytree(start, where)
        fault = Fault(kind, at)
        with within(TOO_LONG_S), made.open(where) as store:
            player = Player(store, where)
            act = made.steps[step]
            for name in ("main", "tasks"):
                if name in made.worlds[step] and made.name != "delete":
                    player.run(name)
            surfaced: BaseException | None = None
            try:
                with fault:
                    act(player)
            except BaseException as error:
                surfaced = error.with_traceback(None)
                surfaced.__context__ = surfaced.__cause__ = None
            if at == 0:
                assert surfaced is None, f"the undisturbed step failed: {surfaced!r}"
            problems = _judge(made, step, fault, surfaced, player, where)
        return fault.count, fault.place, problems


@contextmanager
def impatient() -> Iterator[None]:
    """Let a lock that is never given back be found out soon."""
    before = backend.BUSY_TIMEOUT_S
    backend.BUSY_TIMEOUT_S = 1.0  # type: ignore[misc]
    try:
        yield
    finally:
        backend.BUSY_TIMEOUT_S = before  # type: ignore[misc]


def _judge(
    made: Script, step: int, fault: Fault, surfaced: BaseException | None, player: Player, where: Path
) -> list[str]:
    """Return the promises that a step with one fault in it broke."""
    problems = []
    kind = fault.kind
    own = fault.raised is not None and type(surfaced) is type(fault.raised) and not isinstance(surfaced, sqlite3.Error)
    if surfaced is not None and not isinstance(surfaced, EngineError) and not own:
        problems.append(f"it raised {type(surfaced).__name__}: {surfaced}")
    if isinstance(surfaced, OSError) and made.name not in ("export",):
        problems.append(f"an untyped {surfaced!r}")
    if kind.where == "any" and isinstance(surfaced, EngineError) and kind.name != "MemoryError":
        problems.append(f"the interrupt became {type(surfaced).__name__}")
    with made.open(where) as store:
        world = world_of(store)
    allowed = made.allowed(step)
    if surfaced is None:
        allowed = [made.worlds[step + 1]]
    if world not in allowed:
        problems.append(f"the store is {world}, allowed: {allowed}")
    locked = _locked(where / "refold.db")
    if locked is not None:
        return [*problems, locked]
    for name, handle in list(player._runs.items()):
        held = handle.digest()  # asked first: after a write of unknown outcome this is what looks at the journal
        if (handle.position, held) != world.get(name, (0, held)):
            problems.append(f"the handle of {name} is at {handle.position}, the journal at {world.get(name)}")
    return problems + _next_works(made, step, world, player, where)


def _locked(path: Path) -> str | None:
    """Return what a writer in another process would see, if that is a lock."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        return f"other writers are shut out: {error}"
    finally:
        connection.close()
    return None


def _next_works(made: Script, step: int, world: Any, player: Player, where: Path) -> list[str]:
    """Give the step again unless it is done, then another command, on the same handles."""
    try:
        if world != made.worlds[step + 1] or made.worlds[step + 1] == made.worlds[step]:
            made.steps[step](player)
        with made.open(where) as store:
            world = world_of(store)
            if world != made.worlds[step + 1]:
                return [f"given again, the step leaves {world}, not {made.worlds[step + 1]}"]
        for name in world:
            if name in player._runs:
                handle = player._runs[name]
                before = handle.position
                if made.name == "tasks":
                    handle.tasks.report_usage("root", tokens=1)
                else:
                    handle.submit(Open(account="after the fault"))
                if handle.position != before + 1:
                    return [f"the next command took {name} from {before} to {handle.position}"]
        with made.open(where) as store:
            for name, handle in player._runs.items():
                if name in world and store.view(name).digest() != handle.digest():
                    return [f"after the next command the handle of {name} is not what the journal gives"]
            return [f"run {name}: {fault}" for name in world for fault in store.verify(name).faults]
    except Exception as error:
        return [f"the next command failed: {type(error).__name__}: {error!s:.200}"]


SWEEP = CallsSweep()
