"""Every sweep finds what it is there to find: faults of its kind, planted in the engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.testing.failure import FOLDER_VARIABLE
from tests.sweeps.harness import ROOT
from tests.sweeps.planted import PLANTS
from tests.sweeps.registry import SWEEPS


def test_every_sweep_has_a_planted_fault() -> None:
    """No sweep is believed unseen."""
    assert {plant.sweep for plant in PLANTS.values()} == {entry.name for entry in SWEEPS}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    """With the fault in the engine, a few chunks report it; without it, the slices of the sweeps report nothing."""
    plant = PLANTS[name]
    command = [sys.executable, "-m", "tests.sweeps.worker", plant.sweep, "--chunks", plant.chunks, "--plant", name]
    if plant.at_most is not None:
        command += ["--at-most", str(plant.at_most)]
    kept = {**os.environ, FOLDER_VARIABLE: str(tmp_path)}  # what is left of a chunk that cannot be run again
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["violations"], f"{told} though {name}"
    assert not all("the sweep itself failed" in violation for violation in told["violations"])
