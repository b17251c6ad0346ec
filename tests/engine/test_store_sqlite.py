"""The SQLite store meets everything a path can hold, and every way a database can fail, with a typed error and a
hint."""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import BackendUnavailable, EngineError, NotAStore, NotFound, ReadOnly, SchemaError
from engine.open_store import Store
from engine.store import sqlite as sqlite_module
from engine.store import sqlite_connections
from engine.store.sqlite_log import is_cut_short
from tests.engine.kit import fill, raw, toy_store
from tests.toy import Open, Pay

ROOT = Path(__file__).parents[2]


def make(path: Path) -> str:
    """Make a store with one run in it; return the run's digest."""
    with toy_store(path) as store:
        run = store.run("r")
        fill(run)
        return run.digest()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a tenth of a second for a lock, not half a minute."""
    monkeypatch.setattr(sqlite_connections, "BUSY_TIMEOUT_S", 0.1)


# -- what a path may hold ---------------------------------------------------------------------------------


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def other_application(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id=12345")
        connection.execute("PRAGMA user_version=1")


def newer_store(path: Path) -> None:
    make(path)
    with raw(path) as connection:
        connection.execute("PRAGMA user_version=99")


def half_a_header(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 40)


@pytest.mark.parametrize(
    ("prepare", "kind", "message"),
    [
        (lambda path: path.mkdir(), NotAStore, "is a folder"),
        (lambda path: path.write_text("dear diary\n"), NotAStore, "is not a SQLite database"),
        (lambda path: path.write_bytes(b"SQLite"), NotAStore, "is not a SQLite database"),
        (other_database, NotAStore, "of another program"),
        (other_application, NotAStore, "of another program"),
        (half_a_header, EngineError, "refold.db"),
        (newer_store, SchemaError, "format 99"),
        (lambda path: path.symlink_to(path.parent / "nowhere" / "x"), BackendUnavailable, "cannot be made"),
        (lambda path: os.mkfifo(path), NotAStore, "is not a file"),
    ],
    ids=["folder", "text", "short", "their tables", "their mark", "half a header", "newer", "dangling link", "pipe"],
)
@pytest.mark.parametrize("create", [True, False])
def test_what_is_not_our_store_is_refused_and_left_alone(
    tmp_path: Path, prepare: Callable[[Path], Any], kind: type[EngineError], message: str, create: bool
) -> None:
    """Each is refused for its own reason with a hint, and not a byte of it changes."""
    path = tmp_path / "refold.db"
    prepare(path)
    before = path.read_bytes() if path.is_file() else b""
    if not create and path.is_symlink():
        kind, message = NotFound, "no store"
    with pytest.raises(kind, match=message) as caught:
        toy_store(path, create=create)
    assert caught.value.hint
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_missing_store_is_made_only_when_asked_for(tmp_path: Path) -> None:
    """Without ``create`` a missing file is NotFound and stays missing; a missing folder is never made."""
    path = tmp_path / "refold.db"
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(NotFound, match="no store at"):
            toy_store(path, **options)
    with pytest.raises(BackendUnavailable, match="folder"):
        toy_store(tmp_path / "no" / "refold.db")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """An empty file, which a killed first opening leaves behind, is a store yet to be made; not for a reader,
    though."""
    path = tmp_path / "refold.db"
    path.touch()
    with pytest.raises(NotAStore, match="empty"):
        toy_store(path, read_only=True)
    make(path)
    assert toy_store(path).view("r").position == 11


@pytest.mark.parametrize(
    "name",
    ["a b.db", "ü?#%41&mode=memory.db", ":memory:", "file::memory:?cache=shared", "-dash", "x" * 200, "new\nline"],
)
def test_any_file_name_is_a_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No name is taken for an option or a database in memory: the store is in the file of exactly that name."""
    monkeypatch.chdir(tmp_path)
    digest = make(Path(name))
    assert (tmp_path / name).stat().st_size > 0
    with toy_store(Path(name)) as store:
        assert store.view("r").digest() == digest
    assert {path.name.removesuffix("-wal").removesuffix("-shm") for path in tmp_path.iterdir()} == {name}


def test_a_name_that_is_no_unicode_is_a_file_name(tmp_path: Path) -> None:
    """A file name of any bytes that the system allows works."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.db"))
    digest = make(path)
    with toy_store(path) as store:
        assert store.view("r").digest() == digest


@pytest.mark.parametrize(
    "url", ["", "a\0b", Path("a\0b"), "mysql://x", "postgres:///x", "http://x", "://", "memory://"]
)
def test_a_url_that_names_no_backend_is_refused(url: Any) -> None:
    """An unknown scheme, nothing, and what no file can be called are refused, not guessed at."""
    with pytest.raises(BackendUnavailable) as caught:
        toy_store(url)
    assert caught.value.hint


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that moves to another folder keeps writing to the file it opened."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with toy_store("refold.db") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        fill(store.run("r"))
        assert store.view("r").position == 11
    with toy_store(tmp_path / "refold.db", create=False) as store:
        assert store.view("r").position == 11
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_sqlite_urls_name_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes are relative, four absolute."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "refold.db")
    for url in ("sqlite:///refold.db", f"sqlite:///{tmp_path}/refold.db", "refold.db"):
        with toy_store(url, create=False) as store:
            assert store.view("r").position == 11


# -- permissions ---------------------------------------------------------------------------------


def test_a_store_opened_for_reading_refuses_commands(tmp_path: Path) -> None:
    """Reading works, every write is refused as ReadOnly, and the run is as before."""
    path = tmp_path / "refold.db"
    digest = make(path)
    with toy_store(path, read_only=True) as store:
        run = store.run("r")
        with pytest.raises(ReadOnly, match="for reading") as caught:
            run.submit(Pay(account="a", amount=1))
        assert caught.value.hint
        with pytest.raises(ReadOnly):
            run.checkpoint()
        assert run.digest() == digest == store.view("r").digest()
        assert store.verify("r").ok


AS_NOBODY = """
import os, sys
sys.path.insert(0, {root!r})
from tests.engine.kit import toy_store
from tests.toy import Pay
from engine.core.errors import EngineError
toy_store("memory:").run("r").position  # what is imported late, is imported now: nobody may not read our libraries
os.setgid(65534); os.setuid(65534)
try:
    with toy_store({path!r}) as store:
        print(store.run("r").position)
        store.run("r").submit(Pay(account="a", amount=1))
        print("written")
except EngineError as error:
    print(type(error).__name__, bool(error.hint), error.message)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "expected"),
    [
        (0o000, 0o777, "BackendUnavailable True store {path} cannot be read: Permission denied"),
        (0o444, 0o777, "11\nBackendUnavailable True store {path} is read-only"),
        (None, 0o555, "BackendUnavailable True store {path} cannot be made: Permission denied"),
    ],
    ids=["unreadable", "unwritable file", "unwritable folder"],
)
def test_permissions_are_named(file_mode: int | None, folder_mode: int, expected: str) -> None:
    """A file or folder that may not be read or written is a typed error that says so."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    try:
        path = folder / "refold.db"
        if file_mode is not None:
            make(path)
            path.chmod(file_mode)
        folder.chmod(folder_mode)
        script = AS_NOBODY.format(root=str(ROOT), path=str(path))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == expected.format(path=path), done.stderr
    finally:
        folder.chmod(stat.S_IRWXU)
        shutil.rmtree(folder)


# -- the disk ---------------------------------------------------------------------------------


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    """A commit that does not fit is refused as such; state and journal are as before, and go on when there is room."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        before = run.state_bytes()
        writer = store._backend._datastore._writer  # type: ignore[attr-defined]
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(BackendUnavailable, match="disk is full") as caught:
            run.submit(Open(account="b", note=random.Random(0).randbytes(50_000).hex()))
        assert caught.value.retryable
        assert run.state_bytes() == before == toy_store(path).run("r").state_bytes()
        writer.execute("PRAGMA max_page_count=100000")
        assert run.submit(Open(account="b", note=random.Random(0).randbytes(50_000).hex())).position == 2


FILE_TOO_LARGE = """
import resource, signal, sys
sys.path.insert(0, {root!r})
from tests.engine.kit import toy_store
from tests.toy import Open, Pay
from engine.core.errors import EngineError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = toy_store({path!r})
run = store.run("r")
run.submit(Open(account="a"))
acknowledged, errors = 1, 0
resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
for number in range(60):
    try:
        run.submit(Pay(account="a", amount=number, note="x" * 3000) if number != 13 else Open(account="b"))
        acknowledged += 1
    except EngineError as error:
        assert type(error).__name__ == "BackendUnavailable", error
        errors += 1
print(acknowledged, run.position, bool(errors), run.digest())
"""


@pytest.mark.parametrize("room", [20_000, 60_000, 100_000])
def test_writes_cut_short_by_the_system_lose_no_acknowledged_command(tmp_path: Path, room: int) -> None:
    """When the system stops a file from growing in mid-write, what was acknowledged is there, and nothing else."""
    path = tmp_path / "refold.db"
    script = FILE_TOO_LARGE.format(root=str(ROOT), path=str(path), room=room)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    acknowledged, position, failed, digest = done.stdout.split()
    assert acknowledged == position
    assert failed == "True"
    with toy_store(path) as store:
        assert store.view("r").position == int(position)
        assert store.view("r").digest() == digest
        assert store.verify("r").ok
        assert store.run("r").submit(Pay(account="a", amount=1)).position == int(position) + 1


# -- locks ---------------------------------------------------------------------------------


def test_a_store_locked_by_another_is_named_and_loses_nothing(tmp_path: Path, impatient: None) -> None:
    """A writer that waits in vain gets BackendUnavailable; reading goes on meanwhile, writing afterwards."""
    path = tmp_path / "refold.db"
    make(path)
    with toy_store(path) as store:
        run = store.run("r")
        before = run.state_bytes()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable, match="locked") as caught:
            run.submit(Pay(account="a", amount=1))
        assert caught.value.retryable
        with pytest.raises(BackendUnavailable, match="locked"):
            run.checkpoint()
        assert run.state_bytes() == before == store.view("r").state_bytes()
        other.execute("COMMIT")
        other.close()
        assert run.submit(Pay(account="a", amount=1)).position == 12
        assert run.checkpoint() is not None


def test_a_lock_that_is_given_up_in_time_is_waited_for(tmp_path: Path) -> None:
    """A writer does not fail because another is writing: it waits for its turn."""
    path = tmp_path / "refold.db"
    make(path)
    with toy_store(path) as store:
        run = store.run("r")
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, lambda: other.execute("COMMIT"))
        timer.start()
        assert run.submit(Pay(account="a", amount=1)).position == 12
        timer.join()
        other.close()


def _open_and_write(path: str, number: int, gate: Any, results: Any) -> None:
    gate.wait()
    try:
        with toy_store(path) as store:
            run = store.run(f"run-{number}")
            run.submit(Open(account="a"))
            results.put((number, "ok"))
    except BaseException as error:
        results.put((number, repr(error)))


def test_many_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    """D35: sixteen processes that find no store make one, together, and each writes its run."""
    context = multiprocessing.get_context("fork")
    gate, results = context.Event(), context.Queue()
    path = str(tmp_path / "refold.db")
    processes = [context.Process(target=_open_and_write, args=(path, number, gate, results)) for number in range(16)]
    for process in processes:
        process.start()
    gate.set()
    answers = dict(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
    assert set(answers.values()) == {"ok"}
    with toy_store(path) as store:
        assert [line.position for line in store.runs()] == [1] * 16


# -- closed, forked ---------------------------------------------------------------------------------


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """After close every verb is BackendUnavailable with a hint; closing twice is fine."""
    path = tmp_path / "refold.db"
    make(path)
    store = toy_store(path)
    run = store.run("r")
    run.submit(Pay(account="a", amount=1))
    store.close()
    store.close()
    verbs: list[Callable[[], Any]] = [
        lambda: run.submit(Pay(account="a", amount=1)),
        run.refresh,
        run.checkpoint,
        lambda: store.run("r"),
        lambda: store.view("r"),
        store.runs,
        lambda: list(store.history("r")),
        lambda: store.verify("r"),
    ]
    for verb in verbs:
        with pytest.raises(BackendUnavailable, match="closed") as caught:
            verb()
        assert "open" in caught.value.hint


def test_a_store_does_not_cross_a_fork(tmp_path: Path) -> None:
    """A child process is told to open its own; the parent's handle goes on, and so does one the child opens."""
    path = tmp_path / "refold.db"
    make(path)
    store = toy_store(path)
    run = store.run("r")
    run.submit(Pay(account="a", amount=1))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover  # another process
        told = "nothing"
        try:
            for verb in (lambda: run.submit(Pay(account="a", amount=1)), run.refresh, lambda: store.view("r")):
                try:
                    verb()
                except BackendUnavailable as error:
                    told = error.message
                else:
                    told = "no error"
                    break
            with toy_store(path) as own:
                own.run("r").submit(Pay(account="a", amount=2))
        except BaseException as error:
            told = repr(error)
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        assert "forked" in answer.read()
    assert run.refresh() == 13
    assert run.submit(Pay(account="a", amount=3)).position == 14


def test_a_store_half_made_at_a_power_cut_is_made_anew(tmp_path: Path) -> None:
    """A journal that SQLite must undo first, beside a log: only a writer can do that, so looking at the log before
    must not stand in the way."""
    path = tmp_path / "refold.db"
    child = os.fork()
    if child == 0:  # pragma: no cover  # another process
        making = sqlite3.connect(path, isolation_level=None)
        making.execute("PRAGMA cache_size=1")
        making.execute("BEGIN IMMEDIATE")
        making.execute("CREATE TABLE half_made (x)")
        making.executemany("INSERT INTO half_made VALUES (?)", [("x" * 4000,)] * 20)
        os._exit(0)
    os.waitpid(child, 0)
    assert Path(f"{path}-journal").stat().st_size
    Path(f"{path}-wal").write_bytes(bytes(8192))
    with toy_store(path) as store:
        assert list(store.runs()) == []
        fill(store.run("r"))
        assert store.verify("r").ok


def test_a_log_that_could_not_be_begun_anew_is_not_damaged(tmp_path: Path) -> None:
    """A full disk may keep SQLite from writing the header of its next log; what stands in the file is in the store."""
    path = tmp_path / "refold.db"
    make(path)
    with toy_store(path) as store:
        run = store.run("r")
        for amount in range(3):
            run.submit(Pay(account="a", amount=amount))
        with raw(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(RESTART)")
        index = tmp_path / "refold.db-shm"
        header = bytearray(index.read_bytes()[:48])
        header[16:20] = bytes(4)  # no frame is in the log
        assert not is_cut_short(path, 4096)
        header[35] ^= 1  # a mark that the log's own header does not bear
        with index.open("r+b") as file:
            file.write(header * 2)
        assert not is_cut_short(path, 4096)


# -- settings ---------------------------------------------------------------------------------


def test_every_writing_connection_is_power_loss_durable(tmp_path: Path) -> None:
    """The connection that commits runs with synchronous=FULL in write-ahead mode: acknowledged means on disk."""
    with toy_store(tmp_path / "refold.db") as store:
        store.run("r").submit(Open(account="a"))
        writer = store._backend._datastore._writer  # type: ignore[attr-defined]
        assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert not writer.in_transaction


def test_a_store_is_known_by_its_header(tmp_path: Path) -> None:
    """The file says in its first hundred bytes that it is ours, and of which format."""
    path = tmp_path / "refold.db"
    make(path)
    header = path.read_bytes()[:100]
    assert header[:16] == b"SQLite format 3\0"
    assert header[68:72] == b"rfld"
    assert int.from_bytes(header[60:64], "big") == sqlite_module.STORE_FORMAT


def test_a_number_of_a_deleted_row_is_not_used_again(tmp_path: Path) -> None:
    """Readers that follow by row number miss nothing after a delete: the next row gets a new number."""
    path = tmp_path / "refold.db"
    make(path)
    with raw(path) as connection:
        (last,) = connection.execute("SELECT max(rowid) FROM stored_events").fetchone()
        connection.execute("DELETE FROM stored_events WHERE rowid=?", (last,))
    with toy_store(path) as store:
        store.run("other").submit(Open(account="a"))
    with raw(path) as connection:
        (new,) = connection.execute("SELECT rowid FROM stored_events WHERE originator_id='other'").fetchone()
    assert new > last


def test_a_reader_is_not_held_up_by_a_writer(file_store: Store) -> None:
    """History that is being read while others write shows a prefix of the run, without waiting."""
    run = file_store.run("r")
    fill(run)
    reading = file_store.history("r")
    seen = [next(reading).seq]
    fill_more = [run.submit(Pay(account="a", amount=number + 20)).position for number in range(200)]
    seen += [event.seq for event in reading]
    assert seen == list(range(1, len(seen) + 1))
    assert 11 <= len(seen) <= fill_more[-1]
