"""Rules of the restore machine: a process that dies or meets errors, and what becomes of its checkpoints. They must
never change a journal behind the run's back: damage of journals is found by verification, and another matter."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from engine.core.errors import BackendUnavailable
from engine.testing.crashable import SimulatedCrash
from engine.testing.machine_base import Base, a_command, first_commands, kept
from engine.testing.twin import answer_of

__all__ = ["CrashRules"]

_WRITES: Final = st.sampled_from(("append.before", "append.after"))
_CHECKPOINTS: Final = st.sampled_from(("checkpoint.before", "checkpoint.torn", "checkpoint.after"))
_DAMAGE: Final = st.sampled_from(("flip", "cut", "empty", "delete"))
_ROUTES: Final = st.sampled_from(("best", "genesis", "checkpoint"))
_WHICH: Final = st.integers(0, 99)


class CrashRules(Base):
    """Crashes, errors, checkpoints."""

    @rule(first=first_commands, command=a_command, point=_WRITES, named=st.booleans(), route=_ROUTES, which=_WHICH)
    @kept
    def crash(self, command: Any, point: str, named: bool, route: str, which: int) -> None:
        """The process dies before a commit is written, or after that and before it is acknowledged; the next process
        restores by any route, and gives the command again if it had an id."""
        asked = self.asked(command, named=named)
        self.disk.arm(point)
        try:
            with self.here.memory.running():
                answer = answer_of(lambda: self.submit(self.live, asked))
        except SimulatedCrash:
            if point == "append.after":
                self.twin_asked(asked)
            self.restart_by(self.route_of(route, which))
            if named:
                self.ask_both(asked)
            return
        self.disk.disarm()
        self.compare(asked, answer, self.twin_asked(asked))

    @rule(first=first_commands, command=a_command, point=_WRITES, named=st.booleans())
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

    @rule(first=first_commands, route=_ROUTES, which=_WHICH)
    @kept
    def restart(self, route: str, which: int) -> None:
        """The process ends without a word, and a new one restores by any route."""
        self.restart_by(self.route_of(route, which))

    # -- checkpoints ------------------------------------------------------------------------------------------------

    @rule(first=first_commands, full=st.booleans())
    @kept
    def checkpoint(self, full: bool) -> None:
        """A checkpoint, full or of what changed."""
        with self.here.memory.running():
            self.live.checkpoint(full=full)

    @rule(first=first_commands, point=_CHECKPOINTS, full=st.booleans(), route=_ROUTES, which=_WHICH)
    @kept
    def crash_in_checkpoint(self, point: str, full: bool, route: str, which: int) -> None:
        """The process dies while it writes a checkpoint, and may leave half of one behind."""
        self.disk.arm(point)
        try:
            with self.here.memory.running():
                self.live.checkpoint(full=full)
        except SimulatedCrash:
            self.damaged = self.damaged or point == "checkpoint.torn"
            self.restart_by(self.route_of(route, which))
        self.disk.disarm()

    @rule(first=first_commands, point=_CHECKPOINTS, full=st.booleans())
    @kept
    def fail_in_checkpoint(self, point: str, full: bool) -> None:
        """A checkpoint cannot be written, or half of it, or seems not to be although it is; the process goes on."""
        self.disk.arm(point, fail=True)
        try:
            with self.here.memory.running():
                self.live.checkpoint(full=full)
        except BackendUnavailable:
            self.damaged = self.damaged or point == "checkpoint.torn"
        self.disk.disarm()

    @precondition(lambda self: self.checkpoints())
    @rule(first=first_commands, which=_WHICH, how=_DAMAGE, place=st.integers(0, 10_000))
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
            self.disk.delete_checkpoint(self.live.id, position)
            return
        at = place % len(stored)
        flipped = stored[:at] + bytes([stored[at] ^ (1 << place % 8)]) + stored[at + 1 :]
        changed = {"flip": flipped, "cut": stored[:at], "empty": b""}[how]
        recorder.put(self.live.id, position, topic, changed, (position,))

    @precondition(lambda self: self.twin.position)
    @rule(first=first_commands, which=_WHICH, base=st.booleans())
    @kept
    def age_checkpoint(self, which: int, base: bool) -> None:
        """A stored checkpoint, or one at the head, is one that another version of the program wrote, whose records mean
        nothing to this one."""
        with self.here.memory.running():
            self.live.refresh()
            positions = [self.live.position, *self.checkpoints()]
        self.damaged = True
        self.disk.put_aged(self.live.id, positions[which % len(positions)], on_base=base)
