"""What the doctor is given and is no store, or cannot be looked at now: the one is said, the other is no damage."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import BackendUnavailable, EngineError, NotAStore, NotFound
from engine.doctor import diagnose, salvage
from engine.store import sqlite_connections, sqlite_pages
from tests.engine.kit import fill, raw, toy_store
from tests.engine.wreck import Wreck, make_wreck
from tests.guarantees.crash import Acknowledge, Writer
from tests.toy import BANK, Pay

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
