"""A run of the swarm projection in memory: the shell's loop without a store, and the laws that every run must keep."""

from __future__ import annotations

from typing import Any

from engine.core.decider import Moment, fingerprint_of
from engine.core.envelope import Commit, Event, Group, events_of, group_of
from engine.core.errors import EngineError
from engine.core.handle import Outcome
from engine.core.model import Model
from engine.core.state import ModelState
from projections.swarm import PROJECTION, SwarmCommands

MODEL = Model((PROJECTION,))


class SwarmRun:
    """Decides, folds and keeps (or puts back) one command at a time, and remembers the groups it appended."""

    def __init__(self, state: ModelState | None = None) -> None:
        self.state = state or MODEL.initial()
        self.groups: list[Group] = []
        self.swarm = SwarmCommands(lambda question: question(self.state.parts["swarm"]), self.submit)

    def submit(self, command: Any, *, command_id=None, actor=None, at_ms=None, cause=None) -> Outcome:
        return self._append(lambda moment: MODEL.decide(self.state, command, moment), command_id, command)

    def ingest(self, name: str, data: dict[str, Any]) -> Outcome:
        wire = MODEL.catalog.check(name, data)
        return self._append(lambda moment: MODEL.admit(self.state, [wire], moment), None, None)

    def _append(self, decide, command_id, command) -> Outcome:
        start = self.state.begin()
        moment = Moment("run", start + 1, 0)
        try:
            wires = decide(moment)
        except EngineError:
            self.state.put_back(start)
            raise
        self.state.keep()
        if not wires:
            return Outcome(start, 0, list)
        fingerprint = None if command_id is None else fingerprint_of(command)
        group = group_of(0, None, command_id, fingerprint, None, wires)
        self.groups.append(group)
        return Outcome(start + len(wires), len(wires), lambda: events(start + 1, [group]))

    @property
    def names(self) -> list[str]:
        """The names of all events so far, in order."""
        return [event.type.partition("/")[0] for event in events(1, self.groups)]


def events(first: int, groups: list[Group]) -> list[Event]:
    count = sum(len(group[5]) for group in groups)
    return list(events_of(Commit(first, count, b"", groups), MODEL.catalog))


def wires_of(run: SwarmRun) -> list[list[Any]]:
    return [wire for group in run.groups for wire in group[5]]


def folded(groups: list[Group]) -> ModelState:
    """The state of a fresh fold."""
    state = MODEL.initial()
    state.apply(groups)
    return state


def restored(state: ModelState) -> ModelState:
    """The state loaded from a checkpoint: every record dumped, loaded into an empty state, and reindexed."""
    other = MODEL.initial()
    for name, table in state.tables.items():
        for key, row in table.ordered():
            other.tables[name].add(key, table.load(row.dump()))
    other.seq = state.seq
    other.reindex()
    return other


def check_laws(run: SwarmRun) -> None:
    """Fold = live, at the end and after every event; a checkpoint = live; and neither order nor batching matters."""
    assert folded(run.groups).bytes() == run.state.bytes()
    wires = wires_of(run)
    prefix = MODEL.initial()
    for cut in range(len(wires) + 1):
        assert prefix.bytes() == folded([group_of(0, None, None, None, None, wires[:cut])]).bytes()
        copy = restored(prefix)
        assert copy.bytes() == prefix.bytes()
        assert copy.parts["swarm"].open == prefix.parts["swarm"].open
        if cut < len(wires):
            group = [group_of(0, None, None, None, None, [wires[cut]])]
            prefix.apply(group)
            copy.apply(group)
            assert copy.bytes() == prefix.bytes()
