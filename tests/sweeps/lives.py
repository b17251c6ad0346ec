"""Runs lived again: a life is a row of commands with the answers and the digests that an undisturbed twin gave; it is
given to a real store again and again, each time disturbed in other ways. It must never ask the disturbed run what is
right.

The twin and the choice of commands cost more than the run itself. Paid once a life, they make a compared step cheap
enough for millions. Each answer is compared with the twin's, event by event, and so is the digest after every command;
since the next command is always one of the twin's, it is compared with what the twin would do next as well.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from engine.core.errors import BackendUnavailable, Conflict
from engine.core.model import Model
from engine.runs import LiveRun
from engine.store import Backend, connect
from engine.testing.crashable import CrashableStore, SimulatedCrash
from engine.testing.twin import Answer, Asked, Twin, answer_of

__all__ = ["Differs", "Life", "Propose", "live", "live_again"]

Propose = Callable[[random.Random, Any], Any]
RUN: Final = "run"


class Differs(AssertionError):
    """The disturbed run is not what its twin was."""


@dataclass(frozen=True, slots=True)
class Life:
    """Commands, and what came of them: ``positions[i]`` and ``digests[i]`` are the run's before the ``i``-th."""

    model: Model
    asked: tuple[Asked, ...]
    answers: tuple[Answer, ...]
    positions: tuple[int, ...]
    digests: tuple[str, ...]


def live(model: Model, propose: Propose, dice: random.Random, length: int) -> Life:
    """Return a life of so many commands, lived by the twin alone."""
    twin = Twin(model, RUN)
    asked: list[Asked] = []
    answers: list[Answer] = []
    positions, digests = [0], [twin.state.digest()]
    for number in range(length):
        command_id = f"id-{number}" if dice.random() < 0.4 else None
        actor = dice.choice((None, "one", "two"))
        one = Asked(propose(dice, twin.state), False, 1_000 + number, actor, command_id)
        asked.append(one)
        answers.append(twin.ask(one))
        positions.append(twin.position)
        digests.append(twin.state.digest())
    return Life(model, tuple(asked), tuple(answers), tuple(positions), tuple(digests))


def live_again(life: Life, path: Path | None, dice: random.Random, seen: Counter[str]) -> int:
    """Live a life again, disturbed as the dice fall, in a file or in memory; return how many steps were compared.
    Raises Differs."""
    again = _Again(life, path, dice, seen)
    try:
        again.to_the_end()
    finally:
        again.close()
    return again.steps


class _Again:
    """A run on its way through a life; ``at`` commands of it are done."""

    def __init__(self, life: Life, path: Path | None, dice: random.Random, seen: Counter[str]) -> None:
        self._life, self._dice, self._seen = life, dice, seen
        shared = connect("memory:") if path is None else None
        self._disk = CrashableStore(partial(_opened, shared, path), model=life.model, clock=lambda: 5)
        self._run: LiveRun = self._disk.store.run(RUN)
        self._damaged = False
        self.at = self.steps = 0
        every: list[tuple[Callable[[], None], int]] = [
            (self._give, 12), (self._batch, 4), (self._crash, 4), (self._fail, 2), (self._restart, 3),
            (self._checkpoint, 3), (self._crash_in_checkpoint, 1), (self._damage_checkpoint, 1), (self._repeat, 2),
            (self._second_writer, 2), (self._look_back, 2), (self._fork, 1),
        ]  # fmt: skip
        self._acts = [act for act, _ in every]
        self._weights = [weight * dice.random() for _, weight in every]  # every life has a bent of its own

    def to_the_end(self) -> None:
        """Do one thing after another until all commands are given."""
        while self.at < len(self._life.asked):
            (act,) = self._dice.choices(self._acts, self._weights)
            self._seen[act.__name__.strip("_").replace("_", " ")] += 1
            act()
            self._same(self._run.digest(), f"after {act.__name__}")
            self.steps += 1
        self._restart()
        verdict = self._disk.store.verify(RUN)
        faults = [fault for fault in verdict.faults if not (self._damaged and fault.code == "bad_checkpoint")]
        if faults:
            raise Differs(f"at the end verification finds {faults[0]}")

    def close(self) -> None:
        self._disk.close()

    # -- comparing --------------------------------------------------------------------------------------------------

    def _same(self, digest: str, when: str) -> None:
        if digest != self._life.digests[self.at]:
            raise Differs(f"{when}, with {self.at} commands done, the run is not its twin")

    def _answered(self, number: int, mine: Answer) -> None:
        theirs = self._life.answers[number]
        if mine.events != theirs.events or mine.refused != theirs.refused:
            raise Differs(f"command {number}, {self._life.asked[number]}: {mine}, its twin: {theirs}")

    def _submit(self, number: int, run: LiveRun | None = None) -> Answer:
        asked = self._life.asked[number]
        run = run or self._run
        return answer_of(
            lambda: run.submit(asked.what, command_id=asked.command_id, actor=asked.actor, at_ms=asked.at_ms)
        )

    def _writes(self, number: int) -> bool:
        return self._life.positions[number + 1] != self._life.positions[number]

    # -- what may happen --------------------------------------------------------------------------------------------

    def _give(self) -> None:
        self._answered(self.at, self._submit(self.at))
        self.at += 1

    def _batch(self) -> None:
        last = min(self.at + self._dice.randint(2, 8), len(self._life.asked))
        crash = self._dice.choice((None, None, "append.before", "append.after"))
        if crash is not None:
            self._disk.arm(crash)
        try:
            with self._run.batch():
                for number in range(self.at, last):
                    self._answered(number, self._submit(number))
                    self.steps += 1
        except SimulatedCrash:
            if crash == "append.before":
                last = self.at
            self._reopen("best")
        self._disk.disarm()
        self.at = last

    def _crash(self) -> None:
        point = self._dice.choice(("append.before", "append.after"))
        self._disk.arm(point)
        try:
            self._answered(self.at, self._submit(self.at))
        except SimulatedCrash:
            self._reopen("best")
            self._given_again(point == "append.after")
            return
        if self._writes(self.at):
            raise Differs(f"command {self.at} was acknowledged without a write")
        self._disk.disarm()
        self.at += 1

    def _fail(self) -> None:
        point = self._dice.choice(("append.before", "append.after"))
        self._disk.backend.arm(point, fail=True)
        try:
            self._answered(self.at, self._submit(self.at))
        except BackendUnavailable:
            self._given_again(point == "append.after")
            return
        self._disk.disarm()
        self.at += 1

    def _given_again(self, written: bool) -> None:
        """A command whose outcome the caller did not learn: under an id it is given again, for the first outcome."""
        if self._life.asked[self.at].command_id is not None:
            mine = self._submit(self.at)
            if mine.repeated != written:
                raise Differs(f"command {self.at}, written: {written}, given again: repeated {mine.repeated}")
            self._answered(self.at, mine)
            self.at += 1
        elif written:
            self.at += 1

    def _restart(self) -> None:
        taken = self._disk.beside().checkpoints.positions(RUN)
        route: Any = self._dice.choice(("best", "genesis"))
        if taken and not self._damaged and self._dice.random() < 0.5:
            route = self._dice.choice(list(taken))
        self._reopen(route)

    def _reopen(self, route: Any) -> None:
        self._disk.reopen()
        self._run = self._disk.store.run(RUN, start=route)

    def _checkpoint(self) -> None:
        self._run.checkpoint(full=self._dice.random() < 0.3)

    def _crash_in_checkpoint(self) -> None:
        point = self._dice.choice(("checkpoint.before", "checkpoint.torn", "checkpoint.after"))
        self._disk.arm(point)
        try:
            self._run.checkpoint(full=self._dice.random() < 0.3)
        except SimulatedCrash:
            self._damaged = self._damaged or point == "checkpoint.torn"
            self._reopen("best")
        self._disk.disarm()

    def _damage_checkpoint(self) -> None:
        recorder = self._disk.backend.inner.checkpoints
        taken = list(recorder.positions(RUN))
        if not taken:
            return
        self._damaged = True
        position = self._dice.choice(taken)
        found = recorder.read(RUN, position)
        assert found is not None
        topic, stored = found
        bit = self._dice.randrange(8 * max(1, len(stored)))
        flipped = bytearray(stored)
        if flipped:
            flipped[bit // 8] ^= 1 << bit % 8
        damaged = self._dice.choice((bytes(flipped), stored[: len(stored) // 2], b""))
        recorder.put(RUN, position, topic, damaged, (position,))

    def _repeat(self) -> None:
        """A command that was accepted under an id long ago, or just now, comes again."""
        named = [number for number in range(self.at) if self._known(number)]
        if named:
            number = self._dice.choice(named)
            mine = self._submit(number)
            if not mine.repeated or mine.events != self._life.answers[number].events:
                raise Differs(f"command {number} again under its id: {mine}")

    def _known(self, number: int) -> bool:
        return self._life.asked[number].command_id is not None and self._life.answers[number].refused is None

    def _second_writer(self) -> None:
        """Another process gives the next command; ours, which has not seen it, must not win that position."""
        if self.at + 2 > len(self._life.asked) or not self._writes(self.at):
            return
        self._answered(self.at, self._submit(self.at, self._disk.beside().run(RUN)))
        self.at += 1
        try:
            stale = answer_of(lambda: self._run.submit(self._life.asked[self.at].what))
        except Conflict:
            pass
        else:
            if stale.events:
                raise Differs(f"a writer that was behind has written: {stale}")
        self._run.refresh()

    def _look_back(self) -> None:
        """The run as of an earlier command, restored from anywhere, and from a handle that may be behind."""
        number = self._dice.randint(0, self.at)
        position = self._life.positions[number]
        if not self._life.positions[self.at]:
            return
        view = self._disk.beside().view(RUN, at=position, start=self._dice.choice(("best", "genesis")))
        if view.digest() != self._life.digests[number]:
            raise Differs(f"the run as of {position} is not what its twin was there (from {view.report.used})")

    def _fork(self) -> None:
        position = self._life.positions[self._dice.randint(0, self.at)]
        if not position:
            return
        name = f"fork-{self.steps}"
        fork = self._disk.store.fork(RUN, name, at=position)
        number = self._life.positions.index(position)
        if fork.digest() != self._life.digests[number]:
            raise Differs(f"a fork at {position} is not what its origin was there")


def _opened(shared: Backend | None, path: Path | None) -> Backend:
    if shared is not None:
        return shared
    assert path is not None
    return connect(path)
