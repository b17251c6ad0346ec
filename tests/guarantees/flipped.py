"""Bits of journal rows and of checkpoints, flipped one at a time, and what must be said of each. What a sound store
says is read before anything is damaged."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from engine.core.errors import CorruptJournal, EngineError, SchemaError
from engine.open_store import Store
from tests.engine.kit import raw
from tests.guarantees.domain import Domain, play

__all__ = [
    "Checkpoint", "Truth", "Value", "flip_checkpoint", "flip_row", "flipped", "make_checkpoints", "make_journal",
    "never_served", "stored_checkpoints", "stored_values",
]  # fmt: skip


def make_journal(domain: Domain, path: Path) -> None:
    """Make a store with a run of some thirty commits, one of them packed, and a second run beside it."""
    with domain.store(path) as store:
        play(domain, Random(2), store.run("r"), 40)
        play(domain, Random(3), store.run("beside"), 10)


def make_checkpoints(domain: Domain, path: Path) -> None:
    """Make a store with a full checkpoint, two deltas on it, another full one, a delta, and a tail."""
    with domain.store(path) as store:
        run = store.run("r")
        for seed, full in enumerate([True, False, False, True, False]):
            play(domain, Random(seed), run, 12)
            run.checkpoint(full=full)
        play(domain, Random(9), run, 5)


def flipped(value: bytes, bit: int) -> bytes:
    """Return the bytes with one bit flipped."""
    damaged = bytearray(value)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


# -- the journal ------------------------------------------------------------------------------------------------------


class Truth:
    """What a sound store says of its run."""

    def __init__(self, store: Store) -> None:
        self.events = [event.to_json() for event in store.history("r")]
        self.digests = [store.view("r", at=position).digest() for position in range(len(self.events) + 1)]
        self.position = len(self.events)


def never_served(store: Store, truth: Truth) -> bool:
    """Check that every reader gives the truth or an error of ours; return whether all of it was given."""
    seen: list[Any] = []
    whole = True
    try:
        seen.extend(event.to_json() for event in store.history("r"))
    except EngineError:
        whole = False
    assert seen == truth.events[: len(seen)], "history serves something else"
    for position in (truth.position, truth.position // 2, 1):
        for start in ("best", "genesis"):
            try:
                digest = store.view("r", at=position, start=start).digest()  # type: ignore[arg-type]
            except EngineError:
                whole = False
            else:
                assert digest == truth.digests[position], f"a view at {position} from {start} serves something else"
    return whole and len(seen) == truth.position


@dataclass(frozen=True, slots=True)
class Value:
    """A stored value of a journal row: where it is, and the first event of its commit."""

    row: int
    first: int
    column: str
    stored: bytes

    def put(self, connection: sqlite3.Connection, stored: bytes) -> None:
        """Put other bytes in its place."""
        kind = "BLOB" if self.column == "state" else "TEXT"
        connection.execute(
            f"UPDATE stored_events SET {self.column}=CAST(? AS {kind}) WHERE rowid=?", (stored, self.row)
        )
        connection.commit()


def stored_values(path: Path) -> list[Value]:
    """Return every value in the journal rows of the run."""
    columns = ("originator_id", "topic", "state")
    with raw(path) as connection:
        rows = list(
            connection.execute(
                f"SELECT rowid, originator_version, {', '.join(columns)} FROM stored_events WHERE originator_id='r'"
            )
        )
    return [
        Value(row, first, column, value)
        for row, first, *values in rows
        for column, value in zip(columns, values, strict=True)
    ]


def flip_row(connection: sqlite3.Connection, store: Store, truth: Truth, value: Value, bit: int) -> None:
    """Flip one bit of a row, look, and flip it back: verify and restore must name it with its position."""
    value.put(connection, flipped(value.stored, bit))
    where = f"bit {bit} of {value.column} of the commit at {value.first}"
    try:
        named = {fault.seq for fault in store.verify("r").faults}
        assert value.first in named, f"{where}: verify names {named}"
        try:
            store.run("r")
        except (CorruptJournal, SchemaError) as error:
            assert error.details["position"] == value.first, f"{where}: restore names {error.details}"
        else:
            raise AssertionError(f"{where}: restored as if nothing were wrong")
        assert not never_served(store, truth), f"{where}: every reader says it is whole"
    finally:
        value.put(connection, value.stored)


# -- checkpoints ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored checkpoint of the run."""

    position: int
    topic: str
    stored: bytes


def stored_checkpoints(store: Store) -> list[Checkpoint]:
    """Return the checkpoints of the run."""
    found = []
    for position in store.checkpoints.positions("r"):
        row = store.checkpoints._recorder.read("r", position)
        assert row is not None
        found.append(Checkpoint(position, *row))
    return found


def flip_checkpoint(store: Store, expected: str, checkpoint: Checkpoint, bit: int) -> None:
    """Flip one bit of a checkpoint, look, and flip it back: it must be refused wherever it might have been used, and
    the state must be the expected one."""
    recorder, position = store.checkpoints._recorder, checkpoint.position
    where = f"bit {bit} of the checkpoint at {position}"
    recorder.put("r", position, checkpoint.topic, flipped(checkpoint.stored, bit), (position,))
    try:
        for view in (store.view("r"), store.view("r", at=position)):
            used, refused = view.report.used, {at for at, _ in view.report.rejected}
            assert position in refused or (used != "genesis" and used > position), f"{where}: used {used}"
            assert view.position != position or view.report.used != position, f"{where}: it was used"
        assert store.view("r").digest() == expected, f"{where}: another state"
    finally:
        recorder.put("r", position, checkpoint.topic, checkpoint.stored, (position,))
