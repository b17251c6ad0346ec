"""The domains that the guarantees are held to: the toy bank and the real task table. A domain makes random commands,
most of them legal; it must never look at anything but the state it is given, so that a seed says it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from engine.core.decider import Model, ModelState, Moment
from engine.core.errors import EngineError
from engine.open_store import Store, open_store
from projections.model import MODEL
from projections.tasks import commands as tasks
from projections.tasks.transitions import TERMINATIONS, WAITS
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


def json_value(random: Random, depth: int = 0) -> Any:
    """Return a random JSON value, small, of every kind."""
    kind = random.randrange(9 if depth < 3 else 7)
    if kind == 7:
        return [json_value(random, depth + 1) for _ in range(random.randrange(3))]
    if kind == 8:
        return {f"k{random.randrange(20)}": json_value(random, depth + 1) for _ in range(random.randrange(3))}
    return (None, True, random.randrange(-(2**63), 2**64), random.uniform(-1e9, 1e9), "", "text ü", "long " * 40)[kind]


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


def tasks_command(random: Random, state: ModelState) -> Any:
    """Mostly a step that some live task can take, now and then anything at all."""
    table = state.parts["tasks"]
    live = sorted(table.live)
    if table.root is None:
        return tasks.OpenRoot.make(task_id=random.choice(["root", "t1"]), capability_ids=["read"])
    if not live or random.randrange(6) == 0:
        return _anything(random, table)
    task_id = random.choice(live)
    record = table.tasks.rows[task_id]
    attempt = None if record.parent is None else record.attempt
    if random.randrange(3) == 0:
        return _upkeep(random, task_id)
    if record.lifecycle == "pending_launch":
        make = random.choice([tasks.PublishLaunch, tasks.PublishLaunch, tasks.FailLaunch])
        return make.make(task_id=task_id, attempt=attempt)
    if record.lifecycle == "starting":
        return tasks.AcknowledgeLaunch.make(task_id=task_id, attempt=attempt)
    if record.lifecycle == "ready":
        return tasks.Start.make(task_id=task_id)
    if record.lifecycle == "suspended" and record.wait != "sub_agent_join":
        if record.wait == "approval":
            approved = random.random() < 0.5
            return tasks.ResolveApproval.make(task_id=task_id, approved=approved, payload=json_value(random))
        if record.wait != "timer" and random.randrange(3) == 0:
            return tasks.ExpireWait.make(task_id=task_id, payload=json_value(random))
        return tasks.Deliver.make(task_id=task_id, kind=record.wait, payload=json_value(random))
    return _running(random, table, task_id, attempt)


def _running(random: Random, table: Any, task_id: str, attempt: int | None) -> Any:
    roll = random.randrange(12)
    if roll < 5:
        return tasks.Spawn.make(
            task_id=f"t{len(table.tasks)}",
            parent=task_id,
            role=random.choice(["explore", "plan", "custom"]),
            isolation=random.choice(["shared", "worktree"]),
            context_inheritance=random.choice(["none", "full"]),
            capability_ids=random.sample(["read", "write", "ü"], random.randrange(3)),
        )
    if roll < 7:
        children = [child for child in table.children.get(task_id, ()) if child in table.live]
        if children:
            waiting_on = random.sample(sorted(children), random.randint(1, len(children)))
            return tasks.Suspend.make(task_id=task_id, wait="sub_agent_join", waiting_on=waiting_on)
        wait = random.choice([wait for wait in WAITS if wait != "sub_agent_join"])
        return tasks.Suspend.make(task_id=task_id, wait=wait, due_ms=random.choice([None, 5_000]))
    if roll < 8:
        return tasks.YieldTask.make(task_id=task_id)
    if roll < 9 and attempt is not None:
        return tasks.Relaunch.make(task_id=task_id, mode=random.choice(["restart", "retry"]))
    if roll < 11 and (attempt is not None or random.randrange(40) == 0):
        return tasks.Finish.make(
            task_id=task_id,
            termination=random.choice(TERMINATIONS),
            attempt=attempt,
            result=random.choice([None, {"final_message": None, "more": json_value(random)}]),
            on_children=random.choice([None, "cancel_children", "detach"]),
        )
    return tasks.Cancel.make(task_id=task_id) if attempt is not None else _upkeep(random, task_id)


def _upkeep(random: Random, task_id: str) -> Any:
    roll = random.randrange(3)
    if roll == 0:
        return tasks.ReportUsage.make(task_id=task_id, tokens=random.choice([0, 7, 2**63]), turns=random.randrange(3))
    names = random.sample(["read", "write", "net", "ü"], random.randrange(3))
    make = tasks.GrantCapabilities if roll == 1 else tasks.RevokeCapabilities
    return make.make(task_id=task_id, capability_ids=names)


def _anything(random: Random, table: Any) -> Any:
    """Return a command that is refused more often than not: unknown and done tasks, dead attempts, impossible steps."""
    task_id = random.choice(["nobody", *sorted(table.tasks.rows)])
    if task_id == table.root and random.randrange(20):  # a run without its root is soon a dull one
        task_id = "nobody"
    other = random.choice(["nobody", *sorted(table.tasks.rows)])
    kinds: list[Callable[[], Any]] = [
        lambda: tasks.OpenRoot.make(task_id=task_id),
        lambda: tasks.Spawn.make(task_id=task_id, parent=other),
        lambda: tasks.PublishLaunch.make(task_id=task_id, attempt=random.randrange(4)),
        lambda: tasks.AcknowledgeLaunch.make(task_id=task_id, attempt=random.randrange(4)),
        lambda: tasks.FailLaunch.make(task_id=task_id, reason="no room"),
        lambda: tasks.Start.make(task_id=task_id),
        lambda: tasks.Suspend.make(task_id=task_id, wait="sub_agent_join", waiting_on=[other]),
        lambda: tasks.ExtendJoin.make(task_id=task_id, waiting_on=[other]),
        lambda: tasks.Resume.make(task_id=task_id),
        lambda: tasks.Finish.make(task_id=task_id, attempt=random.randrange(4)),
        lambda: tasks.Cancel.make(task_id=task_id),
        lambda: tasks.Relaunch.make(task_id=task_id, mode="retry"),
    ]
    return random.choice(kinds)()


BANK_DOMAIN = Domain("bank", BANK, bank_command)
TASKS_DOMAIN = Domain("tasks", MODEL, tasks_command)
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
