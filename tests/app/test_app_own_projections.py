"""The command line over projections of the user's own: named by REFOLD_MODEL, they are shown, compared and audited like
refold's."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import open_store
from engine.core.model import Model
from engine.core.plain import PlainProjection
from projections.model import MODEL
from tests.app.conftest import Cli
from tests.testing.example_counter import ADDED, Add
from tests.toy import BANK, Open, Pay, Write

COUNTERS = PlainProjection(
    "counters",
    [ADDED],
    initial=dict,
    decide=lambda counters, command: [(ADDED, {"counter": command.counter, "by": command.by})],
    evolve=lambda counters, event: {**counters, event["counter"]: counters.get(event["counter"], 0) + event["by"]},
)
BOTH = Model((*MODEL.projections, *BANK.projections), MODEL.reactions, MODEL.guards)


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with counters, a plain projection."""
    monkeypatch.setenv("REFOLD_MODEL", f"{__name__}:COUNTERS")
    path = tmp_path / "refold.db"
    with open_store(path, model=Model((COUNTERS,)), clock=lambda: 5) as store:
        run = store.run("r")
        run.submit(Add(counter="own a", by=2))
        run.submit(Add(counter="own b", by=1))
        run.submit(Add(counter="own a", by=3))
    return path


def test_a_plain_projection_is_shown_as_it_says_itself(cli: Cli, counted: Path) -> None:
    """Its state's keys are the ids, now and in the past, for people and for programs."""
    assert "counters:\n\nid     record\nown a  5\nown b  1\n" in cli("show", "r").out
    shape = cli("show", "r", "--json").json
    assert shape["counters"] == {"own a": 5, "own b": 1} and "tasks" not in shape and "lifecycles" not in shape
    assert cli("show", "r", "--at", 1, "--json").json["counters"] == {"own a": 2}
    assert "counters: none" in cli("show", "r", "--at", 0).out
    assert cli("show", "r", "--tasks", "--json").error["code"] == "not_found"


def test_its_changes_are_told_and_proved(cli: Cli, counted: Path, tmp_path: Path) -> None:
    """diff names its records and fields; a state that was shown is one to compare with."""
    told = cli("diff", "r", 1, 3, "--json").json
    assert told["proved"]
    assert [(each["kind"], each["id"], each["before"], each["after"]) for each in told["changes"]] == [
        ("counters", "own a", 2, 5),
        ("counters", "own b", None, 1),
    ]
    (tmp_path / "state.json").write_text(cli("show", "r", "--json").out)
    assert "no difference" in cli("diff", "r", "--with", "state.json").out
    assert cli("diff", "r", "--with", "state.json", "--at", 2, "--exit-code").code == 1
    assert "state.value.own a: 2 -> 5" in cli("history", "r", "--changes").out
    for command in ("verify", "restore", "digest"):
        assert cli(command, "r").code == 0


def test_tables_without_a_form_of_their_own_are_shown_by_their_columns(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside refold's projections another one is a kind for each of its tables, each key as text."""
    monkeypatch.setenv("REFOLD_MODEL", f"{__name__}:BOTH")
    with open_store(tmp_path / "refold.db", model=BOTH, clock=lambda: 5) as store:
        run = store.run("r")
        run.tasks.open_root("root")
        run.submit(Open(account="a"))
        run.submit(Write(account="a", letter={"dear": "b"}))
        run.submit(Pay(account="a", amount=7))
    shape = cli("show", "r", "--json").json
    assert [row["task_id"] for row in shape["tasks"]] == ["root"]
    assert shape["bank.accounts"] == {"a": {"balance": 7, "letters": 1, "note": None}}
    assert shape["bank.letters"] == {"a/0": {"seq": 3, "text": {"dear": "b"}}}
    shown = cli("show", "r").out
    assert "tasks: 1 ready" in shown and 'a   {"balance": 7, "letters": 1, "note": null}' in shown
    (change,) = cli("diff", "r", 3, 4, "--json").json["changes"]
    assert (change["kind"], change["id"], change["path"], change["after"]) == ("bank.accounts", "a", "balance", 7)
