"""The five questions of an audit, each answered by one command of the README on the store that the demo left."""

from __future__ import annotations

import re
import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from engine import open_store
from engine.app.cli import refold
from tests.app.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("### Asking a record")[2].partition("\n### ")[0]
COMMANDS = re.findall(r"^\$ refold (.*)$", SECTION, re.MULTILINE)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demonstration has run."""
    folder = tmp_path_factory.mktemp("demo")
    with chdir(folder), pytest.raises(SystemExit) as ended:
        refold.main(["demo", "--json"], prog_name="refold")
    assert ended.value.code == 0
    return folder


@pytest.fixture
def asked(cli: Cli, demo: Path, tmp_path: Path) -> Cli:
    """The command line in a copy of that folder."""
    shutil.copytree(demo, tmp_path, dirs_exist_ok=True)
    return cli


def the_command(word: str, *more: str) -> list[str]:
    """Return the one command of the README's section that has these words."""
    [found] = [line.split() for line in COMMANDS if {word, *more} <= set(line.split())]
    return found


def test_there_is_one_command_a_question() -> None:
    """Five questions, five commands, and nothing that has to be done before."""
    assert len(COMMANDS) == SECTION.count("```console\n") == 5


def test_what_was_a_task_waiting_for_at_noon(asked: Cli) -> None:
    """``why`` at a time names what it waited for, since when, and what each of these was doing."""
    command = the_command("why", "--at-time")
    answer = asked(*command)
    sentence = answer.out.splitlines()[0]
    at_ms = 1_700_000_006_000
    with open_store("refold-demo.db") as store:
        past = store.run("wf_quota").at(time_ms=at_ms)
        row = past.tasks.get("root")
        assert past.position < store.run("wf_quota").position, "it is a question about the past"
    assert answer.code == 0 and row.lifecycle == "suspended" and len(row.waiting_on) == 2
    assert sentence.startswith("root is suspended since #6, waiting on ")
    assert all(f"{child} (" in sentence for child in row.waiting_on)
    told = asked(*command[:-1], at_ms, "--json").json
    assert told["answer"] == sentence and told["position"] == past.position


def test_who_changed_it_last(asked: Cli) -> None:
    """``history``, newest first, one row: when, by whom, because of what, and what it changed."""
    command = the_command("history", "--newest-first")
    shown = asked(*command)
    assert shown.code == 0 and len(shown.out.splitlines()) == 2
    [event] = asked(*command, "--json").json
    with open_store("refold-demo.db") as store:
        last = list(store.history("wf_quota", task="root"))[-1]
    assert (event["seq"], event["actor"], event["cause"]) == (last.seq, "deepstrike", "in-11")
    changed = {(change["field"], change["after"]) for change in event["changes"]}
    assert changed == {("lifecycle", "done"), ("termination", "completed")}
    assert "deepstrike" in shown.out and "root.lifecycle: running -> done" in shown.out


def test_what_changed_between_two_checkpoints(asked: Cli) -> None:
    """``diff --checkpoints`` needs no position; the same two by their positions give the same."""
    command = the_command("diff", "--checkpoints")
    told = asked(*command, "--json").json
    with open_store("refold-demo.db") as store:
        newer, older = store.checkpoints.positions("crash")[:2]
        found = store.run("crash").diff(older, newer)
    assert told["proved"] is True and told["patch"] == list(found.patch) and told["changes"]
    assert f"from crash@{older} to crash@{newer}" in asked(*command).out


def test_is_this_record_intact(asked: Cli) -> None:
    """``verify`` says yes with exit code 0; after one flipped bit, no with 1, and where."""
    command = the_command("verify")
    shown = asked(*command)
    assert shown.code == 0 and "intact" in shown.out
    with open_store("refold-demo.db") as store:
        row = list(store.journal.raw("crash"))[99]
    content = bytearray(Path("refold-demo.db").read_bytes())
    content[content.find(row.stored) + 40] ^= 4
    Path("refold-demo.db").write_bytes(content)
    damaged = asked(*command, "--json")
    assert damaged.code == 1 and damaged.json["faults"][0]["seq"] == row.first
    assert damaged.json["faults"][0]["code"] == "broken_link"


def test_what_would_have_happened_on_a_fork(asked: Cli) -> None:
    """``diff`` of the run and its fork: what the fork did not go on to do, and how it ended instead."""
    command = the_command("diff", "what-if")
    told = asked(*command, "--json").json
    assert told["proved"] is True
    ended = {change["id"]: change["after"] for change in told["changes"] if change["path"] == "termination"}
    assert ended["root"] == "user_abort" and len(ended) >= 2
    assert asked(*command).out.startswith("from crash@")
