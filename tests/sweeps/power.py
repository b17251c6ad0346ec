"""Power loss: records every write and flush of a workload's files, builds the disks that a power cut may leave at any
moment, and opens each. It must never take a write for kept that no flush has covered.

What a cut may leave. Of every file, the bytes of its last flush, and of what was written since any 512-byte sectors, in
any order (an earlier version of a sector, a later one, or what was there before), with any of the sizes in between.
Of the folder, the names of its last flush, and of what happened to names since any beginning or any part. The shared
memory file is no part of it; SQLite builds that anew.

What is opened. n unflushed sectors make 2^n disks or more. SQLite reads its log frame by frame and stops at the first
that does not match the running checksum, so it cannot tell disks apart that differ only behind the first sector that is
not as it was written. Every such class of disks is opened at least once, with the rest lost and with the rest at
random; the sum of their sizes is noted as ``stands for``. Where other files than the log have unflushed sectors, single
losses and random mixtures are opened, and stand for nothing but themselves.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from engine.store import sqlite_log
from tests.sweeps.harness import Tally, chosen, seed_of
from tests.sweeps.kill import WRITING, acknowledged, forbidden, prepared, small_wal
from tests.sweeps.ptrace import Traced
from tests.sweeps.script import SCRIPTS, Script, examine, script

__all__ = ["SWEEP", "Disk", "Op", "cuts", "record"]

SECTOR: Final = 512
MIXTURES: Final = 12
READ_ANEW: Final = 0.03
"""The part of the disks whose store is read and gone on with though one of the same content was found sound."""


@dataclass(slots=True)
class Op:
    """One thing that happened: ``write``, ``size``, ``sync``, ``create``, ``unlink``, ``rename``, ``names`` (the folder
    was flushed) or ``done`` (a step was acknowledged)."""

    kind: str
    name: str = ""
    offset: int = 0
    data: bytes = b""
    target: str = ""


@dataclass(slots=True)
class _File:
    """A file: its flushed bytes, and every version of every sector and every size since."""

    flushed: bytes = b""
    now: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)
    sectors: dict[int, list[bytes]] = field(default_factory=dict)
    known: dict[int, list[bytes]] = field(default_factory=dict)
    """What :meth:`versions` has answered since the last write."""

    def write(self, offset: int, data: bytes) -> None:
        if len(self.now) < offset + len(data):
            self.now.extend(bytes(offset + len(data) - len(self.now)))
        self.now[offset : offset + len(data)] = data
        self.sizes.append(len(self.now))
        for number in range(offset // SECTOR, (offset + len(data) - 1) // SECTOR + 1):
            version = bytes(self.now[number * SECTOR : (number + 1) * SECTOR])
            self.sectors.setdefault(number, []).append(version)
            self.known.pop(number, None)

    def resize(self, size: int) -> None:
        if size < len(self.now):
            del self.now[size:]
        else:
            self.now.extend(bytes(size - len(self.now)))
        self.sizes.append(size)

    def flush(self) -> None:
        self.flushed = bytes(self.now)
        self.sizes.clear()
        self.sectors.clear()
        self.known.clear()

    def versions(self, number: int) -> list[bytes]:
        """Return what a sector may hold: the flushed bytes first, then every later version, each once."""
        if number not in self.known:
            before = self.flushed[number * SECTOR : (number + 1) * SECTOR]
            every = (version.ljust(SECTOR, b"\0") for version in (before, *self.sectors[number]))
            self.known[number] = list(dict.fromkeys(every))
        return self.known[number]

    def built(self, pick: Callable[[int, int], int], size: int) -> bytes:
        """Return the bytes when ``pick(sector, versions)`` says which version of each unflushed sector is there."""
        made = bytearray(self.flushed.ljust(size, b"\0"))
        for number in self.sectors:
            versions = self.versions(number)
            end = (number + 1) * SECTOR
            if len(made) < end:
                made.extend(bytes(end - len(made)))
            made[number * SECTOR : end] = versions[pick(number, len(versions))]
        return bytes(made[:size])


class Disk:
    """Files and names as a power cut may find them, kept up to date op by op."""

    def __init__(self, folder: Path) -> None:
        self.names: dict[str, _File] = {}
        for path in folder.iterdir():
            if not path.name.endswith("-shm"):
                data = path.read_bytes()
                self.names[path.name] = _File(data, bytearray(data))
        self.flushed_names = dict(self.names)
        self.changes: list[Callable[[dict[str, _File]], None]] = []
        self.done = 0

    def step(self, op: Op) -> None:
        """Take in what happened next."""
        if op.kind == "done":
            self.done += 1
        elif op.kind == "write":
            self.names[op.name].write(op.offset, op.data)
        elif op.kind == "size":
            self.names[op.name].resize(op.offset)
        elif op.kind == "sync":
            self.names[op.name].flush()
        elif op.kind == "names":
            self.flushed_names, self.changes = dict(self.names), []
        else:
            change = _renaming(op, _File())
            change(self.names)
            self.changes.append(change)

    def unflushed(self) -> list[tuple[str, _File]]:
        """Return the files that have unflushed sectors or sizes."""
        return [(name, file) for name, file in self.names.items() if file.sectors or file.sizes]

    def states(self, dice: random.Random) -> Iterator[tuple[dict[str, bytes], int]]:
        """Yield (files, how many disks this one stands for) for the classes of disks of a cut right here."""
        waiting = self.unflushed()
        if len(waiting) == 1 and waiting[0][0].endswith("-wal") and not self.changes:
            yield from self._log_classes(*waiting[0], dice)
            return
        picks: list[Callable[[str, int, int], int]] = [lambda *_: 0, lambda _, __, versions: versions - 1]
        for name, file in waiting:
            for sector in list(file.sectors)[:64]:
                picks.append(lambda n, s, versions, at=(name, sector): 0 if (n, s) == at else versions - 1)
        picks += [lambda _, __, versions: dice.randrange(versions)] * MIXTURES
        for pick in picks:
            for names in self._names(dice):
                files = {}
                for name, file in names.items():
                    sizes = [len(file.flushed), *file.sizes]
                    size = dice.choice(sizes) if file.sizes and dice.random() < 0.5 else sizes[-1]
                    files[name] = file.built(lambda s, versions, n=name: pick(n, s, versions), size)  # noqa: B023
                yield files, 1

    def _log_classes(self, name: str, file: _File, dice: random.Random) -> Iterator[tuple[dict[str, bytes], int]]:
        """Yield the classes of a log: all as written; or a first sector that is not, and what is behind it any way."""
        others = {other: bytes(there.now) for other, there in self.names.items() if other != name}
        sizes = sorted({len(file.flushed), *file.sizes})
        order = sorted(file.sectors)
        counts = [len(file.versions(number)) for number in order]
        behind = 1
        yield {**others, name: bytes(file.now)}, 1
        for index in range(len(order) - 1, -1, -1):
            first, versions = order[index], counts[index]
            for wrong in range(versions - 1):

                def pick(number: int, count: int, first: int = first, wrong: int = wrong) -> int:
                    return count - 1 if number < first else wrong if number == first else 0

                def mixed(number: int, count: int, first: int = first, wrong: int = wrong) -> int:
                    return pick(number, count) if number <= first else dice.randrange(count)

                yield {**others, name: file.built(pick, dice.choice(sizes))}, behind
                yield {**others, name: file.built(mixed, sizes[-1])}, 0
            behind *= versions

    def _names(self, dice: random.Random) -> Iterator[dict[str, _File]]:
        """Yield the folders that a cut may leave: every beginning of what happened to names, and one part at random."""
        for end in range(len(self.changes) + 1):
            names = dict(self.flushed_names)
            for change in self.changes[:end]:
                change(names)
            yield names
        if len(self.changes) > 1:
            names = dict(self.flushed_names)
            for change in self.changes:
                if dice.random() < 0.5:
                    change(names)
            yield names


def _renaming(op: Op, made: _File) -> Callable[[dict[str, _File]], None]:
    """Return what an op does to the names of a folder; of a name that is not there it does nothing."""

    def create(names: dict[str, _File]) -> None:
        names.setdefault(op.name, made)

    def unlink(names: dict[str, _File]) -> None:
        names.pop(op.name, None)

    def rename(names: dict[str, _File]) -> None:
        if op.name in names:
            names[op.target] = names.pop(op.name)

    return {"create": create, "unlink": unlink, "rename": rename}[op.kind]


def record(made: Script, where: Path) -> list[Op]:
    """Play a script and return what happened to its files, in order."""
    pipe = acknowledged()
    ops: list[Op] = []
    watch = (*WRITING, "close")
    with Traced(lambda: made.play(where, pipe.say), watch, str(where), also=pipe.writing, with_data=True) as traced:
        while (call := traced.next_call()) is not None:
            name = Path(call.path).name
            known = os.path.lexists(call.path)
            place = _place(traced.pid, call.arguments[0]) if call.name == "write" and call.path != str(where) else 0
            result = traced.finish()
            if result < 0 or name.endswith("-shm") or call.path.endswith(" (deleted)"):
                continue
            if call.name == "write" and call.path == str(where):
                ops.append(Op("done"))
            elif call.name in ("write", "pwrite64"):
                at = call.arguments[3] if call.name == "pwrite64" else place
                ops.append(Op("write", name, at, call.data[:result]))
            elif call.name in ("fsync", "fdatasync"):
                ops.append(Op("names") if call.path == str(where) else Op("sync", name))
            elif call.name == "ftruncate":
                ops.append(Op("size", name, call.arguments[1]))
            elif call.name == "openat":
                if not known:
                    ops.append(Op("create", name))
                elif call.arguments[2] & os.O_TRUNC:
                    ops.append(Op("size", name, 0))
            elif call.name in ("unlink", "unlinkat"):
                ops.append(Op("unlink", name))
            elif call.name.startswith("rename"):
                ops.append(Op("rename", name, target=Path(call.target).name))
            else:
                assert call.name in ("close", "chmod", "fchmodat"), f"{call.name} is not understood"
    assert traced.status == 0 and pipe.count() == len(made.steps), "the undisturbed script failed"
    return ops


def _place(pid: int, fd: int) -> int:
    """Return the file position of a descriptor of another process."""
    for line in Path(f"/proc/{pid}/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("pos:"):
            return int(line[4:])
    raise AssertionError("no position")


def cuts(ops: list[Op]) -> Iterator[int]:
    """Yield how many ops have happened at the moments worth a cut: what a cut between them could leave, one of these
    can leave too."""
    for index, op in enumerate(ops):
        if op.kind in ("sync", "names"):
            yield index
        elif op.kind == "done":
            yield index + 1
    yield len(ops)


class PowerSweep:
    """A chunk is one script with one seed: all the moments, and of each all the classes of disks."""

    name = "power"
    weight = 0.24
    round_size = len(SCRIPTS)

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        names = list(SCRIPTS)
        made = script(names[number % len(names)], number // len(names))
        dice = seed_of("power", number)
        tally = Tally()
        with small_wal(dice.choice((None, 2, 7))), _checksums_remembered():
            start = prepared(made, folder / "start", live=dice.random() < 0.5)
            where = folder / "store"
            shutil.copytree(start, where)
            if (reason := forbidden()) is not None:
                tally.notes[f"from pictures between steps, since the kernel forbids tracing: {reason}"] += 1
                ops = pictured(made, where)
            else:
                ops = record(made, where)
            self._open_all(made, start, ops, where, dice, at_most, tally, f"power chunk {number}")
        return tally

    def _open_all(
        self,
        made: Script,
        start: Path,
        ops: list[Op],
        where: Path,
        dice: random.Random,
        at_most: int | None,
        tally: Tally,
        title: str,
    ) -> None:
        seen: set[bytes] = set()
        known: set[object] = set()
        moments = list(cuts(ops))
        disk = Disk(start)
        happened = 0
        for at in (moments[index] for index in chosen(len(moments), at_most, dice)):
            for op in ops[happened:at]:
                disk.step(op)
            happened = at
            states = list(disk.states(dice))
            some = None if at_most is None else max(1, 2 * at_most // len(moments) + 1)
            for index in chosen(len(states), some, dice):
                files, stands_for = states[index]
                tally.notes["stands for"] += stands_for
                mark = _mark(disk.done, files)
                if mark in seen:
                    continue
                seen.add(mark)
                _build(where, files, dice)
                tally.points += 1
                anew = dice.random() < READ_ANEW
                tally.notes["read anew"] += anew
                broken = examine(made, where, disk.done, known=None if anew else known)
                there = f"{title} ({made.name}, seed {made.seed}) cut {at} state {index}"
                tally.violations += [f"{there}: {problem}" for problem in broken]


@contextmanager
def _checksums_remembered() -> Iterator[None]:
    """Let the engine work out the checksum of a frame once: the disks of a chunk are made of the same frames. What
    goes on from another sum differs by a linear function of that, which the engine's own sums of zeros give."""
    checksum = sqlite_log.checksum

    @lru_cache(maxsize=20_000)
    def alone(data: bytes, big: bool) -> tuple[int, int]:
        return checksum(data, (0, 0), big=big)

    @cache
    def before(size: int) -> tuple[tuple[int, int], tuple[int, int]]:
        return checksum(bytes(size), (1, 0), big=False), checksum(bytes(size), (0, 1), big=False)

    def remembered(data: bytes, running: tuple[int, int], *, big: bool) -> tuple[int, int]:
        (one, two), (of_one, of_two) = alone(data, big), before(len(data))
        one += running[0] * of_one[0] + running[1] * of_two[0]
        two += running[0] * of_one[1] + running[1] * of_two[1]
        return one & 0xFFFFFFFF, two & 0xFFFFFFFF

    sqlite_log.checksum = remembered
    try:
        yield
    finally:
        sqlite_log.checksum = checksum


def _mark(done: int, files: dict[str, bytes]) -> bytes:
    """Return a short name for a disk and what was acknowledged of it."""
    hasher = hashlib.sha256(repr((done, [(name, len(files[name])) for name in sorted(files)])).encode())
    for name in sorted(files):
        hasher.update(files[name])
    return hasher.digest()


def _build(where: Path, files: dict[str, bytes], dice: random.Random) -> None:
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    for name, data in files.items():
        (where / name).write_bytes(data)
    if dice.random() < 0.1:  # what is left of the shared memory means nothing
        (where / "refold.db-shm").write_bytes(dice.randbytes(32768))


def pictured(made: Script, where: Path) -> list[Op]:
    """Return ops from pictures of the files taken between steps, where calls cannot be traced: what changed in a step
    is
    one unflushed write, flushed when the step is acknowledged. Steps that write more than the log are left out, since
    their order is not known; what they leave counts as flushed."""
    ops: list[Op] = []
    before = {path.name: path.read_bytes() for path in where.iterdir()}

    def look(_: int) -> None:
        nonlocal before
        after = {path.name: path.read_bytes() for path in where.iterdir() if not path.name.endswith("-shm")}
        changed = [name for name in after if after[name] != before.get(name)]
        for name in changed:
            if name not in before:
                ops.extend((Op("create", name), Op("names")))
            old, new = before.get(name, b""), after[name]
            if len(new) < len(old):
                ops.append(Op("size", name, len(new)))
            ops.extend(
                Op("write", name, at, new[at : at + SECTOR])
                for at in range(0, len(new), SECTOR)
                if new[at : at + SECTOR] != old[at : at + SECTOR]
            )
            if changed != ["refold.db-wal"]:
                ops.append(Op("sync", name))
        ops.extend(Op("unlink", name) for name in before if name not in after and not name.endswith("-shm"))
        ops.extend((Op("sync", name) for name in changed) if changed == ["refold.db-wal"] else ())
        ops.extend((Op("names"), Op("done")))
        before = after

    made.play(where, look)
    return ops


SWEEP = PowerSweep()
