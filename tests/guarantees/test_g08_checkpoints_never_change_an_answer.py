"""G8: Checkpoints never change an answer: deleting, corrupting or ageing them costs time only."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from engine.open_store import Store
from tests.engine.kit import raw
from tests.guarantees.domain import DOMAINS, Domain, play, probe
from tests.guarantees.flipped import flip_checkpoint, make_checkpoints, stored_checkpoints

Answers = tuple[str, list[str], list[str], int]


@pytest.fixture(params=DOMAINS, ids=str)
def domain(request: pytest.FixtureRequest) -> Domain:
    found: Domain = request.param
    return found


@pytest.fixture
def path(domain: Domain, tmp_path: Path) -> Path:
    """A store with a full checkpoint, two deltas on it, another full one, a delta, and a tail."""
    path = tmp_path / "refold.db"
    make_checkpoints(domain, path)
    return path


def answers(domain: Domain, store: Store) -> Answers:
    """Return what the store says of the run: digest, next decisions, states of the past, and how the next command
    goes."""
    run = store.run("r")
    past = [store.view("r", at=position).digest() for position in range(0, run.position, 7)]
    return run.digest(), run.ask(lambda state: probe(domain, state, 1)), past, run.position


def checkpoints_in(path: Path) -> list[tuple[int, bytes]]:
    with raw(path) as connection:
        return list(connection.execute("SELECT originator_version, state FROM stored_checkpoints ORDER BY 1"))


def changed(path: Path, position: int, state: bytes | None) -> None:
    """Put other bytes in the place of a checkpoint, or None to delete it."""
    with raw(path) as connection:
        if state is None:
            connection.execute("DELETE FROM stored_checkpoints WHERE originator_version=?", (position,))
        else:
            connection.execute("UPDATE stored_checkpoints SET state=? WHERE originator_version=?", (state, position))


def test_deleting_any_of_them_changes_no_answer(domain: Domain, path: Path) -> None:
    """G8: with every subset of its checkpoints a run gives the same answers, and says what it used instead."""
    with domain.store(path) as store:
        expected = answers(domain, store)
    stored = checkpoints_in(path)
    assert len(stored) == 5
    for subset in range(1, 2 ** len(stored)):
        copy = path.with_name("copy.db")
        shutil.copy(path, copy)
        for number, (position, _) in enumerate(stored):
            if subset >> number & 1:
                changed(copy, position, None)
        with domain.store(copy) as store:
            assert answers(domain, store) == expected
            used = store.run("r").restored.used
            assert used == "genesis" or used in store.checkpoints.positions("r")
            assert all(fault.code == "bad_checkpoint" for fault in store.verify("r").faults)
        copy.unlink()


def test_cutting_one_anywhere_changes_no_answer(domain: Domain, path: Path) -> None:
    """G8: a checkpoint that lost its end, or everything, or has something added, is refused and costs time only."""
    with domain.store(path) as store:
        expected = store.run("r").digest()
    for position, state in checkpoints_in(path):
        lengths = {0, 1, 15, 16, 17, 40, len(state) // 2, len(state) - 1}
        for other in [*(state[:length] for length in lengths), state + b"\0", state + state]:
            changed(path, position, other)
            with domain.store(path) as store:
                run = store.run("r")
                assert run.digest() == expected
                assert position in {at for at, _ in run.restored.rejected} or run.restored.used > position  # type: ignore[operator]
        changed(path, position, state)


def test_flipping_a_bit_of_one_changes_no_answer(domain: Domain, path: Path) -> None:
    """G8: no flipped bit of a checkpoint is ever served; sixty of each here, all of them in the sweep of rows."""
    random = Random(17)
    with domain.store(path) as store:
        expected = store.run("r").digest()
        checkpoints = stored_checkpoints(store)
        assert len(checkpoints) == 5
        for checkpoint in checkpoints:
            for bit in random.sample(range(8 * len(checkpoint.stored)), 60):
                flip_checkpoint(store, expected, checkpoint, bit)


def test_checkpoints_of_another_age_change_no_answer(domain: Domain, path: Path, tmp_path: Path) -> None:
    """G8: checkpoints from an older copy, put at each other's places, or of a run that went on apart, are refused."""
    stored = checkpoints_in(path)
    with domain.store(path) as store:
        expected = store.run("r").digest()
    elsewhere = tmp_path / "elsewhere.db"
    with domain.store(elsewhere) as store:
        run = store.run("r")
        for seed in range(60, 65):
            play(domain, Random(seed), run, 12)
            run.checkpoint()
    foreign = checkpoints_in(elsewhere)
    for position, _ in stored:
        for _, other in [*stored, *foreign]:
            changed(path, position, other)
            with domain.store(path) as store:
                assert store.run("r").digest() == expected
        changed(path, position, dict(stored)[position])


def test_a_table_of_checkpoints_that_is_gone_or_foreign_changes_no_answer(domain: Domain, path: Path) -> None:
    """G8: without the table, or with one of another shape, the run is restored from its events."""
    with domain.store(path) as store:
        expected = store.run("r").digest()
    for statement in (
        "DELETE FROM stored_checkpoints",
        "DROP TABLE stored_checkpoints",
        "CREATE TABLE stored_checkpoints (x)",
    ):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        with domain.store(path) as store:
            run = store.run("r")
            assert (run.digest(), run.restored.used) == (expected, "genesis")
            play(domain, Random(1), run, 2)
            assert store.run("r").digest() == run.digest()
            expected = run.digest()
