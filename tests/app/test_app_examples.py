"""What the help shows works: every example of every command is run, in a folder as a user could have it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import chdir
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

import engine.bench
from engine import open_store
from engine.app.cli import COMMANDS, refold
from engine.app.recordings import recorded_runs
from engine.runs import LiveRun
from tests.app.conftest import Cli, flip

MORNING = int(datetime(2026, 5, 1, 11, 30, tzinfo=UTC).timestamp() * 1000)
MINUTE_MS = 60_000


def lines_of(name: str) -> Iterator[str]:
    """Yield the lines of a command's help that begin with ``refold``, without the texts beside them."""
    command = refold.get_command(click.Context(refold), name)
    assert command is not None
    for line in (command.help or "").partition("Example")[2].splitlines():
        if line.strip().startswith("refold "):
            yield line.strip()


EXAMPLES = [line for name in COMMANDS for line in lines_of(name)]


def fill(run: LiveRun) -> None:
    """Give a run something of everything, in more than 42 events around noon."""
    tasks = run.tasks
    tasks.open_root("root")
    tasks.start("root")
    for name in ("fetch", "build"):
        tasks.spawn(name, parent="root", role="explore", command_id=f"spawn-{name}")
        tasks.publish_launch(name)
        tasks.acknowledge_launch(name, 1)
    tasks.suspend("root", wait="sub_agent_join", waiting_on=["fetch", "build"])
    run.contexts.create("chat", model_window=4000, principal="ada")
    run.contexts.append("chat", {"role": "user", "text": "please fetch it"})
    nodes: list[Any] = [
        {"id": 0, "title": "compile", "description": "make it"},
        {"id": 1, "title": "test", "description": "try it", "depends_on": [0]},
    ]
    run.graphs.create("build", "ship it", nodes)
    run.graphs.start("build")
    run.swarm.start(2)
    run.checkpoint()
    for turn in range(30):
        tasks.report_usage("fetch", tokens=turn, turns=1)
    tasks.finish("fetch", attempt=1, result={"final_message": "found it"}, actor="fetcher")
    run.checkpoint()
    run.swarm.complete_action(0, "look", success=True)
    assert run.position > 45 and run.at(42).tasks.get("build").lifecycle == "running"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store and the files that the examples name."""
    path = tmp_path_factory.mktemp("user")
    clock = iter(range(MORNING, MORNING * 2, MINUTE_MS))
    with chdir(path), open_store("refold.db", clock=lambda: next(clock)) as store:
        run = store.run("nightly", actor="planner")
        fill(run)
        fork = run.fork("what-if", at=42)
        fork.tasks.finish("build", attempt=1, termination="error")
        Path("nightly.jsonl").write_text("".join(f"{line}\n" for line in store.export_lines("nightly")))
        Path("chat.json").write_text(json.dumps(run.contexts.to_record("chat")))
        Path("plan.json").write_text(json.dumps({**run.graphs.get("build").to_json(), "id": "plan"}))
        Path("state.json").write_text(json.dumps({"tasks": run.tasks.rows().to_json()}))
        Path("recording.json").write_text(json.dumps(dict(recorded_runs())["wf_quota"]))
    for name in ("agents.db", "damaged.db"):
        shutil.copy(path / "refold.db", path / name)  # closed by now, so that all of it is in the one file
    flip(path / "damaged.db", "stored_events", 40)
    return path


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_the_help_works(
    cli: Cli, folder: Path, tmp_path: Path, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line succeeds as it stands, or finds the damage, and says something; a conversation is imported
    where it is not yet."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    measure = engine.bench.run
    monkeypatch.setattr(engine.bench, "run", lambda names, rounds, scale, note: measure(["P8"], 1, 0.01, note))
    if "chat.json" in example:
        monkeypatch.setenv("REFOLD_STORE", "new.db")
    words = shlex.split(example.partition(" > ")[0])
    assert words[0] == "refold"
    answer = cli(*words[1:])
    assert (answer.code, answer.out != "") == (1 if "damaged.db" in words else 0, True), answer


def test_there_are_examples_of_every_command() -> None:
    """No command is without one, and each begins with the command's own name."""
    for name in COMMANDS:
        named = [re.sub(r"--store \S+ ", "", line).split()[1] for line in lines_of(name)]
        assert named and set(named) == {name}


def test_the_examples_leave_the_folder_of_the_tests_alone(folder: Path) -> None:
    """Each example had a copy: the store that all began with is as it was."""
    with chdir(folder), open_store("refold.db", create=False) as store:
        assert [run.run for run in store.runs()] == ["nightly", "what-if"]
    assert os.fspath(Path.cwd()) != os.fspath(folder)
