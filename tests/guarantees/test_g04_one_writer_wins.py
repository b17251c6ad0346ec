"""G4: One writer wins: two processes that continue one run never both succeed at one position; the loser gets a typed,
retryable Conflict and has written nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import pytest

from engine.core.errors import Conflict
from tests.engine.kit import second_fold, stored_rows, toy_store
from tests.guarantees.crash import Acknowledge, Writer
from tests.sweeps.fencing import SWEEP
from tests.sweeps.harness import run_chunk
from tests.toy import Open, Pay


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


def test_processes_that_are_stopped_and_killed_leave_one_history() -> None:
    """G4: whatever processes were told, stopped and killed with the write lock in their hands, one order explains it;
    none is told of a lock unless the process that has it is stopped for longer than others wait. (A slice of the
    fencing sweep; tests/sweeps has more.)"""
    tally = run_chunk(SWEEP, 0, at_most=60)
    assert tally.violations == []
    assert tally.points > 60 and tally.notes["stopped"] > 0
