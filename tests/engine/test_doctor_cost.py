"""What the doctor costs: memory that a long store does not fill, and work that follows what there is."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from engine.doctor import salvage
from engine.open_store import Store
from engine.store import sqlite_pages
from engine.store.remains import Remains
from tests.engine.kit import raw, toy_store
from tests.guarantees.crash import Acknowledge, Writer
from tests.sweeps.kill import with_pragma
from tests.toy import BANK, Open, Pay

KEPT: list[Store] = []
"""Stores of processes that end without closing them."""


def grown(path: Path, runs: int, commits: int) -> Path:
    """Make a store of so many runs, each of so many commits."""
    with with_pragma("synchronous=OFF"), toy_store(path) as store:
        for number in range(runs):
            run = store.run(f"r{number}")
            run.submit(Open(account="a"))
            for amount in range(commits - 1):
                run.submit(Pay(account="a", amount=100 + amount))
    return path


def peak(path: Path, target: Path) -> int:
    """Return how many bytes saving a store needs at once."""
    tracemalloc.start()
    salvage(path, target, BANK)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_memory_follows_the_commits_by_some_bytes_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are kept as places: twice the commits are about a hundred more bytes each, not their contents too, which
    would make it over two hundred."""
    monkeypatch.setattr(sqlite_pages, "_PAGES_KEPT", 8)
    sizes = (2_500, 5_000)
    for size in sizes:
        grown(tmp_path / f"{size}.db", 1, size)
    peak(tmp_path / f"{sizes[0]}.db", tmp_path / "warm.db")
    most = [peak(tmp_path / f"{size}.db", tmp_path / f"{size}.new") for size in sizes]
    assert (most[1] - most[0]) / (sizes[1] - sizes[0]) < 150


def opens(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many candidates are looked at to save a store."""
    count = 0
    opened = Remains.open

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return opened(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Remains, "open", counted)
        salvage(path, path.with_suffix(".new"), BANK)
    return count


@pytest.mark.parametrize("damage", ["SELECT 1", "DELETE FROM run_heads"], ids=["nothing", "all head records"])
def test_work_follows_the_commits(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit is opened a few times, however many runs there are and whatever became of their head records."""
    for runs in (20, 80):
        path = grown(tmp_path / f"{runs}.db", runs, 6)
        with raw(path) as connection:
            connection.execute(damage)
        assert 0 < opens(path, monkeypatch) <= 3 * runs * 6


def test_many_dropped_versions_of_a_head_record_are_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged log holds every head record in as many versions as there are commits: the run is followed once."""
    path = tmp_path / "refold.db"

    def work(acknowledge: Acknowledge) -> None:
        store = toy_store(path)
        KEPT.append(store)
        run = store.run("r")
        run.submit(Open(account="a"))
        for amount in range(100, 299):
            run.submit(Pay(account="a", amount=amount))
        acknowledge(run.position, 1)

    assert Writer(work).wait() == [(200, 1)]
    log = path.with_name("refold.db-wal")
    data = bytearray(log.read_bytes())
    data[32 + 4120 * 9 + 20] ^= 1
    log.write_bytes(data)
    assert opens(path, monkeypatch) <= 3 * 200
    with toy_store(path.with_suffix(".new")) as store:
        assert store.run("r").position == 200
