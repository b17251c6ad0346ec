"""G6: A refused command, a failed write, a cancelled await leave state, journal and later behaviour exactly as
before."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from eventsourcing.persistence import OperationalError

from engine.core.errors import BackendUnavailable, EngineError, Refused
from engine.open_store import Store
from engine.store import sqlite_connections
from tests.engine.kit import BACKENDS, fill, toy_store, url_of
from tests.guarantees.domain import DOMAINS, Domain, probe, submit_random
from tests.guarantees.struck import ACTS, READS, same_from_now_on, struck
from tests.toy import Close, Open, Pay


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(f"made up, code {code}")
    error.sqlite_errorcode = code
    return error


FAILURES: dict[str, Callable[[], BaseException]] = {
    "busy": lambda: sqlite_error(sqlite3.SQLITE_BUSY),
    "full": lambda: sqlite_error(sqlite3.SQLITE_FULL),
    "input or output": lambda: sqlite_error(sqlite3.SQLITE_IOERR | (10 << 8)),
    "read-only": lambda: sqlite_error(sqlite3.SQLITE_READONLY),
    "locked": lambda: sqlite_error(sqlite3.SQLITE_LOCKED),
    "unknown": lambda: sqlite3.OperationalError("no code at all"),
    "recorder": lambda: OperationalError("as eventsourcing says it"),
    "memory": lambda: MemoryError(),
    "interrupt": lambda: KeyboardInterrupt(),
    "exit": lambda: SystemExit(3),
    "bug": lambda: RuntimeError("a bug"),
}


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return toy_store(url_of(request.param, tmp_path))


@pytest.mark.parametrize("written", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("act", ACTS)
def test_a_write_that_fails_is_wholly_there_or_wholly_absent(
    store: Store, act: str, failure: str, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6: whatever the write raises, and whether or not it had happened, the run finds out and goes on from there."""
    run = store.run("r")
    fill(run)
    before = run.state_bytes()
    recorder = store.journal._commits
    real = recorder.record

    def fail(*arguments: Any) -> None:
        if written:
            real(*arguments)
        raise FAILURES[failure]()

    with monkeypatch.context() as patch:
        patch.setattr(recorder, "record", fail)
        with pytest.raises(BaseException) as caught:
            ACTS[act](run)
    expected = FAILURES[failure]()
    if isinstance(expected, sqlite3.Error | OperationalError):
        assert isinstance(caught.value, BackendUnavailable)
        assert caught.value.hint
    else:
        assert type(caught.value) is type(expected)
    assert (run.state_bytes() == before) != written
    if written and act == "command with id":
        assert run.submit(Close(account="b"), command_id="close-b").repeated
    if "b" not in run.ask(lambda state: dict(state.parts["bank"].accounts.rows)):
        run.submit(Open(account="b"))
    same_from_now_on(store, run, "r")


class Broken:
    """An evolve function that fails at its n-th call."""

    def __init__(self, real: Callable[..., None], calls: int, error: BaseException) -> None:
        self.real, self.calls, self.error = real, calls, error

    def __call__(self, wire: Any, seq: int) -> None:
        self.calls -= 1
        if self.calls == 0:
            self.real(wire, seq)  # half of its work is done
            raise self.error
        if self.calls == -1:
            self.calls = 1
        self.real(wire, seq)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError, KeyError])
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_fold_that_fails_in_mid_decision_is_taken_back(store: Store, error: type[BaseException], calls: int) -> None:
    """G6: when folding an event of a decision fails, nothing of the command is left, nor of the facts before it."""
    run = store.run("r")
    fill(run)
    before = run.state_bytes()
    handlers = run.ask(lambda state: state.handlers)
    tag = 1002 * 16 + 2
    real = handlers[tag]
    handlers[tag] = Broken(real, calls, error("in the fold"))
    with pytest.raises(error):
        run.ingest([("account.paid", {"account": "a", "amount": 1})] * 3)
    handlers[tag] = real
    assert run.state_bytes() == before
    same_from_now_on(store, run, "r")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_a_batch_goes_on_after_a_command_in_it_failed_half_way(store: Store, error: type[BaseException]) -> None:
    """G6: a failure inside a batch that the caller catches takes that command alone with it."""
    run = store.run("r")
    fill(run)
    handlers = run.ask(lambda state: state.handlers)
    tag = 1002 * 16 + 2
    real = handlers[tag]
    with run.batch():
        run.submit(Pay(account="a", amount=21), command_id="kept")
        handlers[tag] = Broken(real, 2, error("in the fold"))
        with pytest.raises(error):
            run.ingest([("account.paid", {"account": "a", "amount": 1})] * 2, command_id="lost")
        handlers[tag] = real
        run.submit(Pay(account="a", amount=22))
        assert run.submit(Pay(account="a", amount=21), command_id="kept").repeated
        assert not run.ingest([("account.paid", {"account": "a", "amount": 9})], command_id="lost").repeated
    assert [event.data["amount"] for event in store.history("r", after=11)] == [21, 22, 9]
    same_from_now_on(store, run, "r")


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_refused_commands_are_as_if_they_had_never_been_given(domain: Domain) -> None:
    """G6: a run that was given hundreds of commands and refused many is the run of those it accepted alone."""
    random = Random(4)
    run, accepted = domain.store("memory:").run("r"), domain.store("memory:").run("r")
    refused = 0
    for number in range(250):
        command = run.ask(lambda state: domain.command(random, state))
        before, link = run.state_bytes(), run.link()
        try:
            run.submit(command, command_id=f"id-{number}")
        except EngineError as error:
            assert isinstance(error, Refused) or error.code == "not_found"
            assert (run.state_bytes(), run.link()) == (before, link)
            refused += 1
        else:
            accepted.submit(command, command_id=f"id-{number}")
    assert refused > 20
    assert run.state_bytes() == accepted.state_bytes()
    assert run.link() == accepted.link()


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_batches_that_fail_are_as_if_they_had_never_been_begun(domain: Domain) -> None:
    """G6: between failed batches of all sizes a run and its next decisions stay those of a run without them."""
    run, undisturbed = domain.store("memory:").run("r"), domain.store("memory:").run("r")
    for seed in range(60):
        with pytest.raises(ZeroDivisionError), run.batch():
            for step in range(seed % 7):
                submit_random(domain, Random(seed * 100 + step), run, command_id=f"{seed}-{step}" if step % 2 else None)
            raise ZeroDivisionError
        assert submit_random(domain, Random(seed), run) == submit_random(domain, Random(seed), undisturbed)
        assert run.state_bytes() == undisturbed.state_bytes()
        answers = [one.ask(lambda state: probe(domain, state, seed, 3)) for one in (run, undisturbed)]  # noqa: B023
        assert answers[0] == answers[1]
    assert run.link() == undisturbed.link()


# -- interrupts -------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail soon when something is still locked, not after half a minute."""
    monkeypatch.setattr(sqlite_connections, "BUSY_TIMEOUT_S", 0.3)


@pytest.mark.parametrize("act", [*ACTS, *READS])
def test_an_interrupt_at_any_place_is_wholly_before_or_wholly_after(act: str, tmp_path: Path, impatient: None) -> None:
    """G6: struck by a signal anywhere in our code, the run, its journal and what comes next are as if it had struck
    before the command, or after it. Every seventh place here; all of them in the sweep of interrupts."""
    store = toy_store(tmp_path / "refold.db")
    for number in itertools.count():
        if not struck(store, f"r{number}", {**ACTS, **READS}[act], number * 7 + sum(map(ord, act)) % 7):
            break
    assert number > 2
