"""Saving what can be saved: the new store is complete or not there, wherever it is to go and whatever strikes."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import rescue
from engine import salvage as salvaging
from engine.core.envelope import Commit
from engine.core.errors import BackendUnavailable, EngineError, Refused
from engine.doctor import diagnose, salvage
from engine.store import new_file, sqlite_connections
from tests.engine.kit import raw, toy_store
from tests.engine.wreck import Wreck, all_is_saved, examined, make_wreck
from tests.guarantees.crash import Writer
from tests.toy import BANK, Open, Pay


@pytest.fixture
def wreck(tmp_path: Path) -> Wreck:
    """A store whose run ``small`` is damaged in the middle, so that something lies behind."""
    wreck = make_wreck(tmp_path / "store")
    with raw(wreck.path) as connection:
        connection.execute(
            "UPDATE stored_events SET state=CAST(state||x'00' AS BLOB) "
            "WHERE originator_id='small' AND originator_version=100"
        )
    return wreck


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder to save into."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


# -- where it goes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", ".rescued.jsonl", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize(
    "make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("nowhere")], ids=["file", "folder", "link"]
)
def test_nothing_is_replaced(wreck: Wreck, place: Path, end: str, make: Callable[[Path], Any]) -> None:
    """What has the name of the new store, or one that belongs to it, is refused and left alone: SQLite would take an
    old log for the new store's."""
    taken = place / f"new.db{end}"
    make(taken)
    with pytest.raises(Refused, match="exists") as caught:
        salvage(wreck.path, place / "new.db", BANK)
    assert caught.value.hint and str(taken) in caught.value.message
    assert list(place.iterdir()) == [taken]


def test_the_store_itself_is_not_replaced(wreck: Wreck) -> None:
    """Saving a store in its own place is refused."""
    before = wreck.hashes()
    with pytest.raises(Refused, match="exists"):
        salvage(wreck.path, wreck.path, BANK)
    assert wreck.hashes() == before


def test_a_place_that_cannot_be_written(wreck: Wreck, place: Path) -> None:
    """A folder that is not there, or is a file, is named."""
    (place / "file").touch()
    for target in (place / "nowhere" / "new.db", place / "file" / "new.db"):
        with pytest.raises(BackendUnavailable, match="cannot be written") as caught:
            salvage(wreck.path, target, BANK)
        assert caught.value.hint
    assert [path.name for path in place.iterdir()] == ["file"]


def test_a_long_name_and_a_relative_one(wreck: Wreck, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any name that a file may have is one for the new store."""
    monkeypatch.chdir(place)
    for name in ("x" * 200, "-new", "ü #?%41"):
        assert salvage(wreck.path, Path(name), BANK).store == name
        assert toy_store(place / name, create=False).verify("main").ok


ERRORS = (OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt())
STRIKES = [(name, error) for name in ("write", "delete", "fsync", "replace") for error in ERRORS]


@pytest.mark.parametrize(("name", "error"), STRIKES, ids=[f"{name} {type(error).__name__}" for name, error in STRIKES])
def test_what_strikes_in_the_middle_leaves_nothing(
    wreck: Wreck, place: Path, name: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error at any step is told as such, and neither store nor lines are there; the next attempt succeeds."""

    def strike(*_: Any, **__: Any) -> None:
        raise error

    owner, name = {
        "write": (new_file.NewFile, "write"),
        "delete": (salvaging, "delete_run"),
        "fsync": (os, "fsync"),
        "replace": (Path, "replace"),
    }[name]
    before = wreck.hashes()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, strike)
        with pytest.raises(BackendUnavailable if isinstance(error, OSError) else KeyboardInterrupt):
            salvage(wreck.path, place / "new.db", BANK)
    assert list(place.iterdir()) == [] and wreck.hashes() == before
    assert salvage(wreck.path, place / "new.db", BANK).rescued is not None


def test_a_full_disk_is_named(wreck: Wreck, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the new store cannot grow, that is said, and it is not there."""
    connect = sqlite_connections.Pool.connect

    def small(pool: sqlite_connections.Pool) -> sqlite3.Connection:
        made = connect(pool)
        made.execute("PRAGMA max_page_count=9")
        return made

    monkeypatch.setattr(sqlite_connections.Pool, "connect", small)
    with pytest.raises(BackendUnavailable, match="disk is full"):
        salvage(wreck.path, place / "new.db", BANK)
    assert list(place.iterdir()) == []


def test_a_log_that_could_not_be_emptied_is_no_success(
    wreck: Wreck, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite does not say when it could not bring all into the one file; the store without the rest is not kept."""
    monkeypatch.setattr(new_file.SqliteBackend, "close", lambda self: None)
    with pytest.raises(BackendUnavailable, match="cannot be written"):
        salvage(wreck.path, place / "new.db", BANK)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.2, 0.3, 0.4])
def test_a_kill_leaves_a_whole_store_or_none(wreck: Wreck, place: Path, after_s: float) -> None:
    """Killed at any moment, and begun again under the same name: whatever has that name is complete."""
    Writer(lambda _: salvage(wreck.path, place / "new.db", BANK) and None).kill_after(after_s)
    target, lines = place / "new.db", place / "new.db.rescued.jsonl"
    if not target.exists():
        lines.unlink(missing_ok=True)
        salvage(wreck.path, target, BANK)
    assert len(lines.read_text().splitlines()) == 162
    with toy_store(target, create=False) as store:
        assert {run.run: run.position for run in store.runs()} == {**wreck.truth.positions, "small": 99}
        assert all(store.verify(run.run).ok for run in store.runs())


def test_what_was_saved_is_a_store_like_any_other(wreck: Wreck, place: Path) -> None:
    """It is writable by whoever could write a new one, goes on, and the deleted run is still deleted."""
    saved = salvage(wreck.path, place / "new.db", BANK)
    assert saved.to_json()["store"] == str(place / "new.db")
    (place / "plain").touch()
    assert (place / "new.db").stat().st_mode == (place / "plain").stat().st_mode
    with toy_store(place / "new.db") as store:
        assert store.run("small").submit(Pay(account="s", amount=1)).position == 100
        with pytest.raises(EngineError):
            store.view("deleted")
        assert store.run("orphan").submit(Open(account="new")).position == 11
        assert [store.verify(run.run).ok for run in store.runs()] == [True] * len(wreck.truth.positions)


# -- what is told of the rest ---------------------------------------------------------------------------------


def test_the_lines_are_no_export(wreck: Wreck, place: Path) -> None:
    """They are evidence: no import takes them."""
    salvage(wreck.path, place / "new.db", BANK)
    lines = (place / "new.db.rescued.jsonl").read_text().splitlines()
    first, *rest = map(json.loads, lines)
    assert (first["seq"], first["proved"]) == (100, False), "its bytes can be read, and its link does not hold"
    assert [(line["seq"], line["proved"]) for line in rest] == [(seq, True) for seq in range(101, 262)]
    assert rest[0]["type"] == "account.paid/2" and rest[0]["data"]["amount"] == 199
    with toy_store(place / "other.db") as store, pytest.raises(EngineError):
        store.import_lines(lines)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(cbor2.undefined)
KEYS = st.integers() | st.text(max_size=3) | st.binary(max_size=2)
VALUES = st.recursive(
    PLAIN | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=6,
)
KINDS = st.sampled_from([kind.tag for kind in BANK.catalog.types])
WIRES = st.lists(VALUES, min_size=2, max_size=5) | st.tuples(KINDS, VALUES, VALUES, VALUES).map(list)
GROUPS = st.tuples(VALUES, VALUES, VALUES, VALUES, VALUES, st.lists(WIRES, min_size=1, max_size=3))


@given(st.lists(GROUPS, min_size=1, max_size=3), st.booleans())
def test_anything_behind_can_be_told(groups: list[Any], proved: bool) -> None:
    """Whatever a commit holds that was never checked, it becomes a line of JSON an event, which says what it is."""
    events = sum(len(group[5]) for group in groups)
    found = rescue.Behind("r", Commit(7, events, b"", [list(group) for group in groups]), proved)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in rescue.rescue_lines(found, BANK.catalog)]
    assert [line["seq"] for line in lines] == list(range(7, 7 + events))
    assert {(line["run"], line["proved"]) for line in lines} == {("r", proved)}
    "".join(map(str, lines)).encode()


# -- sound stores ---------------------------------------------------------------------------------


def test_a_sound_store_is_saved_as_it_is(tmp_path: Path) -> None:
    """Nothing is damaged, all is saved, and the checkpoints can be made anew."""
    wreck = make_wreck(tmp_path / "store")
    found = examined(wreck)
    assert found.diagnosis.ok and found.diagnosis.savable == ()
    all_is_saved(found, wreck)
    assert all(run.whole for run in found.saved.runs)


def test_steps_are_told(wreck: Wreck, place: Path) -> None:
    """Both verbs say how far they are, never beyond the end."""
    seen: dict[str, tuple[int, int]] = {}

    def step(what: str, done: int, of: int) -> None:
        assert 0 <= done <= of
        seen[what] = (done, of)

    diagnose(wreck.path, BANK, progress=step)
    assert seen["small"] == (261, 261) and seen["pages"][1] == 28
    seen.clear()
    salvage(wreck.path, place / "new.db", BANK, progress=step)
    assert seen["pages"][1] == 28
