"""Forks made while what they leave is being deleted: one of the two is first, and no fork is left without its past."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import open_store
from engine.core.errors import EngineError, NotFound
from engine.open_store import Store
from engine.store import Journal
from tests.engine.kit import NEVER


def filled(path: str | Path) -> Store:
    """A store whose run ``r`` has six events in commits of one and two."""
    store = open_store(path, checkpoints=NEVER)
    run = store.run("r")
    run.tasks.open_root("root")
    run.tasks.start("root")
    with run.batch():
        run.tasks.spawn("a", parent="root", role="explore")
        run.tasks.spawn("b", parent="root", role="explore")
    run.tasks.publish_launch("a")
    run.tasks.publish_launch("b")
    return store


def once_before(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, act: Callable[[], Any]) -> None:
    """Do something, once, just before a method is called."""
    method = getattr(target, name)
    left = [act]

    def called(*arguments: Any, **named: Any) -> Any:
        while left:
            left.pop()()
        return method(*arguments, **named)

    monkeypatch.setattr(target, name, called)


@pytest.fixture(params=["memory:", "refold.db"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return filled(request.param if request.param == "memory:" else tmp_path / request.param)


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("anew", [False, True])
def test_a_run_deleted_while_it_is_forked(store: Store, monkeypatch: pytest.MonkeyPatch, at: int, anew: bool) -> None:
    """Between what a fork reads and what it writes, its origin goes, or another run of its name takes its place: no
    fork is made of a history that is not there."""

    def delete() -> None:
        store.delete("r")
        if anew:
            another = store.run("r", actor="another")
            another.tasks.open_root("root")
            with another.batch():
                another.tasks.start("root")
                another.tasks.spawn("c", parent="root", role="explore")

    commits = store.journal._commits
    once_before(monkeypatch, commits, "create", delete)
    if at == 0 and anew:  # of nothing there is always the beginning
        assert store.fork("r", "f", at=at).position == 0
        return
    with pytest.raises(NotFound, match="deleted meanwhile"):
        store.fork("r", "f", at=at)
    assert [run.run for run in store.runs()] == (["r"] if anew else [])
    assert store.run("f").position == 0


@pytest.mark.parametrize("at", range(7))
def test_a_fork_made_while_its_origin_is_deleted(store: Store, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Between what a delete reads and what it writes, a fork is made: what that needs is kept."""
    digest = store.view("r", at=at).digest()
    once_before(monkeypatch, store.journal._commits, "erase", lambda: store.fork("r", "f", at=at))
    assert store.delete("r").needed_by == ("f",)
    assert [run.run for run in store.runs()] == ["f"]
    assert (store.run("f").position, store.verify("f").ok) == (at, True)
    assert len(store.view("f").digest()) == len(digest)
    assert store.run("f").tasks.rows().to_json() == store.view("f", start="genesis").tasks.rows().to_json()


def test_forks_and_deletes_of_many_processes_worth_of_handles(tmp_path: Path) -> None:
    """Threads with stores of their own fork and delete the same runs: every fork that was made can be read."""
    path = tmp_path / "refold.db"
    filled(path).close()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with open_store(path, checkpoints=NEVER) as store:
                for turn in range(12):
                    try:
                        name = f"f{number}-{turn}"
                        store.fork("r" if turn % 2 else f"f{number}-{turn - 1}", name, at=(turn + number) % 7)
                        if turn % 3 == 0:
                            store.delete(name if turn % 2 else "r")
                    except EngineError as error:  # somebody deleted it
                        assert error.code in ("not_found", "conflict"), error
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with open_store(path) as store:
        assert all(store.verify(run.run).ok for run in store.runs())


def test_a_journal_says_that_nothing_was_taken(store: Store) -> None:
    """``shed`` with less than a fork needs takes nothing."""
    store.fork("r", "f", at=4)
    journal: Journal = store.journal
    assert [journal.shed("r", needed) for needed in (None, 0, 3)] == [False, False, False]
    assert store.run("r").position == 6
    assert journal.shed("r", 4)
