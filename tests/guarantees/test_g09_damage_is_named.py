"""G9: Damage is found and named (run, position, what was expected), never repaired silently and never served as data.

Each kind of damage by itself is in tests/engine/test_verify.py; here bits are flipped wherever there are bits.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.core.errors import CorruptJournal, EngineError, SchemaError
from engine.open_store import Store
from tests.engine.kit import raw
from tests.guarantees.domain import DOMAINS, Domain, play
from tests.guarantees.sweep import seeds


@pytest.fixture(params=DOMAINS, ids=str)
def domain(request: pytest.FixtureRequest) -> Domain:
    found: Domain = request.param
    return found


@pytest.fixture
def path(domain: Domain, tmp_path: Path) -> Path:
    """A store with a run of some thirty commits, one of them packed, and a second run beside it."""
    path = tmp_path / "refold.db"
    with domain.store(path) as store:
        play(domain, Random(2), store.run("r"), 40)
        play(domain, Random(3), store.run("beside"), 10)
    return path


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
    assert seen == truth.events[: len(seen)]
    for position in (truth.position, truth.position // 2, 1):
        for start in ("best", "genesis"):
            try:
                digest = store.view("r", at=position, start=start).digest()  # type: ignore[arg-type]
            except EngineError:
                whole = False
            else:
                assert digest == truth.digests[position]
    return whole and len(seen) == truth.position


def columns(path: Path) -> list[tuple[int, int, str, bytes]]:
    """Return (row, first seq, column, value as bytes) of every value in the journal rows of the run."""
    with raw(path) as connection:
        rows = list(
            connection.execute(
                "SELECT rowid, originator_version, originator_id, topic, state FROM stored_events "
                "WHERE originator_id='r'"
            )
        )
    return [
        (row, first, column, value)
        for row, first, *values in rows
        for column, value in zip(("originator_id", "topic", "state"), values, strict=True)
    ]


def flip(domain: Domain, path: Path, truth: Truth, chosen: Iterator[tuple[int, int, str, bytes, int]]) -> int:
    """Flip one bit after another in the journal; each must be named by verify and by restore with its position."""
    count = 0
    with raw(path) as connection, domain.store(path) as store:
        for row, first, column, value, bit in chosen:
            damaged = bytearray(value)
            damaged[bit // 8] ^= 1 << bit % 8
            kind = "BLOB" if column == "state" else "TEXT"
            connection.execute(
                f"UPDATE stored_events SET {column}=CAST(? AS {kind}) WHERE rowid=?", (bytes(damaged), row)
            )
            connection.commit()
            named = {fault.seq for fault in store.verify("r").faults}
            assert first in named, f"{column} of the commit at {first}, bit {bit}: verify names {named}"
            with pytest.raises((CorruptJournal, SchemaError)) as caught:
                store.run("r")
            assert caught.value.details["position"] == first
            assert not never_served(store, truth)
            connection.execute(f"UPDATE stored_events SET {column}=CAST(? AS {kind}) WHERE rowid=?", (value, row))
            connection.commit()
            count += 1
        assert store.verify("r").ok
        assert never_served(store, truth)
    return count


def test_a_flipped_bit_in_a_journal_row_is_named(domain: Domain, path: Path) -> None:
    """G9: a hundred bits of rows, in every column, are each named with their position and never served."""
    random = Random(5)
    values = columns(path)
    with domain.store(path) as store:
        truth = Truth(store)
    chosen = []
    for column in ("originator_id", "topic", "state"):
        of_it = [value for value in values if value[2] == column]
        for row, first, _, value in random.choices(of_it, k=80 if column == "state" else 10):
            chosen.append((row, first, column, value, random.randrange(8 * len(value))))
    assert flip(domain, path, truth, iter(chosen)) == 100


@pytest.mark.sweep
def test_sweep_of_flipped_bits(domain: Domain, path: Path) -> None:
    """G9: the same for every bit of every row of the run."""
    with domain.store(path) as store:
        truth = Truth(store)
    every = (
        (row, first, column, value, bit) for row, first, column, value in columns(path) for bit in range(8 * len(value))
    )
    print(f"{domain}: {flip(domain, path, truth, every)} bits")


def scratch(domain: Domain, path: Path, truth: Truth, random: Random) -> bool:
    """Damage the file itself at a random place; return whether the store noticed."""
    copy = path.with_name("scratched.db")
    shutil.copy(path, copy)
    size = path.stat().st_size
    with copy.open("r+b") as file:
        for _ in range(random.choice([1, 1, 1, 16])):
            place = random.randrange(size)
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << random.randrange(8)]))
        if random.randrange(10) == 0:
            file.truncate(random.randrange(size))
    noticed = False
    try:
        with domain.store(copy) as store:
            whole = never_served(store, truth)
            verdict = store.verify("r")
            assert whole or not verdict.ok, "readers refuse what verify finds sound"
            noticed = not whole or not verdict.ok
            store.runs()
            run = store.run("r")
            play(domain, random, run, 2)
            assert run.state_bytes() == store.view("r", start="genesis").state_bytes()
    except EngineError as error:
        assert error.hint or error.code == "schema_error", error
        noticed = True
    finally:
        for left in path.parent.glob("scratched.db*"):
            left.unlink()
    return noticed


def test_a_scratched_file_gives_the_truth_or_an_error(domain: Domain, path: Path) -> None:
    """G9: wherever in the file bits are flipped, or it is cut off, readers give the truth or one of our errors."""
    random = Random(6)
    with domain.store(path) as store:
        truth = Truth(store)
    assert sum(scratch(domain, path, truth, random) for _ in range(80)) > 10


@pytest.mark.sweep
def test_sweep_of_scratched_files(domain: Domain, path: Path) -> None:
    """G9: the same for as long as the sweep may take."""
    with domain.store(path) as store:
        truth = Truth(store)
    for seed in seeds():
        for number in range(50):
            scratch(domain, path, truth, Random(seed * 50 + number))


def test_nothing_is_repaired_in_silence(domain: Domain, path: Path) -> None:
    """G9: reading, verifying and trying to write to a damaged run leave the damage as it is."""
    with raw(path) as connection:
        connection.execute(
            "UPDATE stored_events SET state=CAST(state||x'00' AS BLOB) WHERE originator_id='r' AND originator_version=1"
        )
    before = sorted(columns(path))
    with domain.store(path) as store:
        for _ in range(2):
            assert not store.verify("r").ok
            with pytest.raises(CorruptJournal):
                store.run("r")
            with pytest.raises(CorruptJournal):
                list(store.history("r"))
        assert store.verify("beside").ok
        play(domain, Random(1), store.run("beside"), 3)
    assert sorted(columns(path)) == before
