"""The restore machine: random commands to a run that crashes, restores, forks and is written to by others, compared
after every step with a twin that nothing happens to. It must never know what a projection means.

::

    class TestCounter(restore_machine(COUNTER).TestCase):
        settings = settings(max_examples=200)

What it does to the run are its rules; a subclass may add rules and invariants of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from engine.core.errors import BackendUnavailable, Conflict, NotFound
from engine.testing.bench import Bench, Process
from engine.testing.checks import check_answers, check_state
from engine.testing.crashable import SimulatedCrash
from engine.testing.failure import ReplayDiffers
from engine.testing.machine_base import Base, kept
from engine.testing.twin import Asked, answer_of, would

__all__ = ["RestoreMachine", "restore_machine"]

_ACTORS: Final = st.sampled_from((None, "one", "two"))
_WRITES: Final = st.sampled_from(("append.before", "append.after"))
_BATCH_ENDS: Final = st.sampled_from((None, None, "error", "append.before", "append.after"))
_CHECKPOINTS: Final = st.sampled_from(("checkpoint.before", "checkpoint.torn", "checkpoint.after"))
_FORKS: Final = st.sampled_from((None, None, "fork.before", "fork.after"))
_DAMAGE: Final = st.sampled_from(("flip", "cut", "empty", "delete"))
_ROUTES: Final = st.sampled_from(("best", "genesis", "checkpoint"))

_command: Any = st.runner().flatmap(lambda machine: machine.command_strategy())
_commands: Any = st.runner().flatmap(lambda machine: st.lists(machine.command_strategy(), min_size=1, max_size=6))
_first: Any = st.runner().flatmap(lambda machine: st.lists(machine.command_strategy(), max_size=4))
_probes: Any = st.runner().flatmap(lambda machine: st.lists(machine.command_strategy(), max_size=2))
_facts: Any = st.runner().flatmap(lambda machine: st.lists(machine.bench.facts, min_size=1, max_size=2))
_old_fact: Any = st.runner().flatmap(lambda machine: machine.bench.old_facts)


class _Abandoned(Exception):
    """What a caller's own code may raise inside a batch."""


class RestoreMachine(Base):
    """A stateful test of one model. Set ``model`` in a subclass, or make one with :func:`restore_machine`.

    ``model`` is a Model, a projection, or a function that returns either and is called once for every simulated
    process. ``commands`` and ``facts`` are strategies to use instead of the derived ones. ``propose(random, state)``
    returns a command that fits the state, for models that refuse most of what is drawn blindly. ``backend`` is
    ``"memory"`` or ``"sqlite"``. ``elsewhere`` turns off the replay in a process with another hash seed, clock and
    locale, which is made when the model can be imported. ``first`` in a rule are commands given before it.
    """

    # -- commands ---------------------------------------------------------------------------------------------------

    @initialize(commands=_commands)
    @kept
    def begin(self, commands: list[Any]) -> None:
        """The first commands."""
        for command in commands:
            self.ask_both(self.asked(command))

    @rule(commands=_commands, actor=_ACTORS, named=st.booleans())
    @kept
    def give(self, commands: list[Any], actor: str | None, named: bool) -> None:
        """Commands, each a commit of its own; ``named`` gives them ids."""
        for command in commands:
            self.ask_both(self.asked(command, actor, named=named))

    @rule(facts=_facts, named=st.booleans())
    @kept
    def ingest(self, facts: list[Any], named: bool) -> None:
        """Facts that another runtime decided."""
        self.ask_both(self.asked(facts, named=named, facts=True))

    @rule(commands=_commands, named=st.booleans(), crash=_BATCH_ENDS)
    @kept
    def batch(self, commands: list[Any], named: bool, crash: str | None) -> None:
        """Several commands in one commit; what is refused among them leaves the others as they are. Of a batch that
        ends with an error, or dies before it is written, nothing is left."""
        asked = [self.asked(command, named=named) for command in commands]
        if crash == "error":
            self._abandon(asked)
            return
        if crash is not None:
            self.disk.arm(crash)
        try:
            with self.here.memory.running(), self.live.batch():
                answers = [answer_of(partial(self.submit, self.live, each)) for each in asked]
        except SimulatedCrash:
            if crash == "append.after":
                self.twin_batch(asked)
            self.restart_by("best")
            return
        self.disk.disarm()
        for each, mine, theirs in zip(asked, answers, self.twin_batch(asked), strict=True):
            self.compare(each, mine, theirs)
            self.remember(each)

    def _abandon(self, asked: Sequence[Asked]) -> None:
        try:
            with self.here.memory.running(), self.live.batch():
                for each in asked:
                    answer_of(partial(self.submit, self.live, each))
                raise _Abandoned
        except _Abandoned:
            return

    @precondition(lambda self: self.remembered)
    @rule(which=st.integers(0, 99), change=st.booleans(), command=_command)
    @kept
    def repeat(self, which: int, change: bool, command: Any) -> None:
        """A command under an id that was used: by the same content, or by another."""
        before = self.remembered[which % len(self.remembered)]
        asked = replace(before, what=command, facts=False) if change and not before.facts else before
        position = self.live.position
        known = before.command_id in self.twin.known
        self.ask_both(replace(asked, at_ms=self.now))
        if known and self.live.position != position:
            raise ReplayDiffers(f"{asked} was repeated under its id and added events at {position + 1}")

    # -- crashes ----------------------------------------------------------------------------------------------------

    @rule(first=_first, command=_command, point=_WRITES, named=st.booleans())
    @kept
    def crash(self, command: Any, point: str, named: bool) -> None:
        """The process dies before a commit is written, or after that and before it is acknowledged; the next process
        gives the command again if it had an id."""
        asked = self.asked(command, named=named)
        self.disk.arm(point)
        try:
            with self.here.memory.running():
                answer = answer_of(lambda: self.submit(self.live, asked))
        except SimulatedCrash:
            if point == "append.after":
                self.twin_asked(asked)
            self.restart_by("best")
            if named:
                self.ask_both(asked)
            return
        self.disk.disarm()
        self.compare(asked, answer, self.twin_asked(asked))

    @rule(first=_first, command=_command, point=_WRITES, named=st.booleans())
    @kept
    def fail(self, command: Any, point: str, named: bool) -> None:
        """A write fails, or seems to although the commit is there; the same process goes on."""
        asked = self.asked(command, named=named)
        self.disk.arm(point, fail=True)
        try:
            with self.here.memory.running():
                answer = answer_of(lambda: self.submit(self.live, asked))
        except BackendUnavailable:
            if point == "append.after":
                self.twin_asked(asked)
            if named:
                self.ask_both(asked)
            return
        self.disk.disarm()
        self.compare(asked, answer, self.twin_asked(asked))

    @rule(first=_first, route=_ROUTES, which=st.integers(0, 99))
    @kept
    def restart(self, route: str, which: int) -> None:
        """The process ends without a word, and a new one restores by any route."""
        self.restart_by(self.route_of(route, which))

    # -- checkpoints ------------------------------------------------------------------------------------------------

    @rule(first=_first, full=st.booleans())
    @kept
    def checkpoint(self, full: bool) -> None:
        """A checkpoint, full or of what changed."""
        with self.here.memory.running():
            self.live.checkpoint(full=full)

    @rule(first=_first, point=_CHECKPOINTS, full=st.booleans())
    @kept
    def crash_in_checkpoint(self, point: str, full: bool) -> None:
        """The process dies while it writes a checkpoint, and may leave half of one behind."""
        self.disk.arm(point)
        try:
            with self.here.memory.running():
                self.live.checkpoint(full=full)
        except SimulatedCrash:
            self.damaged = self.damaged or point == "checkpoint.torn"
            self.restart_by("best")
        self.disk.disarm()

    @precondition(lambda self: self.checkpoints())
    @rule(first=_first, which=st.integers(0, 99), how=_DAMAGE, place=st.integers(0, 10_000))
    @kept
    def damage_checkpoint(self, which: int, how: str, place: int) -> None:
        """A stored checkpoint is changed, shortened or deleted behind the run's back."""
        positions = self.checkpoints()
        position = positions[which % len(positions)]
        self.damaged = True
        recorder = self.disk.backend.inner.checkpoints
        found = recorder.read(self.live.id, position)
        assert found is not None
        topic, stored = found
        if how == "delete" or not stored:
            recorder.delete(self.live.id, gte=position)
            return
        at = place % len(stored)
        flipped = stored[:at] + bytes([stored[at] ^ (1 << place % 8)]) + stored[at + 1 :]
        recorder.put(
            self.live.id, position, topic, {"flip": flipped, "cut": stored[:at], "empty": b""}[how], (position,)
        )

    # -- others -----------------------------------------------------------------------------------------------------

    @rule(first=_first, theirs=_command, ours=_command)
    @kept
    def second_writer(self, theirs: Any, ours: Any) -> None:
        """Another process appends; ours, which has not seen it, must not win the same position."""
        first, second = self.asked(theirs), self.asked(ours)
        there = self.bench.process()
        with there.memory.running():
            store = self.disk.beside(there.model)
            answer = answer_of(lambda: self.submit(store.run(self.live.id), first))
        self.compare(first, answer, self.twin_asked(first))
        try:
            with self.here.memory.running():
                answer = answer_of(lambda: self.submit(self.live, second))
        except Conflict:
            with self.here.memory.running():
                self.live.refresh()
            self.ask_both(second)
            return
        if not answer.events:  # a stale process may refuse what the newer state would take: nothing is lost by it
            with self.here.memory.running():
                self.live.refresh()
            return
        self.compare(second, answer, self.twin_asked(second))

    @precondition(lambda self: self.bench.old_facts is not None)
    @rule(first=_first, fact=_old_fact)
    @kept
    def old_event(self, fact: Any) -> None:
        """An event that an older version of the projection wrote is met; it counts as what it is lifted to."""
        name, data = fact
        with self.bench.process().memory.running():
            wire = self.twin.at(self.twin.position).old_wire(name, data, self.now)
        assume(wire is not None)
        group = [self.now, None, None, None, None, [wire]]
        with self.here.memory.running():
            self.live.refresh()
            link = bytes.fromhex(self.live.link())
            first = self.live.position + 1
        self.disk.append(self.live.id, first, [group], link)
        with self.apart.memory.running():
            self.twin.append([group])
        with self.here.memory.running():
            self.live.refresh()

    # -- the past ---------------------------------------------------------------------------------------------------

    @rule(first=_first, position=st.integers(0, 999), start=_ROUTES, which=st.integers(0, 99), probes=_probes)
    @kept
    def look_back(self, position: int, start: str, which: int, probes: list[Any]) -> None:
        """The state as of any position, by any route, and what it would answer next."""
        at = position % (self.twin.position + 1)
        asked = [self.asked(probe) for probe in probes]
        with self.bench.process().memory.running():
            past = self.twin.at(at)
            expected = past.would(asked)
        elsewhere = self.bench.process()
        if not self.twin.position:
            return
        with elsewhere.memory.running():
            view = self._view(elsewhere, at, self.route_of(start, which))
            if view is None:
                return
            answers = view.ask(lambda state: [would(elsewhere.model, state, self.twin.run_id, each) for each in asked])
            bytes_there = view.state_bytes()
            state = view.ask(lambda state: state)
            check_state(past, state, bytes_there, f"restored at {at} from {view.report.used}")
        for each, mine, theirs in zip(asked, answers, expected, strict=True):
            check_answers(each, mine, theirs, f"restored at {at} from {view.report.used}")

    def _view(self, process: Process, at: int, start: Any) -> Any:
        try:
            return self.disk.beside(process.model).view(self.live.id, at=at, start=start)
        except NotFound:
            if isinstance(start, int) and (self.damaged or start > at):
                return None
            raise

    @precondition(lambda self: self.twin.position)
    @rule(first=_first, position=st.integers(0, 999), go_on=st.booleans(), crash=_FORKS)
    @kept
    def fork(self, position: int, go_on: bool, crash: str | None) -> None:
        """A run of its own from any position; with ``go_on`` the rest of the test happens there."""
        at = position % (self.twin.position + 1)
        self.forks += 1
        name = f"fork-{self.forks}"
        if crash is not None:
            self.disk.arm(crash)
        try:
            with self.here.memory.running():
                forked = self.disk.store.fork(self.live.id, name, at=at)
        except SimulatedCrash:
            self.restart_by("best")
            if crash == "fork.before":
                return
            with self.here.memory.running():
                forked = self.disk.store.run(name)
        apart = self.bench.process()
        with apart.memory.running():
            past = self.twin.at(at)
        past.run_id = name
        with self.here.memory.running():
            check_state(past, forked.ask(lambda state: state), forked.state_bytes(), f"forked at {at}")
            if go_on:
                self.go_on_as(forked, past, apart)

    @precondition(lambda self: self.bench.home is not None and self.elsewhere and self.twin.position)
    @rule(first=_first, probes=_probes)
    @kept
    def replay_elsewhere(self, probes: list[Any]) -> None:
        """The run is replayed in a process with another hash seed, clock, time zone and locale, which then answers."""
        self.check_elsewhere([self.asked(probe) for probe in probes] or self.probes)

    # -- after every step -------------------------------------------------------------------------------------------

    @invariant()
    @kept
    def is_the_twin(self) -> None:
        """The run is what its twin is, byte for byte, and the fold leaves alone what it is given."""
        self.check_manners()
        with self.here.memory.running():
            stored = self.live.state_bytes()
            check_state(self.twin, self.live.ask(lambda state: state), stored, "the live run")

    def teardown(self) -> None:
        """Check what is dear: the stored journal, and the replay in another process."""
        try:
            if sys.exc_info()[0] is None and not self.failed and self.twin.position:
                self.check_at_the_end()
        finally:
            self.disk.close()

    @kept
    def check_at_the_end(self) -> None:
        """Verification finds no fault but in checkpoints that were damaged; another process agrees."""
        with self.bench.process().memory.running():
            verdict = self.disk.beside(self.here.model).verify(self.live.id)
        faults = [fault for fault in verdict.faults if not (self.damaged and "checkpoint" in fault.code)]
        if faults:
            raise ReplayDiffers(f"verification found {faults[0].code} at {faults[0].seq}: {faults[0].found}")
        if self.checked_elsewhere != self.twin.position:
            self.check_elsewhere(self.probes)


def restore_machine(model: Any, *, name: str | None = None, **options: Any) -> type[RestoreMachine]:
    """Return a RestoreMachine of a model, a projection, or a function that makes one; ``options`` are the class's
    attributes. Its ``TestCase`` is what pytest and unittest run.

    Raises LookupError when no strategy can be derived for a field or a parameter.
    """
    known = {"commands", "facts", "propose", "backend", "elsewhere"}
    assert set(options) <= known, f"unknown options: {sorted(set(options) - known)}"
    if "propose" in options:
        options["propose"] = staticmethod(options["propose"])
    made = cast(type[RestoreMachine], type(name or "RestoreMachine", (RestoreMachine,), {"model": model, **options}))
    Bench.of(made)
    return made
