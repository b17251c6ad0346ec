"""A process of the fencing sweep: it gives commands to runs that others write too, reads them, and takes checkpoints.
It must never remember anything that is not in its file: it may be killed between any two steps, and the process after
it goes on from there.

Each call is written down before it is made and each answer after it came, a line of JSON each. What is asked for in
step N of process P is made up from these numbers, so that a command can be given again by whoever comes next.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from engine.checkpoint import CheckpointPolicy
from engine.core.errors import BackendUnavailable, CommandMismatch, Conflict, EngineError, NotFound
from engine.core.handle import Outcome
from engine.core.model import Model
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from engine.testing import AppendCall, ReadCall
from projections.graph import TaskNode
from projections.model import MODEL
from tests.sweeps.harness import seed_of
from tests.toy import BANK, Close, Open, Pay, Write

__all__ = ["OtherCall", "Plan", "Told", "Work", "told_in"]

T = TypeVar("T")

Give = Callable[..., Outcome]
"""``give(run, command_id=..., actor=...)``: one command, the same whenever it is given."""

VERIFIED_MAX: Final = 120
"""Longer runs are not verified in between: that takes longer than a process lives."""
_NEVER: Final = ("command_mismatch", "corrupt_journal", "not_a_store", "schema_error")
"""Codes of errors that nothing here may bring about."""


@dataclass(frozen=True)
class Plan:
    """What all processes of a chunk share."""

    chunk: int
    path: Path
    model: Model
    runs: tuple[str, ...]
    steps: int
    patient: bool
    """Whether no process is ever stopped for as long as others wait for a lock."""

    def open(self) -> Store:
        """Open the store."""
        policy = CheckpointPolicy(every_events=(None, 20, 7)[self.chunk % 3])
        return open_store(self.path, model=self.model, clock=lambda: 5, checkpoints=policy)

    def notes_of(self, process: str) -> Path:
        """Return the file of a process."""
        return self.path.with_name(f"{process}.jsonl")


# -- commands ---------------------------------------------------------------------------------------------------------


def _bank(dice: random.Random) -> Give:
    account, roll, number = f"a{dice.randrange(5)}", dice.random(), dice.randrange(20, 10**6)
    command: Any = Pay(account=account, amount=number)
    if roll < 0.2:
        command = Open(account=account, note={"n": number})
    elif roll < 0.22:
        command = Close(account=account)
    elif roll < 0.6:
        command = Write(account=account, letter="".join(dice.choices("abc", k=dice.choice((5, 300, 4000)))))
    return lambda run, **envelope: run.submit(command, **envelope)


def _model(dice: random.Random) -> Give:
    """Return a command to any of the four projections; which are refused depends on what came before."""
    number, few = dice.randrange(10**6), dice.randrange(6)
    task, chat, graph, worker = f"t{dice.randrange(40)}", f"c{few}", f"g{few}", dice.randrange(4)
    nodes = [TaskNode.new(0, "find", "find it"), TaskNode.new(1, "book", "book it", depends_on=[0])]
    text = "word " * dice.choice((1, 20, 400))
    return dice.choice(
        (
            lambda run, **how: run.tasks.spawn(task, parent="root", role="explore", **how),
            lambda run, **how: run.tasks.publish_launch(task, **how),
            lambda run, **how: run.tasks.acknowledge_launch(task, attempt=1, **how),
            lambda run, **how: run.tasks.finish(task, attempt=1, result={"final_message": text}, **how),
            lambda run, **how: run.tasks.report_usage("root", tokens=number, **how),
            lambda run, **how: run.contexts.create(chat, model_window=number, **how),
            lambda run, **how: run.contexts.append(chat, {"role": "user", "text": text, "ts": number}, **how),
            lambda run, **how: run.contexts.append(chat, {"role": "user", "text": text, "ts": number}, **how),
            lambda run, **how: run.contexts.create_plan(chat, "a plan", ["one", "two"], **how),
            lambda run, **how: run.contexts.update_plan(chat, item=1, bind={"task": task}, **how),
            lambda run, **how: run.graphs.create(graph, f"goal {number}", nodes, **how),
            lambda run, **how: run.graphs.start(graph, **how),
            lambda run, **how: run.graphs.dispatch(graph, 0, task=task, **how),
            lambda run, **how: run.swarm.complete_action(worker, "look", success=number % 2 == 0, **how),
            lambda run, **how: run.swarm.advance_tick(**how),
            lambda run, **how: run.swarm.set_metadata(f"k{few}", number, **how),
        )
    )


def _first(model: Model) -> list[Give]:
    """Return the commands that begin a run."""
    if model is BANK:
        accounts = [Open(account=f"a{number}") for number in range(5)]
        return [lambda run, one=one, **how: run.submit(one, **how) for one in accounts]
    return [
        lambda run, **how: run.tasks.open_root("root", **how),
        lambda run, **how: run.tasks.start("root", **how),
        lambda run, **how: run.swarm.start(worker_count=4, max_ticks=0, **how),
    ]


# -- a process --------------------------------------------------------------------------------------------------------


class Work:
    """The steps of one process, from the first that its file does not call done."""

    def __init__(self, plan: Plan, process: str, died: int | None = None) -> None:
        self._plan = plan
        self._process = process
        self._commands = _model if plan.model is MODEL else _bank
        self._dice = seed_of("fencing", plan.chunk, process, died)  # for what need not be the same again
        path = plan.notes_of(process)
        self._before = list(_lines(path)) if path.exists() else []
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if died is not None:
            os.write(self._file, b"\n")  # the last line may be half a one
            self._note("died", died)
        self._done = sum(1 for line in self._before if line[0] == "done")
        self._others: list[Store] = []
        self._runs: dict[str, LiveRun] = {}
        self._store = self._opened()

    def begin(self) -> None:
        """Begin every run; done once, before all others."""
        for run in self._plan.runs:
            for number, give in enumerate(_first(self._plan.model)):
                self._append(run, [(f"first-{number}", give, True)])

    def all_steps(self) -> None:
        """Do what is left to do."""
        for step in range(self._done, self._plan.steps):
            self._waiting(lambda step=step: self._step(step))  # type: ignore[misc]
            self._note("done", step)

    def _opened(self) -> Store:
        return self._waiting(self._plan.open)

    def _waiting(self, act: Callable[[], T]) -> T:
        """Do something until nobody is stopped who keeps it from being done."""
        while True:
            try:
                return act()
            except BackendUnavailable as error:
                if self._plan.patient or "locked by another process" not in error.message:
                    raise
                self._note("waited", str(error))
                self._runs.clear()

    def _note(self, *what: Any) -> None:
        os.write(self._file, json.dumps(what).encode() + b"\n")

    def _handle(self, run: str) -> LiveRun:
        if run not in self._runs:
            self._runs[run] = self._run_of(self._store, run)
        return self._runs[run]

    def _run_of(self, store: Store, run: str) -> LiveRun:
        return store.run(run, actor=self._process)

    def _step(self, step: int) -> None:
        dice = seed_of("fencing", self._plan.chunk, self._process, step)
        run = dice.choice(self._plan.runs)
        self._use(run, f"{self._process}-{step}", step, dice)

    def _use(self, run: str, name: str, step: int, dice: random.Random) -> None:
        """Take the usual kind of step with a run; the ids of its commands begin with ``name``."""
        roll = dice.random()
        if roll < 0.2:
            self._read(run, dice)
        elif roll < 0.25:
            self._handle(run).checkpoint(full=dice.random() < 0.3)
        elif roll < 0.3:
            self._misuse(run, name, dice)
        elif roll < 0.4 and step:
            self._step(dice.randrange(step))  # something that was asked for before, once more
        elif roll < 0.5:
            shared = f"shared-{dice.randrange(40)}"
            self._append(run, [(shared, self._commands(seed_of("fencing", self._plan.chunk, shared)), True)])
        elif roll < 0.6:
            once = f"{name}-{time.monotonic_ns()}"  # without an id it must not be given again
            self._append(run, [(once, self._commands(dice), False)])
        else:
            count = dice.choice((2, 3, 8)) if roll < 0.7 else 1
            self._append(run, [(f"{name}-{part}", self._commands(dice), True) for part in range(count)])

    # -- appending ----------------------------------------------------------------------------------------------------

    def _append(self, run_id: str, parts: Sequence[tuple[str, Give, bool]]) -> None:
        """Give the commands of one commit until there is an answer; once, when one of them has no id."""
        names = [name for name, _, _ in parts]
        while True:
            run = self._handle(run_id)
            after = run.position
            self._note("append", run_id, names, after, time.monotonic_ns())
            try:
                outcomes = _given(run, parts)
            except Conflict:
                self._note("told", time.monotonic_ns(), "conflict")
                self._catch_up(run_id)
                continue
            except BackendUnavailable as error:
                self._note("told", time.monotonic_ns(), "unknown")
                if parts[0][2]:  # it has an id, and may be given again
                    raise
                assert not self._plan.patient, str(error)
                del self._runs[run_id]  # it would look at the journal first, and so not decide where it says it is
                return
            except EngineError as error:
                if error.code in _NEVER:
                    raise
                self._note("told", time.monotonic_ns(), "refused")
                return
            ended = time.monotonic_ns()
            if run.checkpoint_error is not None and self._plan.patient:
                raise run.checkpoint_error
            repeated = {outcome.repeated for outcome in outcomes}
            assert len(repeated) == 1, f"of the commands {names} some were repeated and some were not"
            if not outcomes[0].count:  # nothing to be done, and no id to note it under
                self._note("told", ended, "refused")
                return
            first = outcomes[0].position - outcomes[0].count + 1
            self._note("told", ended, "repeated" if repeated == {True} else "written", first, outcomes[-1].position)
            return

    def _catch_up(self, run_id: str) -> None:
        """Go on after a conflict: with what others wrote, or with a handle of its own."""
        if self._dice.random() < 0.2:
            del self._runs[run_id]
        else:
            run = self._handle(run_id)
            self._seen(run_id, lambda: (run.refresh(), run.digest()))

    def _misuse(self, run_id: str, name: str, dice: random.Random) -> None:
        """Give a command that nothing forbids, then another one under its id: that must be refused."""
        amount = 10**7 + dice.randrange(10**6)
        one: Give = lambda run, **how: run.tasks.report_usage("root", tokens=amount, **how)  # noqa: E731
        if self._plan.model is BANK:
            one = lambda run, **how: run.submit(Open(account="a0", note=amount), **how)  # noqa: E731
        self._append(run_id, [(name, one, True)])
        try:
            self._commands(dice)(self._handle(run_id), command_id=name)
        except CommandMismatch:
            return
        raise AssertionError(f"the id {name} of {run_id} took another command")

    # -- reading ------------------------------------------------------------------------------------------------------

    def _seen(self, run_id: str, look: Callable[[], tuple[int, str | None]]) -> None:
        self._note("read", run_id, time.monotonic_ns())
        position, digest = look()
        self._note("saw", time.monotonic_ns(), position, digest)

    def _read(self, run_id: str, dice: random.Random) -> None:
        store, roll = self._store, dice.random()
        if roll < 0.25:
            run = self._handle(run_id)
            self._seen(run_id, lambda: (run.refresh(), run.digest()))
        elif roll < 0.5:
            start: Any = dice.choice(("best", "genesis"))

            def look() -> tuple[int, str | None]:
                view = store.view(run_id, start=start)
                return view.position, view.digest()

            self._seen(run_id, look)
        elif roll < 0.7:  # opened once more in this process, and kept open for a while
            self._others.append(self._opened())
            other = self._run_of(self._others[-1], run_id)
            self._seen(run_id, lambda: (other.refresh(), other.digest()))
            if len(self._others) > 2:
                self._others.pop(0).close()
        elif roll < 0.8:
            self._seen(run_id, lambda: (next(store.history(run_id, newest_first=True, limit=1)).seq, None))
        elif roll < 0.9:
            self._seen(run_id, lambda: (_listed(store, run_id), None))
        elif self._handle(run_id).position < VERIFIED_MAX:
            verdict = store.verify(run_id)
            assert verdict.ok, f"{run_id} does not verify while others write: {verdict.faults[0]}"


def _listed(store: Store, run_id: str) -> int:
    """Return the position at which a run is listed; nothing of the list may be damaged, whatever is deleted meanwhile.
    Raises NotFound."""
    runs = {each.run: each for each in store.runs()}
    for each in runs.values():
        assert each.damage is None, f"{each.run} is listed as damaged: {each.damage}"
    if run_id not in runs:
        raise NotFound(f"{run_id!r} is not listed")
    return runs[run_id].position


def _given(run: LiveRun, parts: Sequence[tuple[str, Give, bool]]) -> list[Outcome]:
    if len(parts) == 1:
        ((name, give, named),) = parts
        return [give(run, command_id=name) if named else give(run, actor=name)]
    with run.batch():
        return [give(run, command_id=name) for name, give, _ in parts]


# -- what was written down --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OtherCall:
    """One attempt to fork or to delete a run, or one thing (``gone``) that could not be done because a run was not
    there. ``how`` is what else is known of it."""

    kind: str
    invoked: int
    ended: int
    answer: str
    how: tuple[Any, ...] = ()
    process: str = ""

    def __str__(self) -> str:
        return f"{self.process}'s {self.kind} ({self.invoked}..{self.ended}, {self.answer})"


@dataclass
class Told:
    """What the processes of a chunk wrote down: their operations on each run, what else they did to it, and how often
    they gave up waiting."""

    operations: dict[str, list[AppendCall | ReadCall]] = field(default_factory=dict)
    others: dict[str, list[OtherCall]] = field(default_factory=dict)
    waited: int = 0


def _lines(path: Path) -> Iterator[list[Any]]:
    for line in path.read_bytes().split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:  # cut off by a kill: what it says was not done, or came to nothing
            continue


def told_in(path: Path, told: Told) -> None:
    """Add what one process wrote down."""
    process, call = path.stem, None
    for line in [*_lines(path), ["died", None]]:
        if line[0] in ("append", "read", "fork", "delete"):
            call = line
        elif line[0] == "waited":
            told.waited += 1
        elif line[0] in ("told", "saw", "died", "gone"):
            if call is not None and call[0] in ("fork", "delete"):
                other = OtherCall(call[0], call[2], *_ended(line), tuple(call[3:]), process)
                told.others.setdefault(call[1], []).append(other)
            elif call is not None and (operation := _operation(call, line, process)) is not None:
                told.operations.setdefault(call[1], []).append(operation)
            if line[0] == "gone":
                gone = OtherCall("gone", line[1], line[1], line[3], (), process)
                told.others.setdefault(line[2], []).append(gone)
            call = None


def _ended(answer: list[Any]) -> tuple[int, str]:
    return (answer[1], answer[2]) if answer[0] == "told" else (answer[1], "unknown")


def _operation(call: list[Any], answer: list[Any], process: str) -> AppendCall | ReadCall | None:
    if call[0] == "read":
        return ReadCall(call[2], answer[1], answer[2], answer[3], process) if answer[0] == "saw" else None
    _, _, names, after, invoked = call
    if answer[0] in ("died", "gone"):
        return AppendCall(tuple(names), invoked, answer[1], "unknown", after=after, process=process)
    return AppendCall(tuple(names), invoked, answer[1], answer[2], *answer[3:], after=after, process=process)
