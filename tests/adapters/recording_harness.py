"""Recorded runs, and following them into a task table in memory."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from engine.adapters.kernel_recording import Step, steps
from engine.app.recordings import recorded_runs
from engine.core.decider import Moment
from engine.core.envelope import group_of
from engine.core.errors import EngineError
from engine.core.model import Model
from engine.core.state import ModelState
from projections.tasks import PROJECTION as TASKS

MODEL = Model((TASKS,))
FURTHER = Path(__file__).parents[2] / "fixtures" / "kernel-runs"
RUNS: dict[str, Any] = dict(recorded_runs())
ALL: dict[str, Any] = RUNS | {path.stem: json.loads(path.read_text()) for path in sorted(FURTHER.glob("*.json"))}
REFUSED = ("runs_on_from_join", "task_id_twice")
LEAVES = ("ends_over_children", "late_launch")
"""Recordings with a table that cannot have come about: ours differs there, and says so."""
NOTED = {"spawn_over_approval": 6}
"""Recordings that are followed exactly, with a note at one step."""
FOLLOWED = tuple(sorted(set(ALL) - set(REFUSED) - set(LEAVES)))


class Followed:
    """A task table that is led by a recording."""

    def __init__(self) -> None:
        self.state: ModelState = MODEL.initial()
        self.groups: list[Any] = []

    @property
    def rows(self) -> Any:
        return self.state.parts["tasks"].rows()

    def take(self, step: Step) -> None:
        """Record a step's facts as one commit, or put everything back and raise."""
        start = self.state.begin()
        try:
            wires = [MODEL.catalog.check(name, data) for name, data in step.facts]
            events = MODEL.admit(self.state, wires, Moment("run", start + 1, step.at_ms, step.actor))
        except EngineError:
            self.state.put_back(start)
            raise
        self.state.keep()
        if events:
            self.groups.append(group_of(step.at_ms, step.actor, None, None, step.input_id, events))


def follow(recording: Any) -> Followed:
    """Follow a whole recording."""
    followed = Followed()
    for step in steps(recording):
        followed.take(step)
    return followed


def folded(groups: list[Any]) -> ModelState:
    """The state of a fresh fold."""
    state = MODEL.initial()
    state.apply(groups)
    return state


def restored(state: ModelState) -> ModelState:
    """The state loaded from a checkpoint."""
    other = MODEL.initial()
    for name, table in state.tables.items():
        for key, row in table.ordered():
            other.tables[name].add(key, table.load(row.dump()))
    other.seq = state.seq
    other.reindex()
    return other


def edited(name: str) -> Any:
    """A copy of a recording, to be changed."""
    return copy.deepcopy(ALL[name])
