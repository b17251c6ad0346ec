"""G5: A command repeated under its id adds nothing and returns the first outcome; the same id with other content is
refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from engine.checkpoint import CheckpointPolicy
from engine.core.errors import CommandMismatch, Conflict, EngineError
from tests.engine.kit import toy_store
from tests.guarantees.crash import Acknowledge, Writer
from tests.guarantees.domain import DOMAINS, Domain
from tests.toy import Open, Pay


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("spacing", [None, 3])
def test_repeating_any_command_at_any_later_time_adds_nothing(
    domain: Domain, spacing: int | None, tmp_path: Path
) -> None:
    """G5: the first outcome comes back from this handle and a restored one, however much has happened since."""
    random = Random(11)
    given: dict[str, tuple[object, object]] = {}
    with domain.store(tmp_path / "refold.db", policy=CheckpointPolicy(every_events=spacing)) as store:
        run = store.run("r")
        for number in range(60):
            command = run.ask(lambda state: domain.command(random, state))
            identity = f"id-{number}"
            try:
                outcome = run.submit(command, command_id=identity)
            except EngineError:
                continue  # refused: the id is still free
            assert outcome.count >= 1
            given[identity] = command, outcome.events
        before = run.state_bytes()
        assert len(given) > 20
        for handle in (run, store.run("r"), store.run("r", start="genesis")):
            for identity, (command, events) in given.items():
                again = handle.submit(command, command_id=identity, actor="another", at_ms=77, cause=1)  # type: ignore[arg-type]
                assert (again.events, again.repeated) == (events, True)
                other = next(one for one, _ in given.values() if one.content() != command.content())  # type: ignore[attr-defined]
                with pytest.raises(CommandMismatch, match=identity):
                    handle.submit(other, command_id=identity)  # type: ignore[arg-type]
            assert handle.state_bytes() == before


def test_a_refused_command_leaves_its_id_free(tmp_path: Path) -> None:
    """G5: an id is taken by what was recorded, not by what was refused: corrected, the command may use it."""
    with toy_store(tmp_path / "refold.db") as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        with pytest.raises(EngineError, match="13 is refused"):
            run.submit(Pay(account="a", amount=13), command_id="pay")
        assert run.submit(Pay(account="a", amount=14), command_id="pay").repeated is False


def test_processes_that_repeat_one_anothers_commands_do_each_once(tmp_path: Path) -> None:
    """G5: four processes give the same forty commands under the same ids; each is recorded once, none is refused."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        store.run("r").submit(Open(account="a"))

    def work(seed: int) -> Writer:
        def write(acknowledge: Acknowledge) -> None:
            run = toy_store(path).run("r")
            numbers = list(range(40))
            Random(seed).shuffle(numbers)
            for number in numbers:
                while True:
                    try:
                        outcome = run.submit(Pay(account="a", amount=100 + number), command_id=f"pay-{number}")
                        acknowledge(outcome.position, 0 if outcome.repeated else 1)
                        break
                    except Conflict:
                        run.refresh()

        return Writer(write)

    told = [writer.wait() for writer in [work(seed) for seed in range(4)]]
    assert all(len(one) == 40 for one in told)
    assert sorted(position for one in told for position, new in one if new) == list(range(2, 42))
    assert len({frozenset(position for position, _ in one) for one in told}) == 1
    with toy_store(path) as store:
        assert store.run("r").position == 41
        assert store.run("r").ask(lambda state: state.parts["bank"].total) == sum(range(100, 140))


def test_a_client_that_never_knows_whether_it_was_heard_repeats_itself(tmp_path: Path) -> None:
    """G5: a writer killed anywhere and started again with the same list of commands does each exactly once."""
    path = tmp_path / "refold.db"
    random = Random(3)

    def write(acknowledge: Acknowledge) -> None:
        run = toy_store(path).run("r")
        run.submit(Open(account="a"), command_id="open")
        for number in range(300):
            acknowledge(run.submit(Pay(account="a", amount=100 + number), command_id=f"pay-{number}").position, 1)

    for _ in range(6):
        Writer(write).kill_after(random.uniform(0, 0.06))
    told = Writer(write).wait()
    assert [position for position, _ in told] == list(range(2, 302))
    with toy_store(path) as store:
        assert store.run("r").position == 301
        assert [event.data["amount"] for event in store.history("r", after=1)] == list(range(100, 400))
