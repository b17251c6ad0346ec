"""G7: The same journal gives the same bytes of state on every supported Python, backend, hash seed, locale, time zone,
batch size and checkpoint spacing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.checkpoint import CheckpointPolicy
from tests.guarantees.domain import DOMAINS, Domain
from tests.guarantees.workload import told

ROOT = Path(__file__).parents[2]

SURROUNDINGS: dict[str, dict[str, str]] = {
    "hash seed 0": {"PYTHONHASHSEED": "0"},
    "hash seed 1 and C": {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Pacific/Apia", "PYTHONUTF8": "0"},
    "hash seed 77 and Turkish": {
        "PYTHONHASHSEED": "77",
        "LC_ALL": "tr_TR.UTF-8",
        "LANG": "tr_TR",
        "TZ": "Asia/Kathmandu",
    },
    "random and optimised": {
        "PYTHONHASHSEED": "random",
        "PYTHONOPTIMIZE": "2",
        "TZ": "UTC-14",
        "PYTHONMALLOC": "malloc",
    },
}


def elsewhere(python: str, surroundings: dict[str, str]) -> dict[str, Any]:
    """Run the workload in another process; return what it told."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "TZ", "PYTHON"))}
    done = subprocess.run(
        [python, "-m", "tests.guarantees.workload"],
        cwd=ROOT,
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **surroundings},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    """What the workload tells in this process."""
    answer: dict[str, Any] = json.loads(json.dumps(told()))
    return answer


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_the_surroundings_move_nothing(here: dict[str, Any], surroundings: str) -> None:
    """G7: hash seed, locale, encoding, time zone and optimisation change no digest, link, line or checkpoint byte."""
    assert elsewhere(sys.executable, SURROUNDINGS[surroundings]) == here


def other_pythons() -> list[str]:
    """Return the interpreters that ``REFOLD_PYTHONS`` names, separated as in PATH; CI names all that are supported."""
    return [python for python in os.environ.get("REFOLD_PYTHONS", "").split(os.pathsep) if python]


def test_other_pythons_move_nothing(here: dict[str, Any]) -> None:
    """G7: every interpreter that is named to this test gives the very same bytes; this one is always among them."""
    for python in [sys.executable, *other_pythons()]:
        assert elsewhere(python, {}) == here, python


def given(domain: Domain, seed: int, count: int) -> list[Any]:
    """Return commands that a run of this domain accepts one after the other."""
    random = Random(seed)
    run = domain.store("memory:").run("r")
    commands = []
    for _ in range(count):
        command = run.ask(lambda state: domain.command(random, state))
        before = run.position
        try:
            run.submit(command)
        except Exception:
            continue
        if run.position > before:
            commands.append(command)
    return commands


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_backend_batch_size_and_spacing_move_nothing(domain: Domain, tmp_path: Path) -> None:
    """G7: the same commands, in memory or in a file, in commits of any size, with checkpoints anywhere, are one
    state."""
    commands = given(domain, seed=31, count=120)
    assert len(commands) > 50
    digests = set()
    for number, (size, spacing) in enumerate([(1, None), (1, 1), (2, 3), (7, 10), (1000, None), (13, 1)]):
        for url in ("memory:", tmp_path / f"{number}.db"):
            with domain.store(url, policy=CheckpointPolicy(every_events=spacing)) as store:
                run = store.run("r")
                for start in range(0, len(commands), size):
                    with run.batch():
                        for command in commands[start : start + size]:
                            run.submit(command)
                digests |= {run.digest(), store.run("r").digest(), store.view("r", start="genesis").digest()}
    assert len(digests) == 1
