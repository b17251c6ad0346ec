"""Import of recordings: what another runtime decided, step by step, as commits of one run. It must never write a step
that the whole recording, taken from its beginning, does not lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.adapters.kernel_recording import Step, steps
from engine.core.errors import EngineError, ImportRefused, Refused
from engine.core.model import Model
from engine.run import Run
from engine.runs import LiveRun
from engine.store import Checkpoints, Journal, connect

__all__ = ["ImportedStep", "RecordingImported", "import_recording"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ImportedStep:
    """A recorded step, counted from 0, the run's position after it, and where the recording was not followed."""

    step: int
    position: int
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the step for ``--json``, without its notes: those are said beside the answer."""
        return {"step": self.step, "position": self.position}


@dataclass(frozen=True, slots=True)
class RecordingImported:
    """What an import gave: how many events it added, the run's position, and the position after every recorded step."""

    run: str
    events: int
    position: int
    steps: tuple[ImportedStep, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the import for ``--json``."""
        return {
            "run": self.run,
            "events": self.events,
            "position": self.position,
            "steps": [step.to_json() for step in self.steps],
        }


def import_recording(run: Run, recording: Mapping[str, Any], *, progress: Progress | None = None) -> RecordingImported:
    """Record every step of a kernel's recording, one commit a step, each under the id of the input that led to it.

    A step that changed nothing there adds nothing here. Importing the same recording again adds nothing, and one that
    was interrupted goes on where it stopped. The whole recording is tried in memory first: when any step is refused,
    ImportRefused names it and nothing is written. Raises ImportRefused, CommandMismatch (the run holds another
    recording), Conflict, BackendUnavailable.
    """
    recorded = list(steps(recording))
    _rehearse(run.id, run.model, recorded)
    before = run.position
    positions = []
    position = 0
    for number, step in enumerate(recorded):
        position = max(position, _record(run, step, number))
        positions.append(ImportedStep(number, position, step.notes))
        if progress is not None:
            progress(number + 1, len(recorded))
    return RecordingImported(run.id, run.position - before, run.position, tuple(positions))


def _record(run: Run, step: Step, number: int) -> int:
    """Record one step; return the position after it, 0 for a step without facts."""
    if not step.facts:
        return 0
    try:
        outcome = run.ingest(step.facts, command_id=step.input_id, at_ms=step.at_ms, actor=step.actor)
    except Refused as error:
        error.add_note(f"step {number}, input {step.input_id}")
        raise
    return outcome.position


def _rehearse(run_id: str, model: Model, recorded: list[Step]) -> None:
    """Record everything in memory, from nothing. Raises ImportRefused naming the first step that does not follow."""
    backend = connect("memory:")
    trial = LiveRun(Journal(backend), Checkpoints(backend), model, run_id)
    for number, step in enumerate(recorded):
        try:
            _record(trial, step, number)
        except EngineError as error:
            where = f"step {number} (input {step.input_id!r})"
            raise ImportRefused(
                f"{where}: {error.message}",
                [{"step": number, "input_id": step.input_id, "code": error.code, "problem": error.message}],
                hint=f"{error.hint}; nothing was imported" if error.hint else "nothing was imported",
            ) from error
