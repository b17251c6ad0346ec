"""G9: Damage is found and named (run, position, what was expected), never repaired silently and never served as data.

Each kind of damage by itself is in tests/engine/test_verify.py; here bits are flipped wherever there are bits.
"""

from __future__ import annotations

import shutil
from dataclasses import astuple
from pathlib import Path
from random import Random

import pytest

from engine.core.errors import CorruptJournal, EngineError
from tests.engine.kit import raw
from tests.guarantees.domain import DOMAINS, Domain, play
from tests.guarantees.flipped import Truth, flip_row, make_journal, never_served, stored_values


@pytest.fixture(params=DOMAINS, ids=str)
def domain(request: pytest.FixtureRequest) -> Domain:
    found: Domain = request.param
    return found


@pytest.fixture
def path(domain: Domain, tmp_path: Path) -> Path:
    """A store with a run of some thirty commits, and a second run beside it."""
    path = tmp_path / "refold.db"
    make_journal(domain, path)
    return path


def test_a_flipped_bit_in_a_journal_row_is_named(domain: Domain, path: Path) -> None:
    """G9: a hundred bits of rows, in every column, are each named with their position and never served."""
    random = Random(5)
    values = stored_values(path)
    with raw(path) as connection, domain.store(path) as store:
        truth = Truth(store)
        for column in ("originator_id", "topic", "state"):
            of_it = [value for value in values if value.column == column]
            for value in random.choices(of_it, k=80 if column == "state" else 10):
                flip_row(connection, store, truth, value, random.randrange(8 * len(value.stored)))
        assert store.verify("r").ok
        assert never_served(store, truth)


@pytest.mark.parametrize("half", ["origin_run='other'", "origin_position=0", "origin_link=x'00'"])
def test_half_an_origin_is_damage(domain: Domain, path: Path, half: str) -> None:
    """G9: a bit may give a run a part of an origin that it never had; the listing owns to it, and so do the others."""
    with raw(path) as connection:
        connection.execute(f"UPDATE run_heads SET {half} WHERE run_id='r'")
    with domain.store(path) as store:
        assert {run.run: run.damage is None for run in store.runs()} == {"beside": True, "r": False}
        assert not store.verify("r").ok
        with pytest.raises(CorruptJournal):
            store.run("r")


@pytest.mark.parametrize("position", ["-84", "0", "'x'", "1.5"])
def test_an_end_before_the_beginning_is_damage(domain: Domain, path: Path, position: str) -> None:
    """G9: no reader takes a run whose head says that it is empty for an empty one."""
    with raw(path) as connection:
        connection.execute(f"UPDATE run_heads SET position={position} WHERE run_id='r'")
    with domain.store(path) as store:
        for read in (store.run, store.view, store.history, store.export_lines):
            with pytest.raises(CorruptJournal):
                list(read("r"))  # type: ignore[call-overload]
        assert not store.verify("r").ok


def test_a_name_that_is_no_text_any_more_is_damage(domain: Domain, path: Path) -> None:
    """G9: a bit of a run's name may leave bytes that are no text, and that nobody can ask for; they are listed, as
    damaged, and so is what has lost its head."""
    with raw(path) as connection:
        connection.execute("UPDATE run_heads SET run_id=CAST(x'f2' AS TEXT) WHERE run_id='r'")
    with domain.store(path) as store:
        damaged = {run.run: run.damage is not None for run in store.runs()}
    assert damaged == {"beside": False, "r": True, "\N{REPLACEMENT CHARACTER}": True}


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


def test_nothing_is_repaired_in_silence(domain: Domain, path: Path) -> None:
    """G9: reading, verifying and trying to write to a damaged run leave the damage as it is."""
    with raw(path) as connection:
        connection.execute(
            "UPDATE stored_events SET state=CAST(state||x'00' AS BLOB) WHERE originator_id='r' AND originator_version=1"
        )
    before = sorted(map(astuple, stored_values(path)))
    with domain.store(path) as store:
        for _ in range(2):
            assert not store.verify("r").ok
            with pytest.raises(CorruptJournal):
                store.run("r")
            with pytest.raises(CorruptJournal):
                list(store.history("r"))
        assert store.verify("beside").ok
        play(domain, Random(1), store.run("beside"), 3)
    assert sorted(map(astuple, stored_values(path))) == before
