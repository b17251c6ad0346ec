"""The demonstration: it proves what it says, and it would notice if it were not so."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import open_store
from engine.app import tour
from engine.app.crash import go_on, kill_in_mid_run
from engine.app.tour import Step, take
from engine.app.writer import take_step
from engine.core.errors import BackendUnavailable
from tests.app.conftest import Cli


def test_the_demonstration_proves_what_it_says(cli: Cli) -> None:
    """In an empty folder the demonstration imports, kills, restores and proves; its store can be looked at after."""
    answer = cli("demo", "--json")
    assert (answer.code, answer.err) == (0, "")
    shape = answer.json
    assert list(shape) == ["store", "ok", "imported", "killed", "restored", "forked", "proofs"]
    assert shape["ok"] is True and shape["store"] == "refold-demo.db"
    assert len(shape["imported"]) == 10 and all(run["tables_equal"] == run["steps"] for run in shape["imported"])
    assert shape["killed"]["exit_code"] == -9 and shape["killed"]["acknowledged"] >= 400
    assert shape["restored"]["used"] == 300 and shape["restored"]["events_folded"] > 0
    assert all(proof["holds"] for proof in shape["proofs"]) and len(shape["proofs"]) == 9
    at = shape["restored"]["position"]
    digest = cli("digest", "crash", "--at", at, "--store", "refold-demo.db").out.strip()
    assert digest == shape["restored"]["digest"]
    assert cli("verify", "--all", "--store", "refold-demo.db").code == 0
    forks = [run for run in cli("runs", "--json", "--store", "refold-demo.db").json if run["origin"] is not None]
    assert [(run["run"], run["origin"], run["origin_position"]) for run in forks] == [("what-if", "crash", at)]
    assert shape["forked"] == {"run": "what-if", "origin": "crash", "origin_position": at, "events": len(alive(at))}
    changes = cli("diff", f"crash@{at}", "what-if", "--store", "refold-demo.db", "--json").json["changes"]
    assert [change["id"] for change in changes if change["path"] == "termination"] == alive(at)


def alive(at: int) -> list[str]:
    """Return the tasks of the killed run that were alive at a position."""
    with open_store("refold-demo.db") as store:
        return [row.task_id for row in store.view("crash", at=at).tasks.live()]


def test_the_tour_shows_commands_with_their_real_output(cli: Cli) -> None:
    """Every stop prints its command and what that gives; the damaged copy is a finding, and the tour is good."""
    shown = cli("demo", "--tour")
    assert (shown.code, shown.err) == (0, "")
    commands = [line.split() for line in shown.out.splitlines() if line.startswith("$ refold ")]
    words = {word for command in commands for word in command}
    assert {"restore", "history", "why", "diff", "fork", "verify", "explain", "show", "runs"} <= words
    assert "should have ended" not in shown.out and "broken_link" in shown.out
    for command in commands:
        if not {"fork", "restore", "runs"} & set(command):  # the others say the same again
            again = cli(*command[2:])
            assert again.out in shown.out and again.code == (1 if "refold-demo-damaged.db" in command else 0), command


def stops() -> list[Step]:
    return [Step("One", "first", ("explain", "conflict")), Step("Two", "second", ("explain", "zzz"), exit_code=0)]


def test_a_stop_that_ends_otherwise_is_seen(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    """Each stop's exit code is compared with the one that it should have; nothing is printed unless aloud."""
    seen = take(iter(stops()), aloud=False)
    assert [(stop["exit_code"], stop["expected"]) for stop in seen] == [(0, True), (2, False)]
    assert "conflict: " in seen[0]["output"] and seen[0]["command"] == "refold explain conflict"
    assert capsys.readouterr().out == ""
    take(iter(stops()), aloud=True)
    shown = capsys.readouterr().out
    assert "$ refold explain conflict\nconflict: " in shown and "should have ended with exit code 0, not 2" in shown


def test_on_a_terminal_the_tour_waits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Before every stop but the first Enter is awaited, and q ends the tour."""
    monkeypatch.setattr(tour, "stdout_is_terminal", lambda: True)
    monkeypatch.setattr(tour, "is_terminal", lambda _: True)
    asked: list[str] = []
    monkeypatch.setattr(tour.click, "prompt", lambda text, **_: asked.append(text) or "")
    assert len(take(iter(stops()), aloud=True)) == 2 and len(asked) == 1
    monkeypatch.setattr(tour.click, "prompt", lambda text, **_: "q")
    assert len(take(iter(stops()), aloud=True)) == 1


def test_a_second_demonstration_takes_another_name(cli: Cli) -> None:
    """The store of an earlier one stays as it is; a named file must be new."""
    Path("refold-demo.db").write_text("mine")
    shown = cli("demo")
    assert shown.code == 0 and "refold-demo-2.db" in shown.out and "FAILED" not in shown.out
    assert (shown.out.count("proved") == 9 and "sub_agent_join" in shown.out) or "running" in shown.out
    assert Path("refold-demo.db").read_text() == "mine"
    answer = cli("demo", "--store", "refold-demo.db", "--json")
    assert answer.code == 2 and answer.error["code"] == "refused"
    assert cli("demo", "--store", "memory:", "--json").error["message"] == "memory: is no file"
    assert cli("demo", "--store", "no/such/folder.db", "--json").error["code"] == "file_error"


def test_a_lost_event_makes_the_demonstration_fail(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """When an acknowledged position is not there, that proof fails and the exit code is 1."""
    from engine.app import crash

    def boasting(*args: object, **more: object) -> crash.Crash:
        real = kill_in_mid_run(*args, **more)  # type: ignore[arg-type]
        return crash.Crash((*real.acknowledged, real.acknowledged[-1] + 5), real.exit_code)

    monkeypatch.setattr(crash, "kill_in_mid_run", boasting)
    answer = cli("demo")
    assert answer.code == 1
    assert (answer.out.count("proved  "), answer.out.count("FAILED  all ")) == (8, 1)


def test_the_writer_is_one_process_or_many(tmp_path: Path) -> None:
    """Writers that are killed after every few steps write what one writer would have written: it keeps nothing."""
    with open_store("memory:") as store:
        run = store.run("r")
        for _ in range(60):
            take_step(run)
        expected = run.digest()
    path = tmp_path / "store.db"
    for steps in (1, 19, 40):
        position = go_on(path, "r", steps=steps)
    with open_store(path) as store:
        assert store.run("r").position == position == 60
        assert store.run("r").digest() == expected


def test_a_writer_that_cannot_work_is_reported(tmp_path: Path) -> None:
    """A writer process that fails is an error with its last words, not a hang."""
    with pytest.raises(BackendUnavailable, match="is a folder"):
        kill_in_mid_run(tmp_path, "r", after=3)
    with pytest.raises(BackendUnavailable, match="is a folder"):
        go_on(tmp_path, "r", steps=3)
