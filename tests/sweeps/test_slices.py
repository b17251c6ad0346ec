"""A slice of every sweep, the same each time: no promise is broken in it. The sweeps themselves are ``make sweep``."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.sweeps.harness import ROOT
from tests.sweeps.registry import SWEEPS

SLICES = {
    "kill": ("0:9", 8),
    "moments": ("0:2", 3),
    "power": ("0:9", 12),
    "calls": ("0:600:47", 5),
    "syscalls": ("0:45:7", 5),
    "interrupts": ("0:98:7", 4),
    "fencing": ("1:8", 60),
    "damage": ("0:30:6", 40),
    "rows": ("0:256:37", 12),
    "doctor": ("0:200:40", 2),
    "machines": ("1:4", 2),
    "walk": ("1:24:7", 160),
    "restores": ("0:2", 60),
    "values": ("0:3", 120),
    "fuzz": ("0:10", 20),
}
"""Sweep -> its chunks, and how many points of each."""


def test_every_sweep_is_in_the_list_and_has_a_slice() -> None:
    """Whatever calls itself a sweep is in the list, has the name of its module, and is tried by the tests."""
    folder = ROOT / "tests" / "sweeps"
    modules = {path.stem for path in folder.glob("*.py") if re.search(r"^SWEEP\b", path.read_text(), re.MULTILINE)}
    names = [entry.name for entry in SWEEPS]
    assert modules == set(names) == set(SLICES)
    assert len(names) == len(set(names))
    for entry in SWEEPS:
        assert entry.sweep.weight > 0
        assert entry.aim is None or entry.aim > 0


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_breaks_no_promise(name: str) -> None:
    """Some points of some chunks of each sweep."""
    chunks, at_most = SLICES[name]
    command = [sys.executable, "-m", "tests.sweeps.worker", name, "--chunks", chunks, "--at-most", str(at_most)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["violations"] == [], "see one again: python -m tests.sweeps --chunk NAME:NUMBER"
    assert told["points"] >= 6
