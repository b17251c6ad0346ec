"""Rules of the restore machine: what a run is asked, beside its twin. They must never take a command for refused or
repeated because the other side did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from engine.testing.crashable import SimulatedCrash
from engine.testing.failure import ReplayDiffers
from engine.testing.machine_base import Base, a_command, kept, some_commands
from engine.testing.twin import Asked, answer_of

__all__ = ["CommandRules"]

_ACTORS: Final = st.sampled_from((None, "one", "two"))
_BATCH_ENDS: Final = st.sampled_from((None, None, "error", "append.before", "append.after"))

_facts: Any = st.runner().flatmap(lambda machine: st.lists(machine.bench.facts, min_size=1, max_size=2))


class _Abandoned(Exception):
    """What a caller's own code may raise inside a batch."""


class CommandRules(Base):
    """Commands, batches, facts, repetitions."""

    @initialize(commands=some_commands)
    @kept
    def begin(self, commands: list[Any]) -> None:
        """The first commands."""
        for command in commands:
            self.ask_both(self.asked(command))

    @rule(commands=some_commands, actor=_ACTORS, named=st.booleans())
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

    @precondition(lambda self: self.facts is None)
    @rule(command=a_command, named=st.booleans())
    @kept
    def ingest_decided(self, command: Any, named: bool) -> None:
        """What another runtime, in the same state, decided on a command: its events, as facts; unless there are
        ``facts`` of one's own."""
        with self.apart.memory.branch().running():
            (answer,) = self.twin.would([self.asked(command)])
        own = {event_type.name for event_type in self.bench.model.by_name[command.projection].events}
        facts = [(event.type, event.data) for event in answer.events if event.type.partition("/")[0] in own]
        if facts:
            self.ask_both(self.asked(facts, named=named, facts=True))

    @rule(commands=some_commands, named=st.booleans(), crash=_BATCH_ENDS)
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
            for each in asked if named else ():
                self.ask_both(each)
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
    @rule(which=st.integers(0, 99), change=st.booleans(), command=a_command)
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
