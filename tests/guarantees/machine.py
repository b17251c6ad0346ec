"""A state machine that drives a run in every way it can be driven, beside a twin that nothing ever disturbs.

After every step the two must agree in position, bytes, digest and in the events that the next commands would give.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.errors import Conflict, EngineError
from tests.guarantees.domain import BANK_DOMAIN, TASKS_DOMAIN, Domain, probe, submit_random

__all__ = ["BankMachine", "RestoreMachine", "TasksMachine"]

seeds = st.integers(0, 2**32 - 1)


class RestoreMachine(RuleBasedStateMachine):
    """Commands, batches, ids, conflicts, checkpoints, damage to checkpoints, and a handle that is dropped anywhere."""

    domain: ClassVar[Domain]
    steps: ClassVar[int] = 0
    """Steps of all examples so far, for whoever wants to know how far a sweep has come."""

    def __init__(self) -> None:
        super().__init__()
        self.folder: Path | None = None
        self.twin = self.domain.store("memory:").run("r")

    @initialize(in_file=st.booleans())
    def open(self, in_file: bool) -> None:
        """Begin with a new store, in memory or in a file."""
        if in_file:
            self.folder = Path(tempfile.mkdtemp())
        self.store = self.domain.store("memory:" if self.folder is None else self.folder / "refold.db")
        self.run = self.store.run("r")

    def teardown(self) -> None:
        if self.folder is not None:
            self.store.close()
            shutil.rmtree(self.folder)

    def both(self, seed: int, **envelope: Any) -> None:
        """Give the same command to the run and to its twin; the answers must be the same."""
        mine = submit_random(self.domain, Random(seed), self.run, **envelope)
        theirs = submit_random(self.domain, Random(seed), self.twin, **envelope)
        assert mine == theirs

    # -- commands -------------------------------------------------------------------------------------------------

    @rule(seed=seeds)
    def command(self, seed: int) -> None:
        """A command without an id."""
        self.both(seed)

    @rule(seed=seeds, number=st.integers(0, 5))
    def command_with_id(self, seed: int, number: int) -> None:
        """A command under one of a few ids: often the id was used before, with this content or another."""
        self.both(seed, command_id=f"id-{number}", actor="x", cause="why")

    @rule(seed=seeds, number=st.integers(0, 5))
    def repeat(self, seed: int, number: int) -> None:
        """The same command twice under one id, the second time to a handle that has just been restored."""
        command = self.twin.ask(lambda state: self.domain.command(Random(seed), state))

        def answer(run: Any) -> Any:
            try:
                return run.submit(command, command_id=f"twice-{number}").events
            except EngineError as error:
                return error.to_json()

        assert answer(self.run) == answer(self.twin)
        self.run = self.store.run("r")
        assert answer(self.run) == answer(self.twin)

    @rule(plan=st.lists(seeds, max_size=5), failing=st.booleans())
    def batch(self, plan: list[int], failing: bool) -> None:
        """Several commands in one commit; of a batch that fails nothing is left."""
        for run in (self.run, self.twin):
            try:
                with run.batch():
                    for number, seed in enumerate(plan):
                        submit_random(self.domain, Random(seed), run, command_id=f"b-{number}" if number % 2 else None)
                    if failing:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                assert failing

    @rule(seed=seeds, other=seeds, in_batch=st.booleans())
    def conflict(self, seed: int, other: int, in_batch: bool) -> None:
        """A second handle writes first; ours is told, has written nothing, and goes on after a refresh."""
        second = self.store.run("r")
        before, bytes_before = self.run.position, self.run.state_bytes()
        assert submit_random(self.domain, Random(other), second) == submit_random(self.domain, Random(other), self.twin)
        if second.position > before:
            command = self.run.ask(lambda state: self.domain.command(Random(seed), state))
            try:
                if in_batch:
                    with self.run.batch():
                        outcome = self.run.submit(command)
                else:
                    outcome = self.run.submit(command)
                assert outcome.count == 0
            except Conflict:
                pass
            except EngineError as error:
                assert error.code != "corrupt_journal"
            assert self.run.state_bytes() == bytes_before
        assert self.run.refresh() == self.twin.position
        self.both(seed)

    # -- restores -------------------------------------------------------------------------------------------------

    @rule(genesis=st.booleans())
    def drop(self, genesis: bool) -> None:
        """The handle is gone; a new one is restored."""
        self.run = self.store.run("r", start="genesis" if genesis else "best")

    @precondition(lambda self: self.folder is not None)
    @rule()
    def reopen(self) -> None:
        """The whole store is closed and opened again."""
        assert self.folder is not None
        self.store.close()
        self.store = self.domain.store(self.folder / "refold.db")
        self.run = self.store.run("r")

    @rule(full=st.booleans())
    def checkpoint(self, full: bool) -> None:
        """Take a checkpoint."""
        self.run.checkpoint(full=full)

    @rule(data=st.data())
    def restore_from_a_checkpoint(self, data: st.DataObject) -> None:
        """Restore from any one checkpoint that there is; all of them must serve unless they were damaged."""
        positions = self.store.checkpoints.positions("r")
        if positions:
            position = data.draw(st.sampled_from(list(positions)))
            try:
                self.run = self.store.run("r", start=position)
            except EngineError as error:
                assert error.code == "not_found"

    @rule(data=st.data(), deleting=st.booleans())
    def damage_a_checkpoint(self, data: st.DataObject, deleting: bool) -> None:
        """Flip a byte of a checkpoint, or delete it and all later ones."""
        positions = self.store.checkpoints.positions("r")
        if not positions:
            return
        position = data.draw(st.sampled_from(list(positions)))
        recorder = self.store.checkpoints._recorder
        if deleting:
            recorder.delete("r", gte=position)
            return
        found = recorder.read("r", position)
        assert found is not None
        damaged = bytearray(found[1])
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        recorder.put("r", position, found[0], bytes(damaged), (position,))

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        """The state as of any position is the one that the twin's events give there."""
        position = data.draw(st.integers(0, self.twin.position))
        assert self.run.at(position).state_bytes() == self.twin.at(position).state_bytes()

    @rule()
    def refresh(self) -> None:
        """There is nothing new, and a refresh finds nothing."""
        assert self.run.refresh() == self.twin.position

    @invariant()
    def the_same(self) -> None:
        """Run and twin are one in everything that can be seen."""
        if not hasattr(self, "run"):
            return
        type(self).steps += 1
        assert self.run.position == self.twin.position
        assert self.run.state_bytes() == self.twin.state_bytes()
        assert self.run.digest() == self.twin.digest()
        assert self.run.link() == self.twin.link() or self.run.position == 0
        seed = self.twin.position
        mine, theirs = (
            run.ask(lambda state: probe(self.domain, state, seed, count=3)) for run in (self.run, self.twin)
        )
        assert mine == theirs


class BankMachine(RestoreMachine):
    """The machine on the toy bank."""

    domain = BANK_DOMAIN


class TasksMachine(RestoreMachine):
    """The machine on the task table."""

    domain = TASKS_DOMAIN
