"""What the rules of the restore machine stand on: the run, its twin, their processes and the disk. It must never draw a
value; the rules do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar, Final, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.strategies import SearchStrategy

from engine.core.errors import NotFound
from engine.core.state import ModelState
from engine.runs import LiveRun
from engine.testing.bench import Bench, Process
from engine.testing.checks import check_answers, check_elsewhere, check_state
from engine.testing.failure import ReplayDiffers, how_to_open, keep_journal, raised_within
from engine.testing.purity import WatchedFold
from engine.testing.seeded import TestCases
from engine.testing.twin import Answer, Asked, Twin, answer_of

__all__ = ["Base", "a_command", "few_commands", "first_commands", "kept", "some_commands"]

F = TypeVar("F", bound=Callable[..., Any])

RUN_ID: Final = "run"

a_command: Any = st.runner().flatmap(lambda machine: machine.command_strategy())
some_commands: Any = st.runner().flatmap(lambda machine: st.lists(machine.command_strategy(), min_size=1, max_size=6))
few_commands: Any = st.runner().flatmap(lambda machine: st.lists(machine.command_strategy(), max_size=2))
first_commands: Any = st.runner().flatmap(lambda machine: st.lists(machine.command_strategy(), max_size=4))
"""Commands as rules take them, drawn by the machine that runs."""


def kept(function: F) -> F:
    """Count a rule, give the commands that come ``first``, and let what fails leave the journal behind.

    Whatever differs is raised from here: Hypothesis takes failures of several places for several bugs, and shrinks and
    tells each of them, though they are one bug seen from several sides.
    """

    @wraps(function)
    def watched(self: Base, *arguments: Any, first: Sequence[Any] = (), **named: Any) -> Any:
        type(self).tally[function.__name__] += 1
        try:
            for command in first:
                self.ask_both(self.asked(command))
            return function(self, *arguments, **named)
        except HypothesisException:
            raise
        except Exception as error:
            failure, cause = self.failure_of(error)
        raise failure from cause

    return cast(F, watched)


class Base(RuleBasedStateMachine):
    """One run and its twin."""

    TestCase = TestCases()  # type: ignore[assignment]
    """What pytest and unittest run; under a seed that a failure names."""

    model: ClassVar[Any] = None
    commands: ClassVar[Any] = None
    facts: ClassVar[Any] = None
    propose: ClassVar[Any] = None
    backend: ClassVar[str] = "memory"
    elsewhere: ClassVar[bool] = True
    memory: ClassVar[bool] = True
    mannered: ClassVar[bool] = True
    """Whether the manners of the fold are watched."""
    tally: ClassVar[Counter[str]] = Counter()
    """How often each rule ran, over all machines of this process: what a sweep reports."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench.of(type(self))
        self.now = 1_000
        self.failed = False
        self.damaged = False
        self.forks = self.others = 0
        self.left: list[tuple[str, Twin]] = []
        """Runs that the test has left, with what they must be for ever."""
        self.remembered: list[Asked] = []
        """What was accepted under a command id, to be asked again."""
        self.beside: Twin | None = None
        """The twin of another run, while that one is looked at."""
        self.probes: list[Asked] = []
        self.apart = self.bench.process()
        """The process of the twin, which nothing happens to."""
        with self.apart.memory.running():
            self.twin = Twin(self.apart.model, RUN_ID)
        self.watched = self.bench.process()
        """The process of a fold that is watched for its manners."""
        self.fold, self.folded = WatchedFold(self.watched.model), 0
        self.checked_elsewhere = 0
        self.here: Process = self.bench.process()
        self.disk = self.bench.disk(self.here.model, lambda: self.now)
        self.live: LiveRun = self.restored(RUN_ID, "best")

    def command_strategy(self) -> SearchStrategy[Any]:
        """Return the commands to draw from: those that fit the twin's state, or any, or of both."""
        propose = self.bench.propose
        if propose is None:
            return self.bench.commands
        fitting = st.randoms(use_true_random=False).map(lambda random: propose(random, self.twin.state))
        if self.propose is not None:
            return fitting
        return st.integers(0, 3).flatmap(lambda die: self.bench.commands if die == 3 else fitting)

    # -- asking -----------------------------------------------------------------------------------------------------

    def asked(self, what: Any, actor: str | None = None, *, named: bool = False, facts: bool = False) -> Asked:
        """Return a command (or facts) in an envelope of its own: a later time, and with ``named`` a new command id."""
        self.now += 1
        asked = Asked(what, facts, self.now, actor, f"id-{self.now}" if named else None)
        if not facts:
            self.probes = [*self.probes[-3:], replace(asked, command_id=None)]
        return asked

    @staticmethod
    def submit(run: LiveRun, asked: Asked) -> Any:
        """Give it to a run; return the outcome."""
        entry: Callable[..., Any] = run.ingest if asked.facts else run.submit
        return entry(asked.what, command_id=asked.command_id, actor=asked.actor, at_ms=asked.at_ms)

    def ask_both(self, asked: Asked) -> None:
        """Ask the run and the twin; they must answer alike."""
        with self.here.memory.running():
            mine = answer_of(lambda: self.submit(self.live, asked))
        with self.apart.memory.running():
            theirs = self.twin.ask(asked)
        self.compare(asked, mine, theirs)
        self.remember(asked)

    def twin_asked(self, asked: Asked) -> Answer:
        """Ask the twin alone."""
        with self.apart.memory.running():
            return self.twin.ask(asked)

    def twin_batch(self, asked: Sequence[Asked]) -> list[Answer]:
        """Ask the twin alone, several things in one commit."""
        with self.apart.memory.running():
            return self.twin.batch(asked)

    @staticmethod
    def compare(asked: Asked, mine: Answer, theirs: Answer) -> None:
        """Check that the run answered as the twin did."""
        check_answers(asked, mine, theirs, "the live run")

    def remember(self, asked: Asked) -> None:
        """Keep what was accepted under an id, to be repeated."""
        if asked.command_id is not None and asked.command_id in self.twin.known:
            self.remembered.append(asked)

    def go_on_as(self, live: LiveRun, twin: Twin, apart: Process) -> None:
        """Let the rest of the test happen to another run, its twin and the process of its twin."""
        self.live, self.twin, self.apart = live, twin, apart
        self.watched = self.bench.process()
        self.fold, self.folded = WatchedFold(self.watched.model), 0

    # -- checks ---------------------------------------------------------------------------------------------------

    def check_manners(self) -> None:
        """Fold what is new and check that the fold leaves it alone; see :mod:`engine.testing.purity`."""
        if not self.mannered:
            return
        with self.watched.memory.running():
            for commit in self.twin.commits[self.folded :]:
                for group in commit:
                    self.fold.group(group)
        self.folded = len(self.twin.commits)

    def check_state(self, twin: Twin, state: ModelState, stored: bytes, who: str) -> None:
        """Check that a state, whose bytes are ``stored``, is a twin's. What differs is named by a process that has just
        started: what this one remembers must not mislead."""
        if stored != twin.state.bytes():
            with self.bench.process().memory.running():
                check_state(twin, state, stored, who)

    def check_elsewhere(self, asked: Sequence[Asked]) -> None:
        """Replay the run in another process, where the model can be had there."""
        if self.bench.home is None or not self.elsewhere or not self.twin.position:
            return
        with self.apart.memory.branch().running():
            expected = self.twin.would(asked)
        with self.bench.process().memory.running():
            check_elsewhere(self.bench.home, self.twin, asked, expected)
        self.checked_elsewhere = self.twin.position

    # -- restoring --------------------------------------------------------------------------------------------------

    def checkpoints(self) -> Sequence[int]:
        """Return the positions of the stored checkpoints, damaged ones too."""
        return self.disk.beside(self.here.model).checkpoints.positions(self.live.id)

    def route_of(self, route: str, which: int) -> Any:
        """Return where to start a restore: the route, or the position of one of the checkpoints."""
        positions = self.checkpoints() if route == "checkpoint" else ()
        if route == "checkpoint":
            return positions[which % len(positions)] if positions else "best"
        return route

    def restored(self, run_id: str, route: Any) -> LiveRun:
        """Return the run as the process that lives now restores it."""
        with self.here.memory.running():
            return self.disk.store.run(run_id, start=route)

    def restart_by(self, route: Any) -> None:
        """End the process; restore in a new one."""
        self.here = self.bench.process()
        self.disk.restart(self.here.model)
        try:
            self.live = self.restored(self.live.id, route)
        except NotFound:
            if not self.damaged or route in ("best", "genesis"):
                raise
            self.live = self.restored(self.live.id, "best")

    def failure_of(self, error: Exception) -> tuple[Exception, BaseException | None]:
        """Return what to raise for an error, its journal kept, and the cause to show with it."""
        if isinstance(error, ReplayDiffers):
            if error.told:
                return error, None
            failure = ReplayDiffers(*error.args)
            for note in getattr(error, "__notes__", ()):
                failure.add_note(note)
            self.keep_journal(failure)
            return failure, None
        at_fault = raised_within(self.bench.model, error)
        self.keep_journal(at_fault or error)
        return (error, error.__cause__) if at_fault is None else (at_fault, error)

    def keep_journal(self, error: Exception) -> None:
        """Write the twin's journal and say on the error where it is; the stored one, where the twin has none."""
        self.failed = True
        if isinstance(error, ReplayDiffers):
            error.told = True
        try:
            lines = self.witness().lines() or self._stored_lines()
            path = keep_journal(self.bench.name, lines)
        except Exception as trouble:  # the failure itself must be seen, whatever is wrong with its journal
            error.add_note(f"the journal could not be kept: {trouble}")
            return
        if path is None:
            error.add_note("no journal was kept: nothing was recorded yet, or there is no place for it")
        else:
            if isinstance(error, ReplayDiffers):
                error.journal = path
            error.add_note(how_to_open(path, self.bench.home, self.twin.model))

    def witness(self) -> Twin:
        """Return the twin of the run that is looked at: its journal is the one to keep."""
        return self.twin if self.beside is None else self.beside

    def _stored_lines(self) -> list[str]:
        try:
            return list(self.disk.beside(self.bench.model).export_lines(self.witness().run_id))
        except NotFound:
            return []
