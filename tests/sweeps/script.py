"""Scripted workloads, and what a store may look like at each of their steps. The oracle is the same script played once,
undisturbed, on a memory store. It must never be told what the store under test did.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from engine.app.commands.export import _write as write_export
from engine.app.writer import take_step
from engine.checkpoint import CheckpointPolicy
from engine.core.errors import Conflict, EngineError, NotFound
from engine.core.model import Model
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from projections.model import MODEL
from tests.sweeps.harness import scratch
from tests.toy import BANK, Close, Open, Pay, Write

__all__ = ["SCRIPTS", "Player", "Script", "World", "content_of", "examine", "script", "world_of"]

World: TypeAlias = dict[str, tuple[int, str]]
"""What a store holds as far as anyone can see: run -> (position, state digest)."""

_SOURCE: Final = "source"


class Player:
    """Plays steps on one store, in one folder; keeps the handles of its runs open, as a real program does."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self._runs: dict[str, LiveRun] = {}

    def run(self, name: str) -> LiveRun:
        """Return the handle of a run, made when it is first asked for."""
        if name not in self._runs:
            self._runs[name] = self.store.run(name, actor="player")
        return self._runs[name]

    def forget(self, name: str) -> None:
        """Drop a handle, as after a delete."""
        self._runs.pop(name, None)


Act: TypeAlias = Callable[[Player], None]


@dataclass
class Script:
    """Steps to play on a prepared store. ``worlds[k]`` is the store after k steps and ``files[k]`` what was
    exported by then; ``between[k]`` is what else the store may be while step k runs, for verbs of several commits."""

    name: str
    seed: int
    model: Model
    policy: CheckpointPolicy
    setup: list[Act] = field(default_factory=list)
    steps: list[Act] = field(default_factory=list)
    worlds: list[World] = field(default_factory=list)
    files: list[dict[str, bytes]] = field(default_factory=list)
    between: list[list[World]] = field(default_factory=list)

    def open(self, folder: Path) -> Store:
        """Open the script's store in ``folder``."""
        return open_store(folder / "refold.db", model=self.model, clock=lambda: 5, checkpoints=self.policy)

    def prepare(self, folder: Path) -> None:
        """Make the store that the steps start from."""
        if self.setup:
            with self.open(folder) as store:
                player = Player(store, folder)
                for act in self.setup:
                    act(player)

    def play(self, folder: Path, after: Callable[[int], None]) -> None:
        """Play all steps, calling ``after`` once a step is done: what it was told has happened."""
        with self.open(folder) as store:
            player = Player(store, folder)
            for number, act in enumerate(self.steps):
                act(player)
                after(number)

    def foresee(self, folder: Path) -> None:
        """Work out the worlds, on a memory store."""
        with open_store("memory:", model=self.model, clock=lambda: 5, checkpoints=self.policy) as store:
            player = Player(store, folder)
            for act in self.setup:
                act(player)
            self.worlds = [world_of(store)]
            self.files = [_files(folder)]
            for act in self.steps:
                act(player)
                after = world_of(store)
                self.between.append(_partly(store, self.worlds[-1], after) if getattr(act, "by_commits", False) else [])
                self.worlds.append(after)
                self.files.append(_files(folder))

    def allowed(self, done: int) -> list[World]:
        """Return what the store may be once ``done`` steps were acknowledged and the next may have begun."""
        if done == len(self.steps):
            return [self.worlds[done]]
        return [self.worlds[done], *self.between[done], self.worlds[done + 1]]


def _files(folder: Path) -> dict[str, bytes]:
    """Return the exports in a folder; what a killed export left half-done has another name."""
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl") if not path.name.startswith(".")}


def world_of(store: Store) -> World:
    """Return what the store holds, every run restored."""
    return {summary.run: (summary.position, store.view(summary.run).digest()) for summary in store.runs()}


def _partly(store: Store, before: World, after: World) -> list[World]:
    """Return the worlds in which a step of several commits has made some of them."""
    worlds = []
    for run, (position, _) in after.items():
        known = before.get(run, (0, ""))[0]
        ends = [commit.last for commit in store.journal.commits(run)] if position > known else []
        for end in ends:
            if known < end < position:
                worlds.append({**before, run: (end, store.view(run, at=end).digest())})
    return worlds


def content_of(store: Path | bytes) -> bytes | None:
    """Return a name for everything that SQL can read in a store, rows, indexes and marks, or None when it cannot.
    Stores of the same content give the same answers to everything, whatever else is in the file.

    The store is a file, or the bytes of one with no log beside it: these are read in memory, at a fifth of the cost.
    """
    hasher = hashlib.sha256()
    try:
        with closing(sqlite3.connect(store)) if isinstance(store, Path) else _in_memory(store) as connection:
            connection.text_factory = bytes
            schema = connection.execute("SELECT * FROM sqlite_master ORDER BY rowid").fetchall()
            for table in (row[1].decode() for row in schema if row[0] == b"table"):
                hasher.update(repr(connection.execute(f"SELECT * FROM {table}").fetchall()).encode())
            marks = [connection.execute(f"PRAGMA {mark}").fetchall() for mark in _MARKS]  # last: indexes match tables
    except (sqlite3.Error, ValueError):  # ValueError: a name that is no text any more
        return None
    hasher.update(repr((schema, marks)).encode())
    return hasher.digest()


_MEMORY: Final[list[sqlite3.Connection]] = []


def _in_memory(store: bytes) -> AbstractContextManager[sqlite3.Connection]:
    """Return a connection to the bytes of a store; always the same one."""
    if not _MEMORY:
        _MEMORY.append(sqlite3.connect(":memory:"))
    _MEMORY[0].deserialize(store[:18] + b"\1\1" + store[20:])  # in memory there are no logs
    return nullcontext(_MEMORY[0])


_MARKS: Final = ("application_id", "user_version", "encoding", "integrity_check")


def examine(script: Script, folder: Path, done: int, *, known: set[object] | None = None) -> list[str]:
    """Open the store that a fault left behind; return every promise it breaks.

    Everything acknowledged is there, nothing is there by half, every run verifies; and the rest of the script, given to
    this store, ends as if nothing had happened. With ``known``, which is kept from call to call, a store that opens and
    then has the content of one that was found sound is left at that.
    """
    path = folder / "refold.db"
    try:
        with script.open(folder) as store:
            exports = _files(folder)
            content = None if known is None else content_of(path)
            seen = (done, content, repr(exports))
            if known is not None and seen in known:
                return []
            found = world_of(store)
            allowed = script.allowed(done)
            if found not in allowed:
                return [f"after {done} acknowledged steps the store is {found}, allowed: {allowed}"]
            problems = []
            if exports not in script.files[done : done + 2]:
                problems.append(f"after {done} acknowledged steps the exports are {sorted(exports)}, or half")
            for run in found:
                verdict = store.verify(run)
                problems += [f"run {run}: {fault}" for fault in verdict.faults]
            if problems:
                return problems
            player = Player(store, folder)
            if done < len(script.steps) and found == script.worlds[done + 1] != script.worlds[done]:
                done += 1
            for act in script.steps[done:]:
                act(player)
            found = world_of(store)
            if found != script.worlds[-1]:
                return [f"at the end the store is {found}, not {script.worlds[-1]}"]
            if known is not None and content is not None:
                known.add(seen)
            return []
    except EngineError as error:
        return [f"after {done} acknowledged steps: {type(error).__name__}: {error}"]


# -- the scripts
# --------------------------------------------------------------------------------------------------------


class _Writer:
    """Makes up toy commands, each under an id of its own so that it may be given again."""

    def __init__(self, dice: random.Random, name: str = "a") -> None:
        self._dice = dice
        self._name = name  # a fork shares its origin's accounts and command ids: two writers must not meet there
        self._open: list[str] = []
        self._count = 0

    def command(self) -> tuple[Any, str]:
        """Return the next command and its id."""
        self._count += 1
        dice, number = self._dice, self._count
        kind = dice.random()
        if not self._open or kind < 0.15:
            self._open.append(f"{self._name}{number}")
            return Open(account=self._open[-1], note={"n": number}), f"c-{self._name}{number}"
        account = dice.choice(self._open)
        if kind < 0.2 and len(self._open) > 1:
            self._open.remove(account)
            return Close(account=account), f"c-{self._name}{number}"
        if kind < 0.6:
            return Pay(account=account, amount=dice.randrange(20, 1000)), f"c-{self._name}{number}"
        size = dice.choice((10, 200, 900, 5000))
        return Write(account=account, letter="".join(dice.choices("abcdef", k=size))), f"c-{self._name}{number}"


def _submit(writer: _Writer, run: str) -> Act:
    command, command_id = writer.command()

    def act(player: Player) -> None:
        player.run(run).submit(command, command_id=command_id)

    return act


def _batch(writer: _Writer, run: str, size: int) -> Act:
    given = [writer.command() for _ in range(size)]

    def act(player: Player) -> None:
        handle = player.run(run)
        with handle.batch():
            for command, command_id in given:
                handle.submit(command, command_id=command_id)

    return act


def _checkpoint(run: str, *, full: bool) -> Act:
    def act(player: Player) -> None:
        player.run(run).checkpoint(full=full)

    return act


def _export(run: str) -> Act:
    def act(player: Player) -> None:
        write_export(player.folder / f"{run}.jsonl", player.store.export_lines(run), None, 0)

    return act


def _import(lines: list[str], run: str) -> Act:
    def act(player: Player) -> None:
        player.store.import_lines(lines, run_id=run)

    act.by_commits = True  # type: ignore[attr-defined]
    return act


def _fork(run: str, new: str, at: int) -> Act:
    def act(player: Player) -> None:
        try:
            player.store.fork(run, new, at=at)
        except Conflict:  # made before the fault
            player.run(new)

    return act


def _delete(run: str) -> Act:
    def act(player: Player) -> None:
        player.forget(run)
        try:
            player.store.delete(run)
        except NotFound:  # deleted before the fault
            return

    return act


def _take_step(player: Player) -> None:
    take_step(player.run("tasks"))


def _lines(dice: random.Random, commits: int) -> list[str]:
    """Return the export of a made-up run."""
    writer = _Writer(dice)
    with open_store("memory:", model=BANK, clock=lambda: 5) as store:
        player = Player(store, Path())
        for _ in range(commits):
            _batch(writer, _SOURCE, dice.randrange(1, 4))(player)
        return list(store.export_lines(_SOURCE))


def _some(dice: random.Random, writer: _Writer, run: str, count: int) -> list[Act]:
    return [_submit(writer, run) if dice.random() < 0.7 else _batch(writer, run, 3) for _ in range(count)]


def script(name: str, seed: int) -> Script:
    """Return a script by its name, with its content made up from ``seed`` and its worlds foreseen."""
    dice = random.Random(f"{name} {seed}")
    every = dice.choice((None, None, 5))
    made = Script(name, seed, MODEL if name == "tasks" else BANK, CheckpointPolicy(every_events=every))
    SCRIPTS[name](made, dice)
    with scratch() as folder:
        made.foresee(folder)
    return made


def _script_first(made: Script, dice: random.Random) -> None:
    """A store that is not there yet, and its first commits."""
    made.steps = _some(dice, _Writer(dice), "main", 3)


def _script_append(made: Script, dice: random.Random) -> None:
    writer = _Writer(dice)
    made.setup = _some(dice, writer, "main", 4)
    made.steps = _some(dice, writer, "main", 3) + _some(dice, _Writer(dice), "other", 1)


def _script_batch(made: Script, dice: random.Random) -> None:
    writer = _Writer(dice)
    made.setup = _some(dice, writer, "main", 2)
    made.steps = [_batch(writer, "main", 12), _batch(writer, "main", 2)]


def _script_checkpoint(made: Script, dice: random.Random) -> None:
    writer = _Writer(dice)
    made.setup = [*_some(dice, writer, "main", 5), _checkpoint("main", full=False)]
    made.steps = [
        _submit(writer, "main"),
        _checkpoint("main", full=False),
        *_some(dice, writer, "main", 1),
        _checkpoint("main", full=dice.random() < 0.5),
    ]


def _script_export(made: Script, dice: random.Random) -> None:
    writer = _Writer(dice)
    made.setup = _some(dice, writer, "main", 5)
    made.steps = [_export("main"), _submit(writer, "main"), _export("main")]


def _script_import(made: Script, dice: random.Random) -> None:
    lines = _lines(dice, 4)
    made.setup = _some(dice, _Writer(dice), "main", 2)
    made.steps = [_import(lines, _SOURCE), _import(lines, "copy")]


def _script_fork(made: Script, dice: random.Random) -> None:
    writer = _Writer(dice)
    made.setup = [_batch(writer, "main", 3), *_some(dice, writer, "main", 2)]
    made.steps = [_fork("main", "child", 2), _submit(writer, "main"), *_some(dice, _Writer(dice, "child"), "child", 1)]
    made.steps += [_fork("child", "grandchild", 3)]


def _script_delete(made: Script, dice: random.Random) -> None:
    writer, other = _Writer(dice), _Writer(dice)
    made.setup = [_batch(writer, "main", 4), *_some(dice, other, "other", 2), _checkpoint("other", full=True)]
    made.setup += [_fork("main", "child", 2), *_some(dice, writer, "main", 1)]
    made.steps = [_delete("other"), _delete("main"), *_some(dice, _Writer(dice, "child"), "child", 1)]


def _script_tasks(made: Script, dice: random.Random) -> None:
    made.setup = [_take_step] * dice.randrange(1, 60)
    made.steps = [_take_step] * 4


SCRIPTS: Final[dict[str, Callable[[Script, random.Random], None]]] = {
    "first": _script_first,
    "append": _script_append,
    "batch": _script_batch,
    "checkpoint": _script_checkpoint,
    "export": _script_export,
    "import": _script_import,
    "fork": _script_fork,
    "delete": _script_delete,
    "tasks": _script_tasks,
}
