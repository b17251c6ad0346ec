"""G4: One writer wins: two processes that continue one run never both succeed at one position; the loser gets a typed,
retryable Conflict and has written nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.core.decider import ModelState
from engine.core.errors import Conflict
from engine.open_store import Store
from engine.store.sqlite_connections import Datastore
from engine.testing.failure import FOLDER_VARIABLE
from tests.engine.kit import second_fold, stored_rows, toy_store
from tests.guarantees.crash import Acknowledge, Writer
from tests.sweeps.fencing import KINDS, SWEEP
from tests.sweeps.harness import run_chunk
from tests.toy import Open, Pay


@pytest.fixture
def failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a chunk leaves what it cannot explain."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "failures"))
    return tmp_path / "failures"


def contender(path: Path, seed: int, commands: int, run_id: str = "r") -> Writer:
    """A process that gets so many commits through, of one event or several, however often it loses."""

    def work(acknowledge: Acknowledge) -> None:
        random = Random(seed)
        run = toy_store(path).run(run_id)
        done = 0
        while done < commands:
            size = random.choice([1, 1, 3])
            before, bytes_before = run.position, run.state_bytes()
            try:
                with run.batch():
                    run.submit(Open(account="a"))
                    for _ in range(size):
                        run.submit(Pay(account="a", amount=100 + seed, note=done))
            except Conflict as error:
                assert error.retryable
                assert (run.position, run.state_bytes()) == (before, bytes_before)
                assert run.refresh() > before
                continue
            acknowledge(before + 1, run.position - before)
            done += 1

    return Writer(work)


def settle(path: Path, writers: list[Writer], run_id: str = "r") -> None:
    """Wait for the writers; every position has exactly one winner, and what was acknowledged is what is there."""
    acknowledged = [commit for writer in writers for commit in writer.wait()]
    positions = [position for first, count in acknowledged for position in range(first, first + count)]
    assert sorted(positions) == list(range(1, len(positions) + 1))
    with toy_store(path) as store:
        run = store.run(run_id)
        assert run.position == len(positions)
        assert [first for first, _ in stored_rows(path, run_id)] == sorted(first for first, _ in acknowledged)
        assert run.digest() == second_fold(stored_rows(path, run_id), run_id)
        assert store.verify(run_id).ok


def test_two_processes_on_one_run(tmp_path: Path) -> None:
    """G4: each position has exactly one winner; acknowledgements add up to the events in the run."""
    path = tmp_path / "refold.db"
    settle(path, [contender(path, seed, commands=60) for seed in range(2)])


def test_many_processes_on_one_run_never_see_a_lock(tmp_path: Path) -> None:
    """G4: no process is ever told that the database is locked: it wins, or it is told of a Conflict."""
    path = tmp_path / "refold.db"
    settle(path, [contender(path, seed, commands=60) for seed in range(4)])


def test_many_processes_on_runs_of_their_own_never_disturb_one_another(tmp_path: Path) -> None:
    """G4: writers of different runs in one store all get through, without a single Conflict or lock."""
    path = tmp_path / "refold.db"

    def work(name: str) -> Writer:
        def write(acknowledge: Acknowledge) -> None:
            run = toy_store(path).run(name)
            run.submit(Open(account="a"))
            for amount in range(20, 80):
                acknowledge(run.submit(Pay(account="a", amount=amount)).position, 1)

        return Writer(write)

    for writer in [work(f"run-{number}") for number in range(4)]:
        assert [first for first, _ in writer.wait()] == list(range(2, 62))


@pytest.mark.parametrize("backend", ["sqlite", "memory"])
def test_two_handles_in_threads_of_one_process(tmp_path: Path, backend: str) -> None:
    """G4: the same holds for handles in one process, on every backend."""
    store = toy_store("memory:" if backend == "memory" else tmp_path / "refold.db")
    store.run("r").submit(Open(account="a"))
    won: list[int] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            run = store.run("r")
            done = 0
            while done < 40:
                try:
                    won.append(run.submit(Pay(account="a", amount=1)).position)
                    done += 1
                except Conflict:
                    run.refresh()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(won) == list(range(2, 122))
    assert store.run("r").ask(lambda state: state.parts["bank"].total) == 120


@pytest.mark.parametrize("number", [0, 1, 2], ids=lambda number: KINDS[number].name)
def test_processes_that_are_stopped_and_killed_leave_one_history(number: int) -> None:
    """G4: whatever processes were told, stopped and killed with the write lock in their hands, one order explains it;
    none is told of a lock unless the process that has it is stopped for longer than others wait. (A slice of the
    fencing sweep.)"""
    tally = run_chunk(SWEEP, number, at_most=60)
    assert tally.violations == []
    assert tally.points > 60 and tally.notes["stopped"] > 0


def _acknowledged_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit is acknowledged now, and written when the next one comes."""
    write, waiting = Datastore.write, "_waiting"

    def later(self: Any, statements: Any, *, changing: int | None = None) -> None:
        before = self.__dict__.pop(waiting, None)
        if before is not None:
            write(self, before[0], changing=before[1])
        self.__dict__[waiting] = statements, changing

    monkeypatch.setattr(Datastore, "write", later)


def _forgotten_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command's id is kept."""
    monkeypatch.setattr(ModelState, "note", lambda *_: None)


def _stale_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is restored is a little behind."""
    view = Store.view

    def behind(self: Store, run_id: str, **how: Any) -> Any:
        return view(self, run_id, **{**how, "at": max(1, self.journal.existing_head(run_id).position - 4)})

    monkeypatch.setattr(Store, "view", behind)


def _two_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit and the run's head are written one after the other."""
    write = Datastore.write

    def apart(self: Any, statements: Any, *, changing: int | None = None) -> None:
        if len(statements) > 1:
            write(self, statements[:-1])
            time.sleep(0.002)
        write(self, statements[-1:], changing=changing)

    monkeypatch.setattr(Datastore, "write", apart)


@pytest.mark.parametrize("plant", [_acknowledged_early, _forgotten_ids, _stale_views, _two_transactions])
def test_what_is_broken_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, failures: Path
) -> None:
    """The slice above can fail: with a fault planted in the engine it says so, and keeps what happened."""
    plant(monkeypatch)
    tally = run_chunk(SWEEP, 0, at_most=60)
    assert tally.violations and "the sweep itself failed" not in str(tally.violations)
    assert [path.name.split("-")[:2] for path in failures.iterdir()] == [["fencing", "0"]]
