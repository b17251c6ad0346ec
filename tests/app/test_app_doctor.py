"""doctor: shapes, words and exit codes on a sound, a damaged and no store; what it saves, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import open_store
from engine.core.errors import BackendUnavailable
from engine.doctor import diagnose
from projections.model import MODEL
from tests.app.conftest import Cli, flip

SAVABLE = ["run", "whole", "position", "expected", "behind", "unproved", "note"]


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture
def damaged(nightly: Path) -> Path:
    """The store of ``nightly``, with one bit turned in the commit at 10."""
    flip(nightly, "stored_events", 10)
    return nightly


def test_a_sound_store(cli: Cli, nightly: Path) -> None:
    """Exit code 0, one line, and a JSON shape without findings; nothing is left beside the file."""
    before = hashes(nightly.parent)
    answer = cli("doctor")
    assert (answer.code, answer.out, answer.err) == (0, "refold.db: nothing is damaged (1 run)\n", "")
    shape = cli("doctor", "--json").json
    assert list(shape) == ["store", "ok", "findings", "runs", "savable", "salvaged"]
    assert shape["ok"] is True and shape["findings"] == shape["savable"] == [] and shape["salvaged"] is None
    assert shape["runs"] == [{"run": "nightly", "ok": True, "position": 13, "faults": []}]
    assert hashes(nightly.parent) == before


def test_a_damaged_store(cli: Cli, damaged: Path) -> None:
    """Exit code 1; a row a fault with its position, then what can be saved; the JSON says the same."""
    before = hashes(damaged.parent)
    answer = cli("doctor")
    assert answer.code == 1 and answer.err == ""
    lines = answer.out.splitlines()
    assert lines[0].split() == ["where", "position", "damage", "what", "hint"]
    assert lines[1].startswith("nightly        10  broken_link  expected link ")
    assert lines[3].split()[:6] == ["run", "can", "be", "saved", "of", "behind"]
    assert lines[4].split() == ["nightly", "1..9", "13", "3", "1"]
    answer = cli("doctor", "--json")
    assert answer.code == 1
    (saved,) = answer.json["savable"]
    assert list(saved) == SAVABLE
    assert [saved[key] for key in SAVABLE[:-1]] == ["nightly", False, 9, 13, 3, 1]
    assert answer.json["runs"][0]["faults"][0]["seq"] == 10
    assert hashes(damaged.parent) == before


def test_saving(cli: Cli, damaged: Path) -> None:
    """The new store holds what is before the damage, the file beside it the rest; the exit code still says that the
    old one is damaged, and the old one is as it was."""
    before = damaged.read_bytes()
    answer = cli("doctor", "--salvage", "new.db")
    assert answer.code == 1
    assert answer.out.splitlines()[-2:] == ["saved in new.db", "what lay behind the damage is in new.db.rescued.jsonl"]
    assert "can be saved" not in answer.out
    assert damaged.read_bytes() == before
    with open_store("new.db", create=False) as store:
        assert store.verify("nightly").ok and store.view("nightly").position == 9
    told = [json.loads(line) for line in Path("new.db.rescued.jsonl").read_text().splitlines()]
    assert [(line["seq"], line["proved"]) for line in told] == [(10, False), (11, True), (12, True), (13, True)]
    assert cli("--store", "new.db", "doctor").code == 0
    shape = cli("doctor", "--salvage", "other.db", "--json").json
    assert list(shape["salvaged"]) == ["store", "rescued", "runs"]
    assert (shape["salvaged"]["store"], shape["salvaged"]["rescued"]) == ("other.db", "other.db.rescued.jsonl")
    assert shape["salvaged"]["runs"][0]["position"] == 9 and shape["savable"] == []


def test_a_sound_store_can_be_saved_too(cli: Cli, nightly: Path) -> None:
    """Exit code 0, all of it is in the new store, and nothing lay behind."""
    answer = cli("doctor", "--salvage", "new.db")
    assert (answer.code, answer.out.splitlines()[-1]) == (0, "saved in new.db")
    assert not Path("new.db.rescued.jsonl").exists()
    assert cli("--store", "new.db", "digest", "nightly").out == cli("digest", "nightly").out


@pytest.mark.parametrize("name", ["new.db", "new.db.rescued.jsonl", "new.db-wal", "refold.db"])
def test_nothing_is_replaced(cli: Cli, damaged: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is taken is wrong usage, refused before a long look at the store."""
    Path(name).touch()
    monkeypatch.setattr("engine.doctor.diagnose", pytest.fail)
    before = hashes(damaged.parent)
    answer = cli("doctor", "--salvage", "new.db" if name != "refold.db" else name, "--json")
    assert (answer.code, answer.error["code"], answer.out) == (2, "refused", "")
    assert name in answer.error["message"] and answer.error["hint"]
    assert hashes(damaged.parent) == before


def test_a_place_that_cannot_be_written(cli: Cli, damaged: Path) -> None:
    """Store trouble, with the place; nothing is made."""
    answer = cli("doctor", "--salvage", "nowhere/new.db", "--json")
    assert (answer.code, answer.error["code"]) == (3, "backend_unavailable")
    assert "nowhere/new.db cannot be written" in answer.error["message"]


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (lambda path: None, 3, "not_found"),
        (lambda path: path.mkdir(), 3, "not_a_store"),
        (lambda path: path.touch(), 1, None),
        (lambda path: path.write_text("dear diary\n" * 500), 1, None),
    ],
    ids=["missing", "a folder", "empty", "text"],
)
def test_what_is_no_store(cli: Cli, make: Any, code: int, said: str | None) -> None:
    """What is no file is store trouble; a file that is no store, and may have been one, is a finding. No store is made
    of either."""
    make(Path("refold.db"))
    before = sorted(Path().iterdir())
    for args in (("doctor",), ("doctor", "--salvage", "new.db")):
        assert cli(*args).code == code
        answer = cli(*args, "--json")
        assert answer.code == code
        if said is not None:
            assert answer.error["code"] == said
        else:
            assert {finding["code"] for finding in answer.json["findings"]} & {"not_a_store", "damaged_file"}
            salvaged = answer.json["salvaged"]
            assert salvaged is None or (salvaged["store"], salvaged["rescued"]) == (None, None)
    if code == 1:
        assert "nothing can be saved" in cli("doctor").err
        assert "no store was made" in cli("doctor", "--salvage", "new.db").err
    assert sorted(Path().iterdir()) == before


def test_a_locked_store_is_store_trouble(cli: Cli, nightly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be looked at now is not called damaged."""

    def locked(*_: Any, **__: Any) -> None:
        raise BackendUnavailable("store refold.db is locked by another process", hint="try again")

    monkeypatch.setattr("engine.doctor.diagnose", locked)
    answer = cli("doctor", "--json")
    assert (answer.code, answer.error["code"], answer.out) == (3, "backend_unavailable", "")


def test_a_store_of_other_projections(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REFOLD_MODEL says by which projections the events are judged, here as everywhere."""
    from tests.engine.kit import fill, toy_store

    with toy_store(tmp_path / "refold.db") as store:
        fill(store.run("r"))
    assert cli("doctor").code == 1
    monkeypatch.setenv("REFOLD_MODEL", "tests.toy:BANK")
    assert cli("doctor").code == 0


def test_names_cannot_write_on_a_terminal(cli: Cli, tmp_path: Path) -> None:
    """A run may be called anything an id may be; what a terminal could act on is written as its number."""
    name = "a\u202eb"
    with open_store("refold.db") as store:
        store.run(name).tasks.open_root("root")
        store.run(name).tasks.spawn("child", parent="root")
    flip(tmp_path / "refold.db", "stored_events", 2)
    out = cli("doctor").out
    assert "\u202e" not in out and "\\u202e" in out


def test_progress_is_for_people(cli: Cli, damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parts of the work show how far they are, beside the answer and never in it."""
    plain = cli("doctor", "--salvage", "plain.db").out
    shown: dict[str, list[tuple[int, int]]] = {}

    @contextmanager
    def bar(label: str) -> Iterator[Callable[[int, int], None]]:
        yield lambda done, of: shown.setdefault(label, []).append((done, of))

    monkeypatch.setattr("engine.app.commands.doctor.progress_bar", bar)
    assert cli("doctor", "--salvage", "shown.db").out == plain.replace("plain.db", "shown.db")
    assert list(shown) == ["examining", "saving"] and (13, 13) in shown["examining"]


def test_the_command_says_what_the_verb_says(cli: Cli, damaged: Path) -> None:
    """``--json`` is the diagnosis, and nothing else."""
    shape = cli("doctor", "--json").json
    assert shape == {**diagnose("refold.db", MODEL).to_json(), "salvaged": None}
