"""The locks of a store file: nothing that this process does beside SQLite, and no fork of it, may give one away."""

from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from engine.core.errors import BackendUnavailable
from engine.doctor import diagnose
from engine.store import sqlite_connections, sqlite_files
from engine.store.errors import translation_of
from tests.engine.kit import toy_store
from tests.guarantees.crash import Writer
from tests.toy import BANK, Open, Pay

LOOKS: dict[str, Callable[[Path], object]] = {
    "open": lambda path: toy_store(path).close(),
    "open and keep": toy_store,
    "open to read": lambda path: toy_store(path, read_only=True).close(),
    "doctor": lambda path: diagnose(path, BANK),
}

OPEN = Path("/proc/self/fd")

APPEND = """
import sys
from tests.engine.kit import toy_store
from tests.toy import Open
with toy_store(sys.argv[1]) as store:
    store.run("other").submit(Open(account="a"))
"""

POSITIONS = """
import sys
from tests.engine.kit import toy_store
with toy_store(sys.argv[1]) as store:
    print({summary.run: summary.position for summary in store.runs()})
"""

TRY_TO_LOCK = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error)
"""

STOPPED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
index = os.open(sys.argv[1] + "-shm", os.O_RDWR)  # never closed: that would give the lock back
before = os.pread(index, 48, 0)
if sys.argv[2] == "torn":
    os.pwrite(index, b"\\xff" * 4, 8)
print("holds", flush=True)
sys.stdin.readline()
os.pwrite(index, before, 0)
connection.execute("ROLLBACK")
print("gone on", flush=True)
"""


def elsewhere(code: str, path: Path) -> str:
    """Run code in another process, on the store at ``path``; return what it printed."""
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def descriptors() -> set[str]:
    """Return the descriptors that this process has open, with what they are open to."""
    return {f"{number}: {number.readlink()}" for number in OPEN.iterdir() if number.is_symlink()}


@contextmanager
def stopped(path: Path, where: str) -> Iterator[None]:
    """Have another process stand still while it holds the write lock: ``open`` in its transaction, or ``torn`` half-way
    through telling others of its commit."""
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(path), where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        try:
            yield
        finally:
            holder.stdin.write("go on\n")
            holder.stdin.flush()
            assert holder.stdout.readline() == "gone on\n"


@pytest.mark.parametrize("look", list(LOOKS.values()), ids=list(LOOKS))
def test_a_look_at_an_open_store_does_not_let_others_take_it_for_closed(
    look: Callable[[Path], object], tmp_path: Path
) -> None:
    """Another process that closes the store is not the last one, and leaves the log that we go on appending to."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        kept = look(path)
        elsewhere(APPEND, path)
        run.submit(Pay(account="a", amount=5))
        assert elsewhere(POSITIONS, path) == "{'other': 1, 'r': 2}"
        del kept
    with toy_store(path) as store:
        assert [store.verify(summary.run).ok for summary in store.runs()] == [True, True]


@pytest.mark.parametrize("look", list(LOOKS.values()), ids=list(LOOKS))
def test_a_look_at_a_store_that_is_written_to_does_not_let_others_write(
    look: Callable[[Path], object], tmp_path: Path
) -> None:
    """The write lock of a transaction outlives whatever else its process does with the store."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        store.run("r").submit(Open(account="a"))
        with store._backend._datastore.transaction(commit=True):
            kept = look(path)
            assert elsewhere(TRY_TO_LOCK, path) == "database is locked"
            del kept
        assert elsewhere(TRY_TO_LOCK, path) == ""


def test_looks_do_not_pile_up_descriptors(tmp_path: Path) -> None:
    """However often a store is opened beside an open one, this process holds so many descriptors and no more; when
    all is closed, none is left after the next look at any store."""
    if not OPEN.is_dir():
        pytest.skip("this system has no list of open descriptors")
    path, other = tmp_path / "refold.db", tmp_path / "other.db"
    toy_store(other).close()
    before = descriptors()
    with toy_store(path) as store:
        store.run("r").submit(Open(account="a"))
        toy_store(path).close()
        some = len(descriptors())
        for _ in range(20):
            toy_store(path).close()
        assert len(descriptors()) == some
    toy_store(other).close()
    assert descriptors() == before


def test_a_store_may_be_opened_in_a_forked_child(tmp_path: Path) -> None:
    """A child that opens the store of its parent for itself has locks of its own: the parent closes it, and nothing
    that the child appends is lost."""
    path = tmp_path / "refold.db"
    closed, go_on = os.pipe()
    store = toy_store(path)
    store.run("r").submit(Open(account="a"))

    def work(acknowledge: Callable[[int, int], None]) -> None:
        run = toy_store(path).run("r")
        acknowledge(run.submit(Pay(account="a", amount=1)).position, 1)
        os.read(closed, 1)
        acknowledge(run.submit(Pay(account="a", amount=2)).position, 1)

    writer = Writer(work)
    while store.run("r").position < 2:
        pass
    store.close()
    os.write(go_on, b".")
    assert writer.wait() == [(2, 1), (3, 1)]
    with toy_store(path) as again:
        assert again.run("r").position == 3


def test_a_fork_waits_for_threads_that_write(tmp_path: Path) -> None:
    """Threads go on through forks without an error, and children append beside them."""
    path = tmp_path / "refold.db"
    store = toy_store(path)
    failed: list[BaseException] = []
    written: list[int] = []
    enough = threading.Event()

    def work(name: str) -> None:
        try:
            run = store.run(name)
            run.submit(Open(account="a"))
            while not enough.is_set():
                written.append(run.submit(Pay(account="a", amount=1)).position)
                assert store.view(name).position == run.position
        except BaseException as error:
            failed.append(error)

    def append(_: object) -> None:
        toy_store(path).run(f"child-{os.getpid()}").submit(Open(account="a"))

    threads = [threading.Thread(target=work, args=(f"thread-{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(15):
        children.append(Writer(append))
        children[-1].wait()
    enough.set()
    for thread in threads:
        thread.join()
    assert failed == []
    store.close()
    with toy_store(path) as again:
        runs = {summary.run: summary.position for summary in again.runs()}
        assert all(again.verify(run).ok for run in runs)
    assert len(runs) == 3 + len(children)
    assert sum(position for run, position in runs.items() if run.startswith("thread")) == 3 + len(written)


def test_a_store_that_is_garbage_during_a_fork_is_closed_after_it(tmp_path: Path) -> None:
    """One that nobody holds any more may be collected at any moment, also between the two ends of a fork."""

    def fork_and_collect() -> None:
        gc.disable()
        try:
            left: list[object] = [toy_store(tmp_path / "refold.db")]
            left.append(left)  # a circle: nothing but the collector finds it
            del left
            sqlite_files._before_fork()
            gc.collect()
            sqlite_files._in_parent()
        finally:
            gc.enable()

    forking = threading.Thread(target=fork_and_collect, daemon=True)
    forking.start()
    forking.join(20)
    assert not forking.is_alive(), "the collector waits for a lock that the fork holds"


def test_a_connection_that_its_owner_lost_holds_up_no_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between making a connection and keeping it leaves one that only the collector finds: the child has
    the store all the same."""
    monkeypatch.setattr(sqlite_files, "FORK_PATIENCE_S", 0.05)
    path = tmp_path / "refold.db"
    store = toy_store(path)
    gc.disable()
    try:
        store._backend._datastore.pool.connect().execute("SELECT 1 FROM stored_events").fetchall()
        writer = Writer(lambda acknowledge: acknowledge(toy_store(path).run("r").submit(Open(account="a")).position, 1))
        writer.wait()
    finally:
        gc.enable()
    assert store.run("r").submit(Open(account="b")).position == 2
    store.close()


def test_a_child_forked_in_mid_transaction_is_refused_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a thread does not let go of its connection in time, the child gets a typed error and no store without
    locks; the parent notices nothing."""
    monkeypatch.setattr(sqlite_files, "FORK_PATIENCE_S", 0.05)
    path, other = tmp_path / "refold.db", tmp_path / "other.db"
    store = toy_store(path)

    def work(acknowledge: Callable[[int, int], None]) -> None:
        with pytest.raises(BackendUnavailable, match="was in use by another thread") as caught:
            toy_store(path)
        assert caught.value.retryable and "spawn" in caught.value.hint
        with pytest.raises(BackendUnavailable, match="before this process was forked"):
            store.run("r")
        store.close()
        Writer(lambda _: None).wait()  # a child of its own
        acknowledge(toy_store(other).run("r").submit(Open(account="a")).position, 1)

    store.run("r").submit(Open(account="a"))
    with store._backend._datastore.transaction(commit=True) as cursor:
        cursor.execute("PRAGMA cache_size=2")  # so that pages go into the log before the commit
        for position in range(1, 60):
            cursor.execute("INSERT INTO stored_checkpoints VALUES ('r', ?, 'nothing', zeroblob(20000))", (position,))
        writer = Writer(work)
        assert writer.wait() == [(1, 1)]
    assert store.checkpoints.positions("r") == list(range(59, 0, -1))
    store.checkpoints.delete("r")
    assert store.run("r").submit(Pay(account="a", amount=1)).position == 2


@pytest.mark.parametrize("where", ["open", "torn"])
def test_a_writer_that_stands_still_makes_others_wait_and_then_say_so(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a writer that is stopped for longer than the busy timeout others get a typed, retryable error and have
    written nothing; as soon as it goes on, so do they. (When ``torn``, SQLite waits for ten seconds, whatever it is
    told.)"""
    monkeypatch.setattr(sqlite_connections, "BUSY_TIMEOUT_S", 0.1)
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        with stopped(path, where):
            with pytest.raises(BackendUnavailable, match="is locked by another process") as caught:
                run.submit(Pay(account="a", amount=5), command_id="pay")
            assert caught.value.retryable
            if where == "open":  # readers do not wait for a writer
                assert store.view("r").position == run.position == 1
        assert run.submit(Pay(account="a", amount=5), command_id="pay").position == 2
        assert store.verify("r").ok


def test_giving_up_on_a_stopped_writer_is_called_a_lock() -> None:
    """SQLite has a name of its own for it, which would tell nobody what to do."""
    error = sqlite3.OperationalError("locking protocol")
    error.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL
    found = translation_of(error, "refold.db")
    assert isinstance(found, BackendUnavailable) and "is locked by another process" in found.message


def test_a_second_opening_of_a_new_store_takes_no_lock_away(tmp_path: Path) -> None:
    """Many threads that make one store at once all get it, and it is one store."""
    path = tmp_path / "refold.db"
    failed: list[BaseException] = []
    start = threading.Barrier(6)

    def work(name: str) -> None:
        try:
            start.wait()
            with closing(toy_store(path)) as store:
                store.run(name).submit(Open(account="a"))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(f"r{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with toy_store(path) as store:
        assert len(store.runs()) == 6
