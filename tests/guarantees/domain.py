"""The domains that the guarantees are held to: the toy bank and the real task table. A domain makes random commands,
most of them legal; it must never look at anything but the state it is given, so that a seed says it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.core.decider import Moment
from engine.core.errors import EngineError
from engine.core.model import Model
from engine.core.state import ModelState
from engine.open_store import Store, open_store
from engine.testing.proposals.tasks import task_command
from engine.testing.proposals.values import json_value
from projections.model import MODEL
from tests.engine.kit import NEVER
from tests.toy import BANK, Close, Open, Pay, Write

__all__ = ["BANK_DOMAIN", "DOMAINS", "TASKS_DOMAIN", "Domain", "play", "probe", "submit_random"]


@dataclass(frozen=True)
class Domain:
    """A model, and how to act on it: ``command(random, state)`` gives the next command."""

    name: str
    model: Model
    command: Callable[[Random, ModelState], Any]

    def store(self, url: Any, *, policy: Any = NEVER, **options: Any) -> Store:
        """Open a store of this domain, in which time stands still."""
        return open_store(url, model=self.model, checkpoints=policy, clock=lambda: 1_000, **options)

    def __repr__(self) -> str:
        return self.name


def bank_command(random: Random, state: ModelState) -> Any:
    """Open, pay, write and close, among them what is refused, and what changes nothing."""
    account = f"a{random.randrange(6)}"
    roll = random.randrange(10)
    if roll < 3:
        return Open(account=account, note=json_value(random) if random.randrange(3) else None)
    if roll < 6:
        return Pay(account=account, amount=random.choice([0, 1, 5, 13, 2**40]), note=json_value(random))
    if roll < 9:
        return Write(account=account, letter=json_value(random))
    return Close(account=account)


BANK_DOMAIN = Domain("bank", BANK, bank_command)
TASKS_DOMAIN = Domain("tasks", MODEL, task_command)
DOMAINS: Sequence[Domain] = (BANK_DOMAIN, TASKS_DOMAIN)


def submit_random(domain: Domain, random: Random, run: Any, **envelope: Any) -> str:
    """Give a run one random command; return what came of it, the same for the same state and seed."""
    command = run.ask(lambda state: domain.command(random, state))
    try:
        outcome = run.submit(command, **envelope)
    except EngineError as error:
        if error.code in ("conflict", "corrupt_journal", "backend_unavailable"):
            raise
        return f"{command.name}: {error.code} {error.message}"
    return f"{command.name}: {[event.to_json() for event in outcome.events]}"


def play(domain: Domain, random: Random, run: Any, steps: int) -> list[str]:
    """Give a run so many random commands, some in batches, some under ids; return what came of each."""
    log = []
    while steps > 0:
        steps -= 1
        roll = random.randrange(8)
        if roll == 0:
            with run.batch():
                for _ in range(random.randint(1, 5)):
                    log.append(submit_random(domain, random, run))
        elif roll == 1:
            log.append(submit_random(domain, random, run, command_id=f"id-{random.randrange(1000)}", actor="x"))
        else:
            log.append(submit_random(domain, random, run))
    return log


def probe(domain: Domain, state: ModelState, seed: int, count: int = 8) -> list[str]:
    """Return what the next commands would give, decided on the state itself and taken back."""
    answers = []
    for number in range(count):
        command = domain.command(Random(seed * 1_000 + number), state)
        at = state.begin()
        try:
            wires = domain.model.decide(state, command, Moment("r", at + 1, 2_000))
            answers.append(f"{command.name}: {wires}")
        except EngineError as error:
            answers.append(f"{command.name}: {error.code} {error.message}")
        finally:
            state.put_back(at)
    return answers
