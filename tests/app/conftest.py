"""A command line to call in-process, and a small store to call it on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine import open_store
from engine.app.cli import refold


@dataclass(frozen=True)
class Answer:
    """What a command gave: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON value on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error in the JSON on standard error, alone there."""
        shape = json.loads(self.err)
        assert list(shape) == ["error"]
        error: dict[str, Any] = shape["error"]
        return error


Cli = Callable[..., Answer]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """``refold`` in an empty folder, without a store in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REFOLD_STORE", raising=False)

    def run(*args: object) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            refold.main([str(arg) for arg in args], prog_name="refold")
        printed = capsys.readouterr()
        return Answer(int(ended.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def nightly(tmp_path: Path) -> Path:
    """A store with the run ``nightly``: 13 events, a checkpoint at 6, a finished and a running child."""
    path = tmp_path / "refold.db"
    clock = iter(range(1_700_000_000_000, 2_000_000_000_000, 1000))
    with open_store(path, clock=lambda: next(clock)) as store:
        run = store.run("nightly", actor="planner")
        tasks = run.tasks
        tasks.open_root("root")
        tasks.start("root")
        tasks.spawn("fetch", parent="root", role="explore", command_id="spawn-fetch")
        tasks.publish_launch("fetch")
        tasks.acknowledge_launch("fetch", 1)
        tasks.report_usage("fetch", tokens=120, turns=2)
        run.checkpoint()
        tasks.spawn("build", parent="root", role="implement", isolation="worktree", capability_ids=["shell"])
        tasks.publish_launch("build")
        tasks.acknowledge_launch("build", 1)
        tasks.suspend("root", wait="sub_agent_join", waiting_on=["fetch", "build"])
        tasks.finish("fetch", attempt=1, result={"final_message": "found it"}, command_id="finish-fetch")
        tasks.report_usage("build", tokens=2**60, turns=1)
        tasks.grant_capabilities("build", ["network"])
        assert run.position == 13
    return path


def flip(path: Path, table: str, position: int, at: int = -1) -> None:
    """Flip one bit of the stored row at a position."""
    with closing(sqlite3.connect(path)) as connection, connection:
        column = connection.execute(f"SELECT state FROM {table} WHERE originator_version=?", (position,)).fetchone()[0]
        changed = bytearray(column)
        changed[at] ^= 1
        connection.execute(f"UPDATE {table} SET state=? WHERE originator_version=?", (bytes(changed), position))
