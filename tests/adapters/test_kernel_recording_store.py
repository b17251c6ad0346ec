"""Recordings in a store: whatever checkpoints there are, and wherever the import stopped, every step is the recorded
one and the rest goes the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import open_store
from engine.adapters.kernel_recording import recorded_table
from engine.checkpoint import CheckpointPolicy
from engine.import_recording import import_recording
from tests.adapters.recording_harness import RUNS


def checked(path: Path, recording: Any, spacing: int) -> tuple[list[str], set[Any]]:
    """The digest at every position, and what the views of them used, of a recording that is imported with a checkpoint
    every so many events, from a store that was opened again; each step's table is compared."""
    policy = CheckpointPolicy(every_events=spacing)
    with open_store(path, checkpoints=policy) as store:
        imported = import_recording(store.run("r"), recording)
    with open_store(path, checkpoints=policy) as store:
        for step in imported.steps:
            ours, recorded = recorded_table.digests(
                store.view("r", at=step.position).tasks.rows(), recording, step.step
            )
            assert ours == recorded, (spacing, step)
        views = [store.view("r", at=at) for at in range(imported.position + 1)]
        assert store.run("r").digest() == views[-1].digest()
        return [view.digest() for view in views], {view.report.used for view in views}


@pytest.mark.parametrize("name", sorted(RUNS))
def test_every_spacing_of_checkpoints_gives_the_recorded_tables(tmp_path: Path, name: str) -> None:
    """Without checkpoints, and with one every 1..n events, each position has the same digest, each step the recorded
    table."""
    recording = RUNS[name]
    folded, used = checked(tmp_path / "none.db", recording, 10**6)
    assert used <= {"genesis", len(folded) - 1}
    for spacing in range(1, len(folded)):
        digests, used = checked(tmp_path / f"{spacing}.db", recording, spacing)
        assert digests == folded
        assert len(used) > 1


@pytest.mark.parametrize("name", sorted(RUNS))
def test_every_prefix_and_then_the_rest_gives_the_same_run(tmp_path: Path, name: str) -> None:
    """Stopped after any step, opened again and imported to the end, a recording gives the same link and digest."""
    recording = RUNS[name]
    with open_store("memory:") as store:
        import_recording(store.run("r"), recording)
        run = store.run("r")
        whole = (run.link(), run.digest(), run.position)
    for cut in range(len(recording["planned_steps"])):
        path = tmp_path / f"{cut}.db"
        with open_store(path) as store:
            import_recording(store.run("r"), {key: recording[key][:cut] for key in ("decoded_inputs", "planned_steps")})
        with open_store(path) as store:
            run = store.run("r")
            import_recording(run, recording)
            assert (run.link(), run.digest(), run.position) == whole
