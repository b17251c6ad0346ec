"""A realistic store to be damaged, and what was true of it before: several runs, forks of forks, a deleted run kept for
its fork, one that is gone, packed commits, rows over several pages, checkpoints, pages of every kind. The truth is read
with sqlite3 and hashlib; it must never come from what is under test."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tempfile
import zlib
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import cbor2

from engine.doctor import Diagnosis, Salvage, diagnose, salvage
from engine.open_store import Store
from tests.engine.kit import raw, toy_store
from tests.guarantees.crash import Acknowledge, Writer
from tests.toy import BANK, Close, Open, Pay, Write

Row = tuple[int, bytes]
"""First position, stored bytes."""

FORKS: Final = {"fork": ("main", 20), "cut in a commit": ("main", 18), "bare": ("main", 30), "grandchild": ("fork", 24)}
HIDDEN: Final = "deleted"
GONE: Final = "gone"


def _bank(store: Store, name: str, commits: int, dice: Random) -> None:
    """Give a run so many commits: single ones, batches, long texts that pack, long ones that do not."""
    run = store.run(name, actor="teller")
    for number in range(commits):
        account = f"{name}-{number % 7}"
        kind = number % 10
        if number < 7:
            run.submit(Open(account=account, note={"k": [number, None, "ü"]}), command_id=f"{name} {number}")
        elif kind == 3:
            with run.batch():
                for amount in range(4):
                    run.submit(Pay(account=account, amount=amount), cause=amount + 1)
        elif kind == 6:
            run.submit(Write(account=account, letter="all work and no play " * 40))
        elif number in (8, 38):
            run.submit(Write(account=account, letter=dice.randbytes(7_000).hex()), actor=None)
        else:
            run.submit(Pay(account=account, amount=number + 100, note="tip" if number % 2 else None))
        if number in (15, 31):
            run.checkpoint(full=number == 15)


def fill_realistically(store: Store) -> None:
    """Make the runs. What is deleted is deleted last, so that its pages are still free."""
    dice = Random(7)
    for name, commits in (("main", 40), ("other", 12), (HIDDEN, 14), (GONE, 20)):
        _bank(store, name, commits, dice)
    for name, (origin, at) in FORKS.items():
        fork = store.fork(origin, name, at=at)
        for amount in range(0 if name == "bare" else 6):
            fork.submit(Pay(account="main-1", amount=amount, note=name))
    fork = store.fork(HIDDEN, "orphan", at=9)
    fork.submit(Close(account=f"{HIDDEN}-2"))
    with raw(Path(store.url)) as connection:  # many small rows: the index gets pages above its leaves
        assert connection.execute("SELECT count(*) FROM stored_events").fetchone()[0] > 100
    small = store.run("small")
    small.submit(Open(account="s"))
    for amount in range(100, 360):
        small.submit(Pay(account="s", amount=amount))
    store.delete(HIDDEN)
    store.delete(GONE)


@dataclass(frozen=True)
class Truth:
    """What a sound store holds: ``numbers`` and ``rows`` are its commits, by row number, and of each run its own;
    ``events`` those of the whole run as JSON, ``positions`` their number; ``hidden`` runs are not to be seen."""

    numbers: dict[int, tuple[str, int, bytes]]
    rows: dict[str, list[Row]]
    events: dict[str, list[dict[str, Any]]]
    positions: dict[str, int]
    hidden: frozenset[str]

    @classmethod
    def of(cls, path: Path) -> Truth:
        with raw(path) as connection:
            heads = {run.decode(): hidden for run, hidden in connection.execute("SELECT run_id, hidden FROM run_heads")}
            numbers = {
                number: (run.decode(), first, state)
                for number, run, first, state in connection.execute(
                    "SELECT rowid, originator_id, originator_version, state FROM stored_events WHERE originator_id<>''"
                )
            }
        rows: dict[str, list[Row]] = {run: [] for run in heads}
        for run, first, state in sorted(numbers.values()):
            rows[run].append((first, state))
        with toy_store(path, read_only=True) as store:
            positions = {line.run: line.position for line in store.runs()}
            events = {run: [event.to_json() for event in store.history(run)] for run in positions}
        return cls(numbers, rows, events, positions, frozenset(run for run, hidden in heads.items() if hidden))


@dataclass(frozen=True)
class Wreck:
    """A copy of the store in a folder of its own, to be damaged."""

    folder: Path
    truth: Truth

    @property
    def path(self) -> Path:
        return self.folder / "refold.db"

    @property
    def log(self) -> Path:
        return self.folder / "refold.db-wal"

    @property
    def index(self) -> Path:
        return self.folder / "refold.db-shm"

    def hashes(self) -> dict[str, str]:
        """Return what lies in the folder."""
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(self.folder.iterdir())}


def make_wreck(folder: Path, *, left: bool = False) -> Wreck:
    """Return a fresh copy of the store: of one that was closed, or that a killed writer left, its last commits in the
    log only."""
    files, truth = _source(left)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return Wreck(folder, truth)


@cache
def _source(left: bool) -> tuple[dict[str, bytes], Truth]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with toy_store(folder / "refold.db", clock=iter(range(10**6, 10**9)).__next__) as store:
            fill_realistically(store)
        if left:
            assert Writer(lambda acknowledge: _go_on(folder / "refold.db", acknowledge)).wait()
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert sorted(files) == (["refold.db", "refold.db-shm", "refold.db-wal"] if left else ["refold.db"])
        return files, Truth.of(folder / "refold.db")


_kept: list[Store] = []
"""Stores of processes that end without closing them."""


def _go_on(path: Path, acknowledge: Acknowledge) -> None:
    store = toy_store(path)
    _kept.append(store)
    run = store.run("main")
    for amount in range(6):
        run.submit(Pay(account="main-2", amount=amount))
    store.run("late").submit(Open(account="late"))
    run.submit(Write(account="main-2", letter=Random(3).randbytes(5_000).hex()))
    acknowledge(run.submit(Pay(account="main-2", amount=99)).position, 1)


# -- what the doctor makes of it --------------------------------------------------------------------------------------


@dataclass
class Found:
    """What the doctor said and saved."""

    diagnosis: Diagnosis
    saved: Salvage
    rows: dict[str, list[Row]] = field(default_factory=dict)
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    readable: set[tuple[str, int]] = field(default_factory=set)

    def codes(self) -> set[str]:
        """Return the codes of all that was found."""
        of_runs = (fault.code for verdict in self.diagnosis.verdicts for fault in verdict.faults)
        return {finding.code for finding in self.diagnosis.findings} | set(of_runs)

    def faults(self, run: str) -> list[tuple[int, str]]:
        """Return the faults that were named in a run."""
        verdicts = [verdict for verdict in self.diagnosis.verdicts if verdict.run == run]
        return [(fault.seq, fault.code) for verdict in verdicts for fault in verdict.faults]

    def proved(self, run: str) -> list[int]:
        """Return the positions of a run behind its damage whose links hold."""
        return [line["seq"] for line in self.lines if line["run"] == run and line["proved"]]


def examined(wreck: Wreck) -> Found:
    """Let the doctor look at a store and save it, twice; check all that must hold whatever the damage is.

    The source is as before, both times it is the same answer and the same bytes, the new store is sound and holds of
    each run a beginning of what there was, at least what verification found whole; what lay behind is told, once, and
    as it was; and where nothing is said to be damaged everything is there.
    """
    before = wreck.hashes()
    found = diagnose(wreck.path, BANK, alone=True)
    again = diagnose(wreck.path, BANK, alone=True)
    assert again.to_json() == found.to_json()
    new = wreck.folder.with_name("saved")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    saved = salvage(wreck.path, new / "a.db", BANK)
    salvage(wreck.path, new / "b.db", BANK)
    assert wreck.hashes() == before, "the doctor changed what it looked at"
    for name in sorted(path.name for path in new.glob("a.db*")):
        assert (new / name).read_bytes() == (new / name.replace("a.db", "b.db")).read_bytes(), name
    assert {run.run for run in found.savable} in ({run.run for run in saved.runs}, set())
    assert not found.savable or found.savable == saved.runs
    what = Found(found, saved, readable=set() if wreck.log.exists() else readable(wreck.path, wreck.truth))
    if saved.store is not None:
        _read(what, new / "a.db")
    _check(what, wreck.truth)
    if found.ok and not wreck.log.exists():  # of the end of a log nobody can tell whether more was there
        assert {run: len(events) for run, events in what.events.items()} == wreck.truth.positions
        assert what.lines == []
    return what


def _read(what: Found, path: Path) -> None:
    assert diagnose(path, BANK, alone=True).ok
    with toy_store(path, read_only=True) as store:
        for line in store.runs():
            assert store.verify(line.run).ok
            what.events[line.run] = [event.to_json() for event in store.history(line.run)]
    with raw(path) as connection:
        for run, first, state in connection.execute(
            "SELECT originator_id, originator_version, state FROM stored_events ORDER BY 1, 2"
        ):
            what.rows.setdefault(run.decode(), []).append((first, state))
    rescued = path.with_name(path.name + ".rescued.jsonl")
    assert rescued.exists() == (what.saved.rescued is not None)
    if rescued.exists():
        what.lines = [json.loads(line) for line in rescued.read_text().splitlines()]


def _check(what: Found, truth: Truth) -> None:
    for run, rows in what.rows.items():
        if run in truth.rows:
            assert rows == truth.rows[run][: len(rows)], f"other bytes in {run}"
    for run, events in what.events.items():
        if run in truth.events:
            assert events == truth.events[run][: len(events)], f"other events in {run}"
    for verdict in what.diagnosis.verdicts:
        if verdict.run in truth.events:
            whole = min(verdict.position, truth.positions[verdict.run])
            assert len(what.events.get(verdict.run, ())) >= whole, f"less of {verdict.run} than verifies"
    told = [(line["run"], line["seq"]) for line in what.lines if line["proved"]]
    assert len(told) == len(set(told)), "something is told twice"
    for line in what.lines:
        run, seq = line["run"], line["seq"]
        if line["proved"] and run in truth.events:
            event = truth.events[run][seq - 1]
            assert seq > len(what.events.get(run, ())), f"{run} {seq} is saved and told"
            assert {key: line[key] for key in ("type", "data", "actor", "command_id")} == {
                key: event[key] for key in ("type", "data", "actor", "command_id")
            }
    _nothing_is_missed(what, truth)


def _nothing_is_missed(what: Found, truth: Truth) -> None:
    """Check that each commit that SQLite can still give back is saved or told."""
    told = {(line["run"], line["seq"]) for line in what.lines}
    for run, first in what.readable:
        saved = any(row[0] == first for row in what.rows.get(run, ()))
        assert saved or (run, first) in told, f"{run} {first} is neither saved nor told"


def all_is_saved(found: Found, wreck: Wreck, *, but: tuple[str, ...] = ()) -> None:
    """Check that the new store holds every event of every run."""
    saved = {run: len(events) for run, events in found.events.items() if run in wreck.truth.positions}
    for run, position in wreck.truth.positions.items():
        assert run in but or saved.get(run) == position, f"{run}: {saved.get(run)} of {position}"


# -- an independent reading -------------------------------------------------------------------------------------------


def body(stored: bytes) -> bytes | None:
    """Return what the link of a stored commit covers, None when it is packed and not as it was."""
    if stored[32:33] != b"\0":
        return stored[32:]
    sound = zlib.crc32(stored[37:]).to_bytes(4, "big") == stored[33:37]
    return zlib.decompress(stored[37:], -15) if sound else None


def follows(link: bytes, stored: bytes) -> bool:
    """Return whether a stored commit follows from a link."""
    content = body(stored)
    return content is not None and stored[:32] == hashlib.sha256(link + content).digest()


def positions_in(row: Row) -> range:
    """Return the positions of the events of a sound row."""
    content = body(row[1])
    assert content is not None
    return range(row[0], row[0] + sum(len(group[5]) for group in cbor2.loads(content)))


def readable(path: Path, truth: Truth) -> set[tuple[str, int]]:
    """Return (run, first position) of the commits that SQLite still gives back as they were, asked one by one."""
    found: set[tuple[str, int]] = set()
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        for number, (run, first, state) in truth.numbers.items():
            try:
                row = connection.execute("SELECT state FROM stored_events WHERE rowid=?", (number,)).fetchone()
            except (sqlite3.Error, UnicodeDecodeError):  # the latter over the text of the former
                continue
            if row is not None and row[0] == state:
                found.add((run, first))
    return found
