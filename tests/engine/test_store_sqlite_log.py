"""The write-ahead log: a store is refused when, and only when, damage keeps SQLite from commits in it that were
acknowledged. What a kill or a power cut may leave is never taken for damage."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from engine.core.errors import BackendUnavailable, NotAStore, NotFound
from engine.doctor import diagnose, salvage
from engine.store import sqlite_connections, sqlite_log
from engine.store.sqlite_log import is_cut_short, read_log
from tests.engine.kit import toy_store
from tests.engine.wreck import Wreck, all_is_saved, examined, make_wreck
from tests.guarantees.crash import Acknowledge, Writer
from tests.sweeps.kill import small_wal
from tests.toy import BANK, Open, Pay, Write

HEAD, FRAME_HEAD, PAGE = 32, 24, 4096
FRAME = FRAME_HEAD + PAGE
SECTOR = 512
FIELDS = {"page": (0, 4), "end mark": (4, 8), "salt": (8, 16), "checksum": (16, 24), "content": (24, FRAME)}


@dataclass(frozen=True)
class Frame:
    """A frame of a log as its bytes say: which page, and where the commit ends."""

    at: int
    page: int
    ends: int


def frames(log: Path) -> list[Frame]:
    data = log.read_bytes()
    return [
        Frame(at, int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big"))
        for at in range(HEAD, len(data) - FRAME + 1, FRAME)
    ]


def begin_of_last(log: Path) -> int:
    """Return where the last commit of a log begins."""
    found = frames(log)
    assert found[-1].ends
    before = [number for number, frame in enumerate(found[:-1]) if frame.ends]
    return found[before[-1] + 1].at


def turn(log: Path, at: int, bit: int) -> None:
    """Turn one bit of a file."""
    data = bytearray(log.read_bytes())
    data[at] ^= 1 << bit
    log.write_bytes(data)


def put(log: Path, at: int, what: bytes) -> None:
    with log.open("r+b") as file:
        file.seek(at)
        file.write(what)


@pytest.fixture
def wreck(tmp_path: Path) -> Wreck:
    """A store that a killed writer left, its last commits in the log only."""
    return make_wreck(tmp_path / "store", left=True)


def opens(path: Path) -> dict[str, int]:
    """Open a store for reading, and for writing; return how far its runs go. Nothing is written."""
    with toy_store(path, read_only=True) as store:
        seen = {run.run: run.position for run in store.runs()}
    with toy_store(path) as store:
        assert seen == {run.run: run.position for run in store.runs()}
        assert all(store.verify(run).ok for run in seen)
    return seen


def is_refused(wreck: Wreck) -> None:
    """Check that a store is refused, again and again, with nothing changed by it."""
    before = (wreck.path.read_bytes(), wreck.log.read_bytes())
    for options in ({}, {"read_only": True}, {"create": False}):
        with pytest.raises(NotAStore, match="is damaged: acknowledged commits") as caught:
            toy_store(wreck.path, **options)
        assert "refold doctor --salvage" in caught.value.hint
    assert (wreck.path.read_bytes(), wreck.log.read_bytes()) == before


# -- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
def test_a_turned_bit_before_the_last_commit_is_refused(tmp_path: Path, field: str) -> None:
    """Whatever frame it is in: SQLite would stop there, and the next commit would overwrite all behind."""
    dice = Random(field)
    for number in range(len(frames(make_wreck(tmp_path / "store", left=True).log))):
        wreck = make_wreck(tmp_path / "store", left=True)
        frame = frames(wreck.log)[number]
        if frame.at >= begin_of_last(wreck.log):
            break
        low, high = FIELDS[field]
        turn(wreck.log, frame.at + dice.randrange(low, high), dice.randrange(8))
        is_refused(wreck)
    else:
        pytest.fail("no last commit")


@pytest.mark.parametrize("byte", range(HEAD))
def test_a_turned_bit_in_the_header_is_refused(wreck: Wreck, byte: int) -> None:
    """SQLite ignores a log with a bad header, and overwrites it."""
    turn(wreck.log, byte, Random(byte).randrange(8))
    is_refused(wreck)
    found = examined(wreck)
    assert "damaged_log" in found.codes()
    all_is_saved(found, wreck)


@pytest.mark.parametrize("number", range(0, 22, 3))
def test_the_doctor_saves_what_lies_behind_the_damage(wreck: Wreck, number: int) -> None:
    """A bad checksum costs nothing at all; a page of zeros the rows that were in that page alone."""
    at = frames(wreck.log)[number].at
    assert at < begin_of_last(wreck.log)
    turn(wreck.log, at + 17, 3)
    found = examined(wreck)
    assert "damaged_log" in found.codes()
    all_is_saved(found, wreck)
    put(wreck.log, at + FRAME_HEAD, bytes(PAGE))
    is_refused(wreck)
    found = examined(wreck)
    assert "damaged_log" in found.codes()
    assert len(found.events["small"]) == 261, "what is in other pages, or also in an older one, is there"


@pytest.mark.parametrize("many", [1, 3, 70])
def test_a_stretch_of_zeros_is_refused(tmp_path: Path, many: int) -> None:
    """However long it is, the commits behind it are seen."""

    def work(acknowledge: Acknowledge) -> None:
        run = toy_store(tmp_path / "refold.db").run("r")
        run.submit(Open(account="a"))
        for amount in range(100, 180):
            run.submit(Pay(account="a", amount=amount))
        acknowledge(run.position, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    assert Writer(work).kill_after(1.0)
    log = tmp_path / "refold.db-wal"
    put(log, frames(log)[20].at, bytes(many * FRAME))
    with pytest.raises(NotAStore, match="is damaged"):
        toy_store(tmp_path / "refold.db")


@pytest.mark.parametrize("pages", [4, 8, 16])
def test_an_end_mark_that_becomes_none_is_seen(tmp_path: Path, pages: int) -> None:
    """Where one bit makes the end of a commit look like its middle, the checksum tells which bit it was."""
    path, log = tmp_path / "any.db", tmp_path / "any.db-wal"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (x)")
        while connection.execute("PRAGMA page_count").fetchone()[0] < pages:
            connection.execute("INSERT INTO t VALUES (zeroblob(2000))")
        connection.execute("UPDATE t SET x=x'01' WHERE rowid=1")
        connection.execute("UPDATE t SET x=x'02' WHERE rowid=1")
        connection.execute("UPDATE t SET x=x'03' WHERE rowid=1")
        shutil.copy(path, tmp_path / "copy.db")
        shutil.copy(log, tmp_path / "copy.db-wal")
    path, log = tmp_path / "copy.db", tmp_path / "copy.db-wal"
    last = frames(log)[-2]
    assert last.ends == pages
    put(log, last.at + 4, bytes(4))
    with log.open("rb") as file:
        assert read_log(file.fileno(), PAGE).commits_dropped == 1
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT x FROM t WHERE rowid=1").fetchone() == (b"\x01",)
        assert is_cut_short(path, PAGE)


def test_a_damaged_log_is_refused_beside_whoever_reads_it(wreck: Wreck) -> None:
    """Also while another connection has made an index of the good part, and to whoever may not write one."""
    turn(wreck.log, frames(wreck.log)[5].at + 100, 1)
    with closing(sqlite3.connect(f"file:{wreck.path}?mode=ro", uri=True)) as connection:
        connection.execute("SELECT count(*) FROM stored_events").fetchone()
        is_refused(wreck)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "emptied"])
def test_a_log_without_its_file_is_kept(wreck: Wreck, gone: bool) -> None:
    """SQLite removes the log of an empty file, and makes a new store over that of a missing one: neither is opened."""
    if gone:
        wreck.path.unlink()
    else:
        os.truncate(wreck.path, 0)
    before = wreck.hashes()
    for options in ({}, {"read_only": True}, {"create": False}):
        with pytest.raises(NotFound if gone and options else NotAStore, match=r"no store at|but its log is not"):
            toy_store(wreck.path, **options)
    assert wreck.hashes() == before
    wreck.path.touch()
    found = examined(wreck)
    assert not found.diagnosis.ok
    assert found.events["late"] == wreck.truth.events["late"], "all of it was in the log"
    wreck.log.unlink()
    with toy_store(wreck.path) as store:
        assert list(store.runs()) == []


def test_a_store_behind_a_link_has_its_log_looked_at(wreck: Wreck) -> None:
    """The log lies beside the file itself, whatever name led there."""
    link = wreck.folder.with_name("link.db")
    link.symlink_to(wreck.path)
    assert opens(link)["main"] == 57
    other = make_wreck(wreck.folder, left=True)
    turn(other.log, frames(other.log)[5].at + 100, 1)
    with pytest.raises(NotAStore, match="is damaged: acknowledged commits"):
        toy_store(link)
    assert "damaged_log" in {finding.code for finding in diagnose(link, BANK, alone=True).findings}
    assert {run.run: run.position for run in salvage(link, wreck.folder / "new.db", BANK).runs}["main"] == 57


# -- no damage ---------------------------------------------------------------------------------


def test_a_log_that_was_cut_opens(tmp_path: Path) -> None:
    """A kill or a power cut may leave a log of any length: what is whole of it counts."""
    dice = Random(1)
    size = make_wreck(tmp_path / "store", left=True).log.stat().st_size
    for length in (0, 1, 31, 32, 33, *(dice.randrange(size) for _ in range(15)), size - 1):
        wreck = make_wreck(tmp_path / "store", left=True)
        os.truncate(wreck.log, length)
        assert opens(wreck.path)["main"] in range(49, 58)


def test_a_last_commit_that_is_torn_opens(tmp_path: Path) -> None:
    """Any sectors of what was being written may be lost, or hold what was there before; all before it is there."""
    dice = Random(2)
    for attempt in range(25):
        wreck = make_wreck(tmp_path / "store", left=True)
        begin, size = begin_of_last(wreck.log), wreck.log.stat().st_size
        first = -(-begin // SECTOR)
        lost = [at * SECTOR for at in range(first, -(-size // SECTOR)) if dice.random() < (0.1, 0.5, 0.9)[attempt % 3]]
        for at in lost or [first * SECTOR]:
            put(wreck.log, at, (bytes(SECTOR) if dice.random() < 0.5 else dice.randbytes(SECTOR))[: size - at])
        wreck.index.unlink()
        assert opens(wreck.path)["main"] in (56, 57)


def test_a_copy_without_an_index_opens(wreck: Wreck) -> None:
    """The index means nothing: a copy of file and log is the store."""
    wreck.index.unlink()
    assert opens(wreck.path) == wreck.truth.positions
    other = make_wreck(wreck.folder.with_name("other"), left=True)
    other.index.write_bytes(Random(3).randbytes(32768))
    assert opens(other.path) == wreck.truth.positions


def begun_anew(path: Path, pages: int, acknowledge: Acknowledge) -> None:
    """Write so that the log is begun anew again and again, each time less long, over what it held before."""
    with small_wal(pages):
        run = toy_store(path).run("r")
        run.submit(Open(account="a"))
        dice = Random(pages)
        while True:
            size = dice.choice((10, 3_000, 20_000)) if run.position < 40 else 10
            outcome = run.submit(Write(account="a", letter=dice.randbytes(size).hex()))
            acknowledge(outcome.position, 1)


@pytest.mark.parametrize("pages", [1, 3, 20])
def test_a_log_that_was_begun_anew_opens_wherever_its_writer_dies(tmp_path: Path, pages: int) -> None:
    """What is left over from before bears other salts; the store opens after each kill, and goes on."""
    path = tmp_path / "refold.db"
    dice = Random(pages)
    for _ in range(6):
        told = Writer(lambda acknowledge: begun_anew(path, pages, acknowledge)).kill_after(dice.uniform(0.05, 0.6))
        if path.exists() and told:
            with toy_store(path) as store:
                assert store.run("r").position >= told[-1][0]
                assert store.verify("r").ok


SPILLS = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size=10")
connection.execute("PRAGMA cache_spill=5")
connection.execute("BEGIN IMMEDIATE")
for number in range(60):
    row = (1000 + number, "spilled", number + 1, "t", os.urandom(3000))
    connection.execute("INSERT INTO stored_events VALUES (?,?,?,?,?)", row)
if sys.argv[2] == "rolled back":
    connection.execute("ROLLBACK")
    print("rolled back", flush=True)
    sys.stdin.read()
else:
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("ends", ["rolled back", "killed"])
def test_what_was_never_committed_is_no_commit(tmp_path: Path, ends: str) -> None:
    """A transaction larger than the cache is in the log before it is committed. Rolled back or killed, its frames lie
    behind the end, before and after the next commits overwrite the first of them, whole or torn."""
    wreck = make_wreck(tmp_path / "store", left=True)
    with toy_store(wreck.path) as keeping:  # so that the log is not removed
        keeping.runs()
        before = len(frames(wreck.log))
        with subprocess.Popen(
            [sys.executable, "-c", SPILLS, str(wreck.path), ends], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None and other.stdin is not None
            other.stdout.readline()
            assert len(frames(wreck.log)) > before + 30
            assert opens(wreck.path) == wreck.truth.positions
            for amount in range(100, 103):
                keeping.run("small").submit(Pay(account="s", amount=amount))
                assert opens(wreck.path)["small"] == amount + 162
            other.stdin.close()
        shutil.copytree(wreck.folder, tmp_path / "torn")
    torn = Wreck(tmp_path / "torn", wreck.truth)
    (torn.index).unlink()
    last = [frame.at for frame in frames(torn.log) if frame.ends][-1]
    for at, what in ((last + 600, bytes(SECTOR)), (last, bytes(SECTOR))):
        put(torn.log, at, what)
        copy = shutil.copytree(torn.folder, tmp_path / f"copy {at}")
        assert opens(copy / "refold.db")["small"] in (263, 264)


def test_many_may_open_and_write_at_once(tmp_path: Path) -> None:
    """Processes that open the store, append and close it, while others do, never take each other's work for damage."""
    path = tmp_path / "refold.db"

    def work(acknowledge: Acknowledge) -> None:
        with small_wal(5):
            for number in range(40):
                with toy_store(path) as store:
                    run = store.run(f"run {os.getpid()}")
                    run.submit(Open(account=f"a{number}"))
                    acknowledge(run.position, 1)

    writers = [Writer(work) for _ in range(4)]
    assert [len(writer.wait()) for writer in writers] == [40] * 4
    assert sorted(opens(path).values()) == [40] * 4


def test_a_new_store_that_many_open_is_no_damaged_one(tmp_path: Path) -> None:
    """From the first moment on: the log is being made, and has no header yet."""
    for attempt in range(5):
        path = tmp_path / f"{attempt}.db"

        def work(acknowledge: Acknowledge, path: Path = path) -> None:
            with toy_store(path) as store:
                acknowledge(store.run(f"run {os.getpid()}").submit(Open(account="a")).position, 1)

        writers = [Writer(work) for _ in range(6)]
        assert [writer.wait() for writer in writers] == [[(1, 1)]] * 6
        assert len(opens(path)) == 6


# -- others ---------------------------------------------------------------------------------


def test_a_look_at_a_long_log_costs_next_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening reads some pages of the log, however long it is, and whatever is left over behind its end."""
    path = tmp_path / "refold.db"
    read: list[int] = []
    pread = os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        data = pread(file, size, offset)
        read.append(len(data))
        return data

    with small_wal(3_000), toy_store(path) as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        for _ in range(20):
            run.submit(Write(account="a", letter=Random(4).randbytes(200_000).hex()))
        log = path.with_name("refold.db-wal")
        assert len(frames(log)) > 1_000
        monkeypatch.setattr(sqlite_log.os, "pread", counted)
        toy_store(path).close()
        whole = sum(read)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(RESTART)")
        run.submit(Pay(account="a", amount=1))
        read.clear()
        toy_store(path).close()
        assert 0 < whole < 10_000
        assert 0 < sum(read) < 100 * FRAME < log.stat().st_size / 5


def test_other_troubles_keep_their_names(wreck: Wreck, monkeypatch: pytest.MonkeyPatch) -> None:
    """A locked store with a log is locked, a file that is none is none, whatever the log says."""
    monkeypatch.setattr(sqlite_connections, "BUSY_TIMEOUT_S", 0.1)
    with closing(sqlite3.connect(wreck.path, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN IMMEDIATE")
        for options in ({}, {"read_only": True}):
            with pytest.raises(BackendUnavailable, match="locked") as caught:
                toy_store(wreck.path, **options)
            assert caught.value.retryable
    put(wreck.path, 0, b"dear diary\n" * 10)
    for options in ({}, {"read_only": True}):
        with pytest.raises(NotAStore, match="not a SQLite database"):
            toy_store(wreck.path, **options)


READ_AS_NOBODY = """
import os, sys
sys.path.insert(0, {root!r})
from tests.engine.kit import toy_store
from engine.core.errors import EngineError
toy_store("memory:").run("r").position
os.setgid(65534); os.setuid(65534)
try:
    with toy_store({path!r}, read_only=True) as store:
        print(store.view("main").position)
except EngineError as error:
    print(type(error).__name__, "damaged" in error.message)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize(("damaged", "expected"), [(False, "57"), (True, "NotAStore True")])
def test_whoever_may_only_read_is_told_too(damaged: bool, expected: str) -> None:
    """Without the right to write the index SQLite reads the log for itself; so is what it then does not see refused."""
    import tempfile

    with tempfile.TemporaryDirectory() as top:
        Path(top).chmod(0o755)
        wreck = make_wreck(Path(top, "store"), left=True)
        if damaged:
            turn(wreck.log, frames(wreck.log)[5].at + 100, 1)
        for path in wreck.folder.iterdir():
            path.chmod(0o444)
        wreck.folder.chmod(0o555)
        script = READ_AS_NOBODY.format(root=str(Path(__file__).parents[2]), path=str(wreck.path))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        wreck.folder.chmod(0o755)
        assert done.stdout.strip() == expected, done.stderr
