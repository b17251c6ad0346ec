"""What is shipped: the entry point, the data in the wheel, the Makefile and the generated page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest

from engine.app import docs
from engine.app.recordings import recorded_runs

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _make(*args: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(["make", *args], cwd=ROOT, env=env, check=True, capture_output=True, text=True).stdout


def test_the_command_that_is_installed_exists() -> None:
    """The entry point ``refold`` names a function that is there."""
    module, _, function = PROJECT["project"]["scripts"]["refold"].partition(":")
    assert callable(getattr(import_module(module), function))


def test_every_data_file_travels_in_the_wheel() -> None:
    """Each file of the packages that is no Python is matched by a pattern of package-data."""
    patterns = PROJECT["tool"]["setuptools"]["package-data"]
    for package in ("engine", "projections"):
        shipped = {path for pattern in patterns[package] for path in (ROOT / package).glob(pattern)}
        data = {path for path in (ROOT / package).rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
        assert data == shipped


def test_every_folder_with_code_is_a_package() -> None:
    """No folder of the packages lacks its ``__init__.py``: setuptools would leave it out of the wheel."""
    for package in ("engine", "projections"):
        for path in (ROOT / package).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), path


@pytest.mark.parametrize("first", ["engine.open_store", "engine.testing", "engine.runs", "projections.model", "engine"])
def test_public_names_are_what_they_are_whatever_was_imported_first(first: str) -> None:
    """``from engine import open_store`` gives the function also after the module of that name was loaded."""
    code = (
        f"import {first}, engine; from engine import open_store; print(callable(open_store), "
        "all(not isinstance(getattr(engine, name), type(engine)) for name in engine.__all__))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"]


def test_the_recordings_of_the_demonstration_are_package_data() -> None:
    """The recorded kernel runs are found through the package, wherever it is installed."""
    assert files("engine.app").joinpath("data", "kernel-runs").is_dir()
    recorded = dict(recorded_runs())
    assert len(recorded) == 10 and "wf_quota" in recorded
    assert all({"decoded_inputs", "planned_steps", "task_tables"} <= set(run) for run in recorded.values())


def test_the_page_about_the_format_is_fresh() -> None:
    """``engine/FORMAT.md`` says what the code says; after a change of either: ``make docs``."""
    assert docs.PAGE.read_text(encoding="utf-8") == docs.render(), "run 'make docs' and commit engine/FORMAT.md"


def test_bare_make_lists_every_target() -> None:
    """``make`` alone prints the help and runs nothing; every target is in it."""
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    shown = _make()
    assert shown == _make("help")
    for target in phony[1].split():
        assert re.search(rf"^  {target} +\S", shown, re.MULTILINE), target
        assert _make("--dry-run", target)


def test_an_interpreter_that_is_too_old_is_named(tmp_path: Path) -> None:
    """Set-up with the wrong interpreter says what is needed and how to name another, and leaves nothing behind."""
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\ncase "$1" in --version) echo Python 3.9.1;; *) exit 1;; esac\n')
    old.chmod(0o755)
    venv = tmp_path / "venv"
    command = ["make", "venv", f"PYTHON={old}", f"VENV={venv}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0 and not venv.exists()
    assert "3.11" in done.stderr and "Python 3.9.1" in done.stderr and "make PYTHON=" in done.stderr


def test_ci_runs_what_the_readme_says() -> None:
    """``.ci/run`` is executable and is the README's own command."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK) and "make test" in script.read_text()
