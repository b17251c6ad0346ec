"""Forks and deletes in the fencing sweep: processes fork what others write, write the forks of others, and delete forks
while they are written, read and forked again. Whoever comes too late must be told so, by a typed error, and by nothing
else; what a fork shares must outlive the run that it left.

A fork's name says who made it and in which step. A killed process's successor gives the same fork again, and finds that
it exists or makes it. Nobody deletes a fork before its maker has written down what became of it, so no name ever stands
for two runs.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple

from engine.core.errors import BackendUnavailable, Conflict, NotFound
from engine.open_store import Store
from engine.runs import LiveRun
from engine.testing import AppendCall, LogEntry, ReadCall
from tests.sweeps.fencing_work import OtherCall, Plan, Told, Work
from tests.sweeps.harness import Tally, seed_of

__all__ = ["ForkWork", "Forks", "clean_up"]

_TOO_LATE: Final = (Conflict, NotFound)
"""What may be told of a run that somebody has deleted."""


class ForkWork(Work):
    """The steps of one process, forks and deletes among them."""

    def __init__(self, plan: Plan, process: str, died: int | None = None) -> None:
        super().__init__(plan, process, died)
        self._given: dict[str, list[Any]] = {}  # the forks of this process: what each was given as
        self._answers: dict[str, str] = {}  # and what was said of it at last
        self._unanswered: str | None = None  # what the one before was deleting
        for line in self._before:
            if line[0] == "fork":
                self._given[line[1]] = line
            elif line[0] == "told" and line[-1] in self._given:
                self._answers[line[-1]] = line[2]
            self._unanswered = line[1] if line[0] == "delete" else None

    def _step(self, step: int) -> None:
        dice = seed_of("fencing forks", self._plan.chunk, self._process, step)
        roll = dice.random()
        if self._unanswered is not None or roll < 0.1:
            self._delete()
        elif roll < 0.22:
            self._fork(step, dice)
        elif roll < 0.65 and (run := self._any_fork()) is not None:
            with self._as_long_as_it_lives(run):
                self._use(run, f"{run}:{self._process}-{step}", 0, dice)
        else:
            super()._step(step)

    def _any_fork(self) -> str | None:
        """Return a fork that lives, mostly one of a few, so that many meet there."""
        forks = [head.run_id for head in self._store.journal.heads() if head.origin is not None]
        few = forks[:3] if self._dice.random() < 0.6 else forks
        return self._dice.choice(few) if few else None

    def _run_of(self, store: Store, run: str) -> LiveRun:
        """Open a run; a fork that is not there any more would be a new run of its name, and is not to become one."""
        opened = super()._run_of(store, run)
        if opened.position == 0 and run not in self._plan.runs:
            raise NotFound(f"opened, {run!r} is empty")
        return opened

    @contextmanager
    def _as_long_as_it_lives(self, run: str) -> Iterator[None]:
        try:
            yield
        except _TOO_LATE as error:
            self._runs.pop(run, None)
            self._note("gone", time.monotonic_ns(), run, f"{type(error).__name__}: {error.message}")

    # -- forking ------------------------------------------------------------------------------------------------------

    def _fork(self, step: int, dice: random.Random) -> None:
        """Fork a run, write a few commands to the fork, read it. Asked for once more, the fork is not made again."""
        name = f"f-{self._process}-{step}"
        if name not in self._answers:
            if name not in self._given and not self._chosen(name):
                return
            self._give_fork(name)
        if self._answers[name] == "refused":
            return
        with self._as_long_as_it_lives(name):
            for part in range(dice.randrange(4)):
                self._append(name, [(f"{name}-{part}", self._commands(dice), True)])
            self._read(name, dice)

    def _chosen(self, name: str) -> bool:
        """Choose what to fork, and where: at its end or before; note the state there."""
        dice = self._dice
        origin = dice.choice(self._plan.runs)
        if dice.random() < 0.6:
            origin = self._any_fork() or origin
        with self._as_long_as_it_lives(origin):
            end = self._store.view(origin)
            at = end.position if dice.random() < 0.4 else dice.randint(1, end.position)
            seen = end if at == end.position else self._store.view(origin, at=at)
            self._given[name] = ["fork", name, 0, origin, at, seen.digest()]
            return True
        return False

    def _give_fork(self, name: str) -> None:
        _, _, _, origin, at, digest = self._given[name]
        self._note("fork", name, time.monotonic_ns(), origin, at, digest)
        made: LiveRun | None = None
        try:
            made = self._store.fork(origin, name, at=at)
            answer = "written"
        except BackendUnavailable:
            self._note("told", time.monotonic_ns(), "unknown")
            raise
        except Conflict as error:
            assert f"{name!r} exists" in error.message, str(error)
            answer = "repeated"
        except NotFound:
            answer = "refused"
        self._note("told", time.monotonic_ns(), answer, name)
        self._answers[name] = answer
        if made is not None:
            self._runs[name] = made
            assert made.position >= at, f"{name} was forked at {at}, and is at {made.position}"
            shown = digest if made.position > at else made.digest()
            assert shown == digest, f"{name} was forked at {at}, and its state is not that of {origin} there"

    def _delete(self) -> None:
        """Delete a fork whose maker knows that it was made; what the process before was at comes first."""
        run, self._unanswered = self._unanswered or self._any_fork(), None
        if run is None or not self._is_settled(run):
            return
        while True:
            self._note("delete", run, time.monotonic_ns())
            try:
                self._store.delete(run)
                answer = "deleted"
            except NotFound:
                answer = "gone"
            except BackendUnavailable as error:
                self._note("told", time.monotonic_ns(), "unknown")
                if "cannot be deleted now" in error.message:  # it was forked meanwhile, and the fork deleted
                    continue
                raise
            self._note("told", time.monotonic_ns(), answer)
            self._runs.pop(run, None)
            return

    def _is_settled(self, fork: str) -> bool:
        """Return whether the maker of a fork will not give it again."""
        return f'"{fork}"]\n'.encode() in self._plan.notes_of(fork.split("-")[1]).read_bytes()


# -- the judgement ----------------------------------------------------------------------------------------------------


class _Joint(NamedTuple):
    origin: str
    position: int
    digest: str


class Forks:
    """What the processes of a chunk know of its forks, and whether the store bears it out."""

    def __init__(self, plan: Plan, told: Told, tally: Tally) -> None:
        self._plan = plan
        self._told = told
        self._joints: dict[str, _Joint] = {}
        self._calls: dict[str, list[OtherCall]] = {}
        for run, calls in told.others.items():
            for call in calls:
                if call.kind == "fork":
                    self._joints[run] = _Joint(*call.how[:3])
                    self._calls.setdefault(run, []).append(call)
                _count(call, tally)

    def judge(self, living: Sequence[str]) -> Iterator[str]:
        """Yield what is wrong with which runs are there, and with what was said of runs that are not."""
        for run in set(living) - set(self._plan.runs) - set(self._joints):
            yield f"nobody made the run {run}"
        for run in self._joints:
            deletes = self._deletes(run)
            if run in living and any(call.answer == "deleted" for call in deletes):
                yield f"run {run} lives after the {deletes[0]}"
            made = any(call.answer in ("written", "repeated") for call in self._calls[run])
            if made and run not in living and not deletes:
                yield f"run {run} is gone, and nobody deleted it"
            if run not in living:
                yield from (f"deleted run {run}: {text}" for text in self._judge_deleted(run, deletes))
        for run, calls in self._told.others.items():
            for call in calls:
                if call.kind == "gone" or call.answer in ("gone", "refused"):
                    missed = call.how[0] if call.kind == "fork" else run
                    if not any(delete.invoked < call.ended for delete in self._deletes(missed)):
                        yield f"run {missed} was not there for the {call}, and nobody had deleted it"

    def _deletes(self, run: str) -> list[OtherCall]:
        calls = self._told.others.get(run, [])
        return [call for call in calls if call.kind == "delete" and call.answer in ("deleted", "unknown")]

    def _judge_deleted(self, run: str, deletes: Sequence[OtherCall]) -> Iterator[str]:
        """Judge by what was seen of a run that is not there any more: all of it whole, and none of it afterwards."""
        joint, states = self._joints[run], dict[int, str]()
        operations = self._told.operations.get(run, [])
        gone = min((call.ended for call in deletes if call.answer == "deleted"), default=float("inf"))
        done = [each for each in operations if isinstance(each, AppendCall) and each.answer in ("written", "repeated")]
        for each in operations:
            new = isinstance(each, ReadCall) or each.answer == "written"
            if new and each.invoked > gone:
                yield f"{each} after it was deleted"
        for each in done:
            if each.answer == "written" and each.first <= joint.position:
                yield f"{each} wrote {each.first}..{each.last}, and it was forked at {joint.position}"
        for read in operations:
            if not isinstance(read, ReadCall):
                continue
            if read.position < joint.position or any(each.first <= read.position < each.last for each in done):
                yield f"{read} shows half of it"
            if any(each.ended is not None and each.ended < read.invoked and each.last > read.position for each in done):
                yield f"{read} does not show what had been acknowledged"
            state = read.state if isinstance(read.state, str) else None
            if state is not None and states.setdefault(read.position, state) != state:
                yield f"{read} shows another state than one before"
        if states.get(joint.position, joint.digest) != joint.digest:
            yield f"at {joint.position} it was not what {joint.origin} had been there"

    def judge_joint(self, store: Store, run: str, living: Sequence[str]) -> Iterator[str]:
        """Yield what is wrong with what a fork that lives shares."""
        if run not in self._joints:
            return
        joint = self._joints[run]
        owner = joint
        while owner.origin in self._joints and joint.position <= self._joints[owner.origin].position:
            owner = self._joints[owner.origin]
        summary = next(each for each in store.runs() if each.run == run)
        found = summary.origin, summary.origin_position
        if found != (owner.origin, joint.position):
            yield f"it is listed as forked from {found}, and left {owner.origin} at {joint.position}"
        if store.view(run, at=joint.position, start="genesis").digest() != joint.digest:
            yield f"at {joint.position} it is not what {joint.origin} was there"
        alive, until = joint.origin, joint.position
        while alive not in living:  # what is left of a deleted run is seen by nobody but its forks
            alive, until = self._joints[alive].origin, min(until, self._joints[alive].position)
        if list(store.history(run, until=until)) != list(store.history(alive, until=until)):
            yield f"its events up to {until} are not those of {alive}"

    def attempts(self, run: str, log: Sequence[LogEntry]) -> list[AppendCall]:
        """Return the attempts to make a fork as attempts at each commit that it shares: all of them at once."""
        if run not in self._joints:
            return []
        shared = [entry for entry in log if entry.last <= self._joints[run].position]
        return [
            AppendCall(
                entry.commands, call.invoked, call.ended, call.answer, entry.first, entry.last, None, call.process
            )
            for call in self._calls[run]
            for entry in shared
        ]


_COUNTED: Final = {
    ("fork", "written"): "forked",
    ("fork", "repeated"): "forked before",
    ("fork", "refused"): "forked too late",
    ("delete", "deleted"): "deleted",
    ("delete", "gone"): "deleted too late",
}


def _count(call: OtherCall, tally: Tally) -> None:
    note = "came too late" if call.kind == "gone" else _COUNTED.get((call.kind, call.answer), f"{call.kind} cut off")
    tally.notes[note] += 1
    tally.points += call.kind != "gone"


def clean_up(plan: Plan, store: Store, dice: random.Random) -> Iterator[str]:
    """Delete every fork; yield what is there though nothing needs it, after one delete and after the last."""
    store.fork(plan.runs[0], "last", at=1)  # what a crash left of a delete is taken away by the next one
    store.delete("last")
    heads = store.journal._commits.heads()
    for head in heads:
        needed = [
            fork.origin.position for fork in heads if fork.origin is not None and fork.origin.run_id == head.run_id
        ]
        if head.hidden and not needed:
            yield f"the deleted run {head.run_id} is kept, and no fork needs it"
        elif head.hidden and any(row.first > max(needed) for row in store.journal.raw(head.run_id)):
            yield f"of the deleted run {head.run_id} more is kept than up to {max(needed)}"
    forks = [head.run_id for head in heads if head.run_id not in plan.runs and not head.hidden]
    dice.shuffle(forks)
    while forks:
        store.delete(forks.pop())
        for run in forks[:1]:
            yield from (f"with others deleted, fork {run}: {fault}" for fault in store.verify(run).faults)
    left = [head.run_id for head in store.journal._commits.heads()]
    if left != sorted(plan.runs):
        yield f"with every fork deleted there is {left}"
    with closing(sqlite3.connect(plan.path)) as connection:
        for table in ("stored_events", "stored_checkpoints"):
            rows = connection.execute(f"SELECT DISTINCT originator_id FROM {table} WHERE originator_id<>''")
            for (run,) in rows:
                if run not in plan.runs:
                    yield f"{table} has rows of {run}, which was deleted"
