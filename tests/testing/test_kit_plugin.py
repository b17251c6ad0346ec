"""The pytest plugin, as another project meets it: seeds, stores, and the journal of a failure."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BUILD_SERVER = {
    "CI",
    "__TOX_ENVIRONMENT_VARIABLE_ORIGINAL_CI",
    "TF_BUILD",
    "bamboo.buildKey",
    "BUILDKITE",
    "CIRCLECI",
    "CIRRUS_CI",
    "CODEBUILD_BUILD_ID",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "HEROKU_TEST_RUN_ID",
    "TEAMCITY_VERSION",
}
"""The variables by which Hypothesis knows a build server."""

TESTS = """
import pytest
from engine.core.errors import Refused
from engine.testing import SimulatedCrash, restore_machine
from hypothesis import settings, Phase
from counter import COUNTERS

def test_random(refold_random, refold_seed):
    print("drew", refold_random.randrange(10**9), "of", refold_seed)
    assert refold_random.randrange(2) == 5, "to see the seed"

def test_store(refold_store):
    assert refold_store.run("r").position == 0 and refold_store.model.by_name.keys() == {"counters"}

def test_crash(refold_crashable):
    refold_crashable.arm("append.before")
    from counter import Add
    with pytest.raises(SimulatedCrash):
        refold_crashable.store.run("r").submit(Add(counter="a", by=1))
    assert refold_crashable.reopen().run("r").position == 0

class TestCounters(restore_machine(COUNTERS).TestCase):
    settings = settings(max_examples=30, stateful_step_count=8, database=None, deadline=None, phases=[Phase.generate])
"""

CONFTEST = """
import pytest
from counter import COUNTERS

@pytest.fixture
def refold_model():
    return COUNTERS
"""


def pytest_in(
    folder: Path, *arguments: str, seed: str | None = None, on_a_build_server: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder with the two plugins and no others; as on a build server, where Hypothesis derandomises by
    itself, or as anywhere else, wherever these tests run."""
    environment = {
        **{name: value for name, value in os.environ.items() if name not in BUILD_SERVER},
        **({"CI": "true"} if on_a_build_server else {}),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    for name in ("REFOLD_FAILURES", "REFOLD_SEED", "REFOLD_SEED_DRAWN", "HYPOTHESIS_PROFILE"):
        environment.pop(name, None)
    if seed is not None:
        environment["REFOLD_SEED"] = seed
    plugins = ("-p", "_hypothesis_pytestplugin", "-p", "engine.testing.plugin", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *plugins, *arguments, str(folder)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of somebody else's, with a projection and tests."""
    folder = tmp_path_factory.mktemp("project")
    example = (ROOT / "tests" / "testing" / "example_counter.py").read_text(encoding="utf-8")
    (folder / "counter.py").write_text(example.replace("TestCounters = ", "Machine = "), encoding="utf-8")
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "test_counter.py").write_text(TESTS, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def ran(project: Path) -> str:
    """What pytest said when it ran all of the project's tests."""
    return pytest_in(project, "--refold-failures", str(project / "kept")).stdout


def test_stores_seeds_and_failures_in_another_project(project: Path, ran: str) -> None:
    """The seed is printed first and with the failure; the stores have the project's model; a machine that fails leaves
    a journal where it was told to."""
    (seed,) = set(re.findall(r"--refold-seed=(\d+)", ran))
    assert ran.count(f"seed {seed}") >= 2, ran
    assert "2 failed, 2 passed" in ran, ran
    assert f"REFOLD_MODEL=counter:COUNTERS refold import {project / 'kept' / 'counters.jsonl'}" in ran
    assert (project / "kept" / "counters.jsonl").exists()


def test_a_seed_that_is_given_again_gives_the_same(project: Path, ran: str) -> None:
    """What was drawn under a seed is drawn again under it."""
    ((number, seed),) = re.findall(r"drew (\d+) of (\d+)", ran)
    again = pytest_in(project, f"--refold-seed={seed}", "-k", "test_random").stdout
    assert re.findall(r"drew (\d+) of (\d+)", again) == [(number, seed)]


def told(output: str) -> list[str]:
    """What is said of a machine's failure: the steps, the seed and the journal."""
    return re.findall(r"^E +(state\..*|seed \d+;.*|no seed: .*|journal: .*)$", output, re.MULTILINE)


def test_a_machine_fails_again_under_the_seed_that_its_failure_names(project: Path, ran: str) -> None:
    """The seed of the session is the machine's too: given again, or from the environment, it gives the same steps."""
    (seed,) = set(re.findall(r"^E +seed (\d+); repeat with --refold-seed=\1, or REFOLD_SEED=\1$", ran, re.MULTILINE))
    kept = ("--refold-failures", str(project / "kept"), "-k", "TestCounters")
    again = pytest_in(project, f"--refold-seed={seed}", *kept).stdout
    assert told(again) == told(ran) and len(told(ran)) >= 4
    assert told(pytest_in(project, *kept, seed=seed).stdout) == told(ran)


def test_on_a_build_server_each_run_takes_the_same_steps_unless_a_seed_is_given(project: Path, ran: str) -> None:
    """Hypothesis derandomises there: no seed is drawn, and the failure says so. A seed that is given, by the option or
    in the environment, goes before that, and gives the steps that it gives elsewhere."""
    kept = ("--refold-failures", str(project / "kept"), "-k", "TestCounters")
    there = told(pytest_in(project, *kept, on_a_build_server=True).stdout)
    assert "no seed: the settings are derandomised, and each run takes these steps" in there and len(there) >= 4
    assert told(pytest_in(project, *kept, on_a_build_server=True).stdout) == there
    (seed,) = set(re.findall(r"--refold-seed=(\d+)", ran))
    for given in (
        pytest_in(project, f"--refold-seed={seed}", *kept, on_a_build_server=True),
        pytest_in(project, *kept, seed=seed, on_a_build_server=True),
    ):
        assert told(given.stdout) == told(ran)


def test_the_journal_of_a_failure_is_opened_as_it_says(project: Path, ran: str, tmp_path: Path) -> None:
    """The line that a failure prints is a command that imports the journal, from any folder; then it can be shown."""
    (line,) = {text.partition("open it: ")[2] for text in told(ran) if text.startswith("journal: ")}
    (tmp_path / "refold").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m engine.app "$@"\n')
    (tmp_path / "refold").chmod(0o755)
    store = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "REFOLD_STORE": str(tmp_path / "found.db")}
    environment = {**os.environ, **store, "PYTHONPATH": str(ROOT)}
    run = json.loads((project / "kept" / "counters.jsonl").read_text(encoding="utf-8").partition("\n")[0])["run"]
    show = re.sub(r"refold import .*", f"refold show {run}", line)
    done = subprocess.run(
        ["sh", "-c", f"{line} && {show}"], cwd=project, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^counters:\n\nid +record\n\S+ +\d+$", done.stdout, re.MULTILINE), done.stdout


def test_the_plugin_is_declared_and_light() -> None:
    """pytest finds it by its entry point; loading it loads neither Hypothesis nor the engine."""
    assert 'refold = "engine.testing.plugin"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    heavy = ("hypothesis", "eventsourcing", "pydantic", "cbor2")
    code = f"import engine.testing.plugin, sys; print(*set({heavy}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
