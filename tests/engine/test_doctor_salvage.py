"""Saving what can be saved: the new store is complete or not there, wherever it is to go and whatever strikes; what is
no store is said to be none; what cannot be looked at now is no damage."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
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
from engine.core.errors import BackendUnavailable, EngineError, NotAStore, NotFound, Refused
from engine.doctor import diagnose, salvage
from engine.savable import Behind
from engine.store import new_file, sqlite_connections, sqlite_pages
from tests.engine.kit import fill, raw, toy_store
from tests.engine.wreck import Wreck, all_is_saved, examined, make_wreck
from tests.guarantees.crash import Acknowledge, Writer
from tests.toy import BANK, Open, Pay

ROOT = Path(__file__).parents[2]
KEPT: list[sqlite3.Connection] = []
"""Connections of processes that end without closing them."""


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
    found = Behind("r", Commit(7, events, b"", [list(group) for group in groups]), proved)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in rescue.rescue_lines(found, BANK.catalog)]
    assert [line["seq"] for line in lines] == list(range(7, 7 + events))
    assert {(line["run"], line["proved"]) for line in lines} == {("r", proved)}
    "".join(map(str, lines)).encode()


# -- what is no store ---------------------------------------------------------------------------------


def their_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a, b, c, d, e)")
        connection.execute("INSERT INTO theirs VALUES (NULL, 'r', 1, 'refold.commit/1', zeroblob(60))")


NO_STORES: dict[str, Callable[[Path], Any]] = {
    "empty": Path.touch,
    "text": lambda path: path.write_text("dear diary\n" * 2_000),
    "noise": lambda path: path.write_bytes(hashlib.shake_256(b"noise").digest(40_000)),
    "their database": their_database,
    "half a header": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xff" * 40),
}


@pytest.mark.parametrize("name", NO_STORES)
def test_what_is_no_store_is_said_to_be_none(tmp_path: Path, place: Path, name: str) -> None:
    """It is a finding, and left alone; no store is made of it."""
    path = tmp_path / "refold.db"
    NO_STORES[name](path)
    before = path.read_bytes()
    found = diagnose(path, BANK, alone=True)
    assert not found.ok and {finding.code for finding in found.findings} & {"not_a_store", "damaged_file"}
    assert all(finding.problem and finding.hint for finding in found.findings)
    saved = salvage(path, place / "new.db", BANK)
    assert saved.store is None and [run.position for run in saved.runs] in ([], [0])
    assert (
        path.read_bytes() == before
        and sorted(tmp_path.iterdir()) == [place, path]
        and list(place.iterdir()) == ([] if saved.rescued is None else [place / "new.db.rescued.jsonl"])
    )


@pytest.mark.parametrize(
    "verb", [diagnose, lambda url, model: salvage(url, Path("new.db"), model)], ids=["diagnose", "salvage"]
)
def test_what_is_no_file_is_refused(tmp_path: Path, verb: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each for its own reason, with a hint, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("dangling").symlink_to("nowhere")
    cases: list[tuple[Any, type[EngineError], str]] = [
        ("folder", NotAStore, "is a folder"),
        ("pipe", NotAStore, "is not a file"),
        ("nothing", NotFound, "no store at"),
        ("dangling", NotFound, "no store at"),
        ("memory:", NotAStore, "is no file"),
        ("postgres://x/y", NotAStore, "is no file"),
        ("", NotAStore, "is no file"),
        ("a\0b", NotAStore, "is no file"),
    ]
    for url, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            verb(url, BANK)
        assert caught.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "folder", "pipe"]


# -- what cannot be looked at now ---------------------------------------------------------------------------------


def test_a_locked_store_is_not_a_damaged_one(wreck: Wreck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds the whole file keeps the doctor out: that is said, and is no finding."""
    monkeypatch.setattr(sqlite_connections, "BUSY_TIMEOUT_S", 0.1)
    holder = sqlite3.connect(wreck.path, isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(BackendUnavailable, match="locked"):
        diagnose(wreck.path, BANK)
    holder.close()
    assert not diagnose(wreck.path, BANK).ok


def test_a_change_that_must_be_undone_first_is_not_damage(tmp_path: Path) -> None:
    """What a power cut left of a store in the making is for a writer to undo; until then nothing is known of it."""
    path = tmp_path / "refold.db"

    def work(_: Acknowledge) -> None:
        making = sqlite3.connect(path, isolation_level=None)
        KEPT.append(making)
        making.execute("PRAGMA cache_size=1")
        making.execute("BEGIN IMMEDIATE")
        making.execute("CREATE TABLE half_made (x)")
        making.executemany("INSERT INTO half_made VALUES (?)", [("x" * 4000,)] * 20)

    Writer(work).wait()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(before) == {"refold.db", "refold.db-journal"}
    for look in (
        lambda: diagnose(path, BANK),
        lambda: diagnose(path, BANK, alone=True),
        lambda: toy_store(path, read_only=True),
    ):
        with pytest.raises(BackendUnavailable, match="undone first") as caught:
            look()
        assert "for writing" in caught.value.hint
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    toy_store(path).close()
    assert diagnose(path, BANK, alone=True).ok


def test_a_store_that_is_written_to_is_examined(tmp_path: Path) -> None:
    """An open store has nothing wrong with it, and its writer notices nothing."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        run = store.run("r")
        fill(run)
        for _ in range(3):
            assert diagnose(path, BANK).ok
            run.submit(Pay(account="a", amount=1))
        saved = salvage(path, tmp_path / "new.db", BANK)
        assert [(line.run, line.position, line.whole) for line in saved.runs] == [("r", run.position, True)]
    assert diagnose(path, BANK).ok


def test_a_disk_that_cannot_be_read_is_damage(wreck: Wreck, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that the disk does not give back costs what is on it and no more."""
    with raw(wreck.path) as connection:
        try:
            (page,) = connection.execute(
                "SELECT pageno FROM dbstat WHERE name='stored_events' AND path='/000/'"
            ).fetchone()
        except sqlite3.OperationalError:
            pytest.skip("this SQLite cannot say what its pages hold")
    read = os.pread

    def failing(file: int, size: int, offset: int) -> bytes:
        if (size, offset) == (4096, 4096 * (page - 1)):
            raise OSError(errno.EIO, "Input/output error")
        return read(file, size, offset)

    monkeypatch.setattr(sqlite_pages.os, "pread", failing)
    saved = {run.run: run for run in salvage(wreck.path, place / "new.db", BANK).runs}
    assert saved["main"].position == 0 and saved["main"].behind > 0
    assert saved["other"].position == wreck.truth.positions["other"]
    with toy_store(place / "new.db", create=False) as store:
        assert all(store.verify(run.run).ok for run in store.runs())


AS_NOBODY = """
import os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from engine.core.errors import EngineError
from engine.doctor import diagnose, salvage
from tests.engine.kit import toy_store
from tests.toy import BANK
toy_store("memory:").run("r").position  # what is imported late, is imported now: nobody may not read our libraries
os.setgid(65534); os.setuid(65534)
try:
    print(diagnose({path!r}, BANK, alone=True).ok)
    print([run.whole for run in salvage({path!r}, Path({new!r}), BANK).runs])
except EngineError as error:
    print(type(error).__name__, bool(error.hint), error.message)
"""


UNREADABLE = "BackendUnavailable True store {path} cannot be read: Permission denied"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("left", [False, True], ids=["closed", "left"])
@pytest.mark.parametrize("index", [True, False], ids=["with index", "without"])
@pytest.mark.parametrize(("mode", "expected"), [(0o444, "True"), (0o000, UNREADABLE)], ids=["readable", "not"])
def test_a_folder_that_may_only_be_read(left: bool, index: bool, mode: int, expected: str) -> None:
    """A store on what cannot be written is examined and saved all the same, with its log and without an index of it;
    one that may not even be read is said so."""
    with tempfile.TemporaryDirectory() as top:  # pytest's own folders are closed to other users
        Path(top).chmod(0o777)
        wreck = make_wreck(Path(top, "store"), left=left)
        if not index:
            wreck.index.unlink(missing_ok=True)
        for path in wreck.folder.iterdir():
            path.chmod(mode)
        before = wreck.hashes()
        wreck.folder.chmod(0o555)
        script = AS_NOBODY.format(root=str(ROOT), path=str(wreck.path), new=str(Path(top, "new.db")))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        wreck.folder.chmod(0o755)
        runs = len(wreck.truth.positions) + len(wreck.truth.hidden)
        whole = f"\n{[True] * runs}" if mode else ""
        assert done.stdout.strip() == expected.format(path=wreck.path) + whole, done.stderr
        assert wreck.hashes() == before


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
