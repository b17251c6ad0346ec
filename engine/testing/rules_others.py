"""Rules of the restore machine: other processes, other runs, other versions, and the past. They must never leave the
twin knowing less than the journal."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from engine.core.errors import Conflict, NotFound
from engine.testing.bench import Process
from engine.testing.checks import check_answers
from engine.testing.crashable import SimulatedCrash
from engine.testing.machine_base import Base, a_command, few_commands, first_commands, kept, some_commands
from engine.testing.twin import Twin, answer_of, would

__all__ = ["OtherRules"]

_FORKS: Final = st.sampled_from((None, None, "fork.before", "fork.after"))
_ROUTES: Final = st.sampled_from(("best", "genesis", "checkpoint"))
_POSITION: Final = st.integers(0, 999)
_WHICH: Final = st.integers(0, 99)

_old_facts: Any = st.runner().flatmap(lambda machine: st.lists(machine.bench.old_facts, min_size=1, max_size=8))


class OtherRules(Base):
    """Second writers, older programs, the past, forks, another process."""

    @rule(first=first_commands, theirs=a_command, ours=a_command)
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

    @rule(first=first_commands, commands=some_commands)
    @kept
    def another_run(self, commands: list[Any]) -> None:
        """The same process looks after another run too: neither may know of the other."""
        self.others += 1
        name = f"other-{self.others}"
        apart = self.bench.process()
        with apart.memory.running():
            twin = self.beside = Twin(apart.model, name)
        other = self.restored(name, "best")
        for asked in map(self.asked, commands):
            with self.here.memory.running():
                mine = answer_of(partial(self.submit, other, asked))
            with apart.memory.running():
                theirs = twin.ask(asked)
            check_answers(asked, mine, theirs, f"run {name!r} of the same process")
        self.beside = None
        self.left.append((name, twin))

    @precondition(lambda self: self.bench.old_facts is not None)
    @rule(first=first_commands, facts=_old_facts)
    @kept
    def old_event(self, facts: list[Any]) -> None:
        """An event that an older version of the projection wrote is met, the first of these that can be; it counts as
        what it is lifted to."""
        with self.bench.process().memory.running():
            here = self.twin.at(self.twin.position)
            found = (here.old_wire(name, data, self.now) for name, data in facts)
            wire = next((wire for wire in found if wire is not None), None)
        if wire is None:
            return
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

    @rule(first=first_commands, position=_POSITION, start=_ROUTES, which=_WHICH, probes=few_commands)
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
            self.check_state(past, state, bytes_there, f"restored at {at} from {view.report.used}")
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
    @rule(first=first_commands, position=st.integers(0, 999), go_on=st.booleans(), crash=_FORKS)
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
            self.check_state(past, forked.ask(lambda state: state), forked.state_bytes(), f"forked at {at}")
            if go_on:
                self.left.append((self.live.id, self.twin))
                self.go_on_as(forked, past, apart)
            else:
                self.left.append((name, past))

    @precondition(lambda self: self.bench.home is not None and self.elsewhere and self.twin.position)
    @rule(first=first_commands, probes=few_commands)
    @kept
    def replay_elsewhere(self, probes: list[Any]) -> None:
        """The run is replayed in a process with another hash seed, clock, time zone and locale, which then answers."""
        self.check_elsewhere([self.asked(probe) for probe in probes] or self.probes)
