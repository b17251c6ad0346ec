"""Following the journal: exactly once, whatever is at work beside it and wherever a crash strikes; forks, runs that are
gone or are others now, damage, events of older and newer versions."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from engine.core.envelope import genesis, group_of, seal_commit
from engine.core.model import Model
from engine.documents import document
from engine.open_store import Store, open_store
from engine.readmodel import ReadModel, beside, chunk
from engine.runs import LiveRun
from tests.engine.kit import fill, raw, toy_store
from tests.engine.readmodel.readmodel_harness import at_rest, document_in, dump, readmodel
from tests.engine.readmodel.readmodel_runs import Step, live
from tests.toy import OPENED, PAID_1

ROOT = Path(__file__).resolve().parents[3]


def actions(seed: int, size: int) -> list[Step]:
    """Return the same actions for the same seed, every time."""
    random = Random(seed)
    return [Step(random.randrange(2**16), *(random.randrange(64) for _ in range(3))) for _ in range(size)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file, with a clock of its own."""
    with open_store(tmp_path / "refold.db", clock=iter(range(1000, 10**9)).__next__) as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> LiveRun:
    """A run with all kinds of events."""
    made = store.run("main")
    for seed in (1, 2, 3):
        live(made, actions(seed, 30))
    assert made.position > 50
    return made


def fresh(store: Store) -> bytes:
    """Return the dump of a read model that was made at once."""
    with readmodel(store, None) as whole:
        whole.update()
        with whole._place.reading() as connection:
            return dump(connection)


def test_reopened_and_kept_open_give_the_same(store: Store, run: LiveRun, tmp_path: Path) -> None:
    """A handle that stays open, and keeps states, and one that is opened anew each time write the same bytes, with
    checkpoints in between and without."""
    kept, anew = tmp_path / "kept.db", tmp_path / "anew.db"
    with readmodel(store, kept) as model:
        for seed in range(4, 10):
            assert model.update().events >= 0
            with readmodel(store, anew, chunk_events=5) as other:
                other.update()
            live(run, actions(seed, 10))
            if seed % 2:
                run.checkpoint()
        model.update()
    with readmodel(store, anew) as other:
        other.update()
    assert at_rest(kept) == at_rest(anew) == fresh(store)


def test_a_crash_at_any_statement_leaves_an_older_true_position(store: Store, run: LiveRun, tmp_path: Path) -> None:
    """What is on disk when the process dies at any statement shows the run as of the position it names, foreign keys
    and search index included, and an update from there ends like one that nothing happened to."""
    path, images = tmp_path / "live.db", tmp_path / "images"
    images.mkdir()
    seen = 0

    def photograph(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen % 11 == 0:
            for suffix in ("", "-wal"):
                if Path(f"{path}{suffix}").exists():
                    shutil.copy(f"{path}{suffix}", images / f"{seen}.db{suffix}")

    with readmodel(store, path, chunk_events=9) as model:
        model._place._connection.set_trace_callback(photograph)
        model.update()
    expected = at_rest(path)
    positions = set()
    found = sorted(images.glob("*.db"))
    assert len(found) > 20
    for image in found:
        at_rest(image)
        with closing(sqlite3.connect(image)) as connection:
            row = connection.execute("SELECT position FROM runs WHERE run = 'main'").fetchone()
            position = 0 if row is None else row[0]
            assert document_in(connection, "main") == document(store.view("main", at=position))
        positions.add(position)
        with readmodel(store, image) as model:
            model.update()
        assert at_rest(image) == expected
    assert len(positions) > 4


@pytest.mark.parametrize("statement", [90, 250])
def test_a_killed_update_is_continued(store: Store, run: LiveRun, tmp_path: Path, statement: int) -> None:
    """After SIGKILL in mid-update the next update goes on and ends with the same bytes."""
    code = (
        "import os, signal, sys\n"
        "from engine.open_store import open_store\n"
        "from engine.readmodel import ReadModel\n"
        "from pathlib import Path\n"
        "store = open_store(sys.argv[1], read_only=True)\n"
        "model = ReadModel(store.journal, store.checkpoints, store.model, Path(sys.argv[2]), chunk_events=4)\n"
        "left = int(sys.argv[3])\n"
        "def count(_):\n"
        "    global left\n"
        "    left -= 1\n"
        "    if not left: os.kill(os.getpid(), signal.SIGKILL)\n"
        "model._place._connection.set_trace_callback(count)\n"
        "model.update()\n"
    )
    path = tmp_path / "killed.db"
    command = [sys.executable, "-c", code, str(tmp_path / "refold.db"), str(path), str(statement)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    at_rest(path)
    with readmodel(store, path) as model:
        assert 0 < model.positions().get("main", 0) < run.position
        model.update()
    assert at_rest(path) == fresh(store)


def test_many_updaters_and_a_writer_count_every_event_once(store: Store, run: LiveRun, tmp_path: Path) -> None:
    """Updaters that work on one file at the same time, while runs grow, end with the bytes of one that worked alone."""
    path, problems = tmp_path / "shared.db", []

    def follow(size: int) -> None:
        try:
            with readmodel(store, path, chunk_events=size) as model:
                for _ in range(8):
                    model.update()
        except BaseException as error:  # seen by the test, not lost in a thread
            problems.append(error)

    def write() -> None:
        for seed in range(20, 26):
            live(run, actions(seed, 6))

    threads = [
        *(threading.Thread(target=follow, args=(size,)) for size in (1, 7, 1000)),
        threading.Thread(target=write),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with readmodel(store, path) as model:
        model.update()
    assert at_rest(path) == fresh(store)


def test_what_another_process_took_in_meanwhile_is_no_other_past(
    store: Store, run: LiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An updater that looked at the journal before another one moved the rows further neither starts a run over nor
    takes a new run for one that is gone."""
    path = tmp_path / "raced.db"
    with readmodel(store, path) as slow, readmodel(store, path) as quick:
        quick.update()
        heads = store.journal.heads

        def then_others_go_on() -> object:
            seen = heads()
            monkeypatch.undo()
            live(run, actions(31, 20))
            live(store.run("new"), actions(32, 10))
            assert set(quick.update().moved) == {"main", "new"}
            return seen

        monkeypatch.setattr(store.journal, "heads", then_others_go_on)
        done = slow.update()
        assert (done.moved, done.started_over, done.removed, done.faults) == ((), (), (), ())
    assert at_rest(path) == fresh(store)


def test_others_read_while_it_is_written(store: Store, run: LiveRun, tmp_path: Path) -> None:
    """Another SQLite connection sees, before, in the midst of and after every transaction, one true position; and the
    journal takes commits meanwhile."""
    path, seen = tmp_path / "read.db", []
    with readmodel(store, path, chunk_events=8) as model, closing(sqlite3.connect(path)) as other:

        def look(_: object = None, __: object = None) -> None:
            found = other.execute("SELECT position FROM runs WHERE run = 'main'").fetchone()
            position = 0 if found is None else found[0]
            if position not in seen:
                assert document_in(other, "main") == document(store.view("main", at=position))
                other.row_factory = None
                seen.append(position)
                store.run("meanwhile").tasks.open_root(f"r{position}") if position == 0 else None

        model._place._connection.set_trace_callback(look)
        model.update(look)
    assert seen[0] == 0 and seen[-1] == run.position and len(seen) > 5
    assert store.run("meanwhile").position == 1


def test_one_event_more_costs_what_it_touches(store: Store) -> None:
    """Taking in one event writes a handful of rows, however long the run is and however many tasks it holds."""
    costs = []
    run = store.run("long")
    run.tasks.open_root("root")
    run.contexts.create("chat")
    with store.readmodel("memory:") as model:
        for size in (5, 400):
            for number in range(size):
                run.tasks.spawn(f"{size}-{number}", parent="root")
                run.contexts.append("chat", {"role": "user", "text": "hello"})
            model.update()
            connection = model._place._connection
            before = connection.total_changes
            run.tasks.report_usage("root", tokens=1)
            assert model.update().events == 1
            costs.append(connection.total_changes - before)
    assert costs[0] == costs[1] <= 6


def test_rows_of_a_large_commit_are_written_as_they_come(
    store: Store, run: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of any size waits in memory only in portions, and its rows are the same."""
    with run.batch():
        for number in range(40):
            run.tasks.spawn(f"many-{number}", parent=run.tasks.rows()[0].task_id)
            run.tasks.publish_launch(f"many-{number}")
    expected = fresh(store)
    monkeypatch.setattr(chunk, "_WRITE_EVENTS", 3)
    assert fresh(store) == expected
    monkeypatch.setattr(chunk, "_WRITE_CHARACTERS", 1)
    assert fresh(store) == expected


# -- forks, and runs that are gone or others --------------------------------------------------------------------------


def test_forks_are_followed_across_their_joints(store: Store, run: LiveRun, tmp_path: Path) -> None:
    """A fork of any position, also in the midst of a commit, and a fork of it have all their events under their own
    names, whether they were followed at the joint or later."""
    with run.batch():
        for number in range(4):
            run.contexts.create(f"batch-{number}")
    end = run.position
    with store.readmodel(tmp_path / "forks.db") as model:
        for number, at in enumerate((0, 1, end // 2, end - 2, end)):
            fork = run.fork(f"fork-{number}", at=at)
            if number % 2:
                model.update()
            live(fork, actions(number, 12))
            again = fork.fork(f"again-{number}", at=at)
            model.update()
            live(again, actions(number + 50, 8))
        model.update()
        for name, position in model.positions().items():
            with model._place.reading() as connection:
                assert document_in(connection, name) == document(store.view(name, at=position)), name
        assert [(row["run"], row["origin_run"], row["origin_position"]) for row in model.find("runs")] == [
            (found.run, found.origin, found.origin_position) for found in store.runs()
        ]
    assert at_rest(tmp_path / "forks.db") == fresh(store)


def test_a_fork_left_in_its_shared_part_is_continued(store: Store, run: LiveRun, tmp_path: Path) -> None:
    """An update that is interrupted while it reads the origin's events goes on from there, once, not from the start."""
    fork = run.fork("fork", at=run.position - 3)
    live(fork, actions(9, 10))
    store.delete("main")

    def interrupt(position: int, _: int) -> None:
        if position > 10:
            raise KeyboardInterrupt

    with readmodel(store, tmp_path / "left.db", chunk_events=4) as model:
        with pytest.raises(KeyboardInterrupt):
            model.update(interrupt)
        stopped = model.positions()["fork"]
        assert 10 < stopped < run.position - 3
        done = model.update()
        assert (done.events, done.started_over) == (fork.position - stopped, ())
    assert at_rest(tmp_path / "left.db") == fresh(store)


def test_a_deleted_run_goes_and_its_fork_stays(store: Store, run: LiveRun) -> None:
    """Rows of a deleted run are removed, those of a fork that needs its history are not."""
    run.fork("fork", at=20)
    store.run("other").tasks.open_root("root")
    with store.readmodel("memory:") as model:
        assert set(model.positions()) == {"main", "fork", "other"}
        store.delete("main")
        store.delete("other")
        assert model.update().removed == ("main", "other")
        assert model.positions() == {"fork": 20}
        assert {row["run"] for table in ("events", "messages", "nodes") for row in model.find(table)} <= {"fork"}
        with model._place.reading() as connection:
            assert dump(connection) == fresh(store)


@pytest.mark.parametrize("size", [1, 3, 9])
def test_another_run_under_the_same_name_is_noticed(store: Store, size: int) -> None:
    """A run that was deleted and made anew is followed from its start, whether it is now shorter, as long or longer,
    by a handle that was open all the time too."""
    run = store.run("again")
    run.contexts.create("old")
    for _ in range(2):
        run.contexts.append("old", {"role": "user", "text": "old words"})
    with store.readmodel("memory:") as model:
        store.delete("again")
        run = store.run("again")
        for number in range(size):
            run.contexts.create(f"new-{number}")
        done = model.update()
        assert (done.started_over, done.moved) == (("again",), ("again",))
        assert model.positions() == {"again": size}
        assert {row["context"] for row in model.find("contexts")} == {f"new-{number}" for number in range(size)}
        assert model.search("old words") == []
        assert model.update().moved == ()


# -- damage, versions, other projections ------------------------------------------------------------------------------


def _damage(path: Path, position: int) -> bytes:
    """Flip a bit in the commit of ``main`` at a position; return what was there."""
    with raw(path) as connection:
        key = ("main", position)
        sql = "FROM stored_events WHERE originator_id = ? AND originator_version = ?"
        (before,) = connection.execute(f"SELECT state {sql}", key).fetchone()
        after = before[:-1] + bytes([before[-1] ^ 1])
        connection.execute(
            "UPDATE stored_events SET state = ? WHERE originator_id = ? AND originator_version = ?", (after, *key)
        )
    return bytes(before)


@pytest.mark.parametrize("chunk_events", [1, 4, 5_000])
def test_a_damaged_run_stops_where_the_damage_is(store: Store, tmp_path: Path, chunk_events: int) -> None:
    """The rows end before the damage whatever the size of a chunk, the row of the run says why, other runs move on, and
    when the journal is whole again the run does too."""
    run = store.run("main")
    for number in range(12):
        run.contexts.create(f"c{number}")
    store.run("other").contexts.create("c")
    before = _damage(tmp_path / "refold.db", 9)
    with readmodel(store, None, chunk_events) as model:
        for _ in range(2):
            done = model.update()
            (fault,) = done.faults
            assert (fault.run, fault.position, fault.error.code) == ("main", 8, "corrupt_journal")
            assert model.positions() == {"main": 8, "other": 1}
            (row,) = model.find("runs", {"run": "main"})
            assert row["fault"] == fault.error.message and "position 9" in row["fault"]
            assert len(model.find("contexts", {"run": "main"})) == 8
        with raw(tmp_path / "refold.db") as connection:
            connection.execute(
                "UPDATE stored_events SET state = ? WHERE originator_id = 'main' AND originator_version = 9", (before,)
            )
        done = model.update()
        assert (done.events, done.faults, model.positions()["main"]) == (4, (), 12)
        assert model.find("runs", {"run": "main"})[0]["fault"] is None


@pytest.mark.parametrize("chunk_events", [1, 3, 5_000])
def test_an_event_of_a_newer_version_stops_its_run(tmp_path: Path, chunk_events: int) -> None:
    """What this refold cannot read is a fault that names it; the rows end at the commit before."""
    with toy_store(tmp_path / "refold.db") as store:
        fill(store.run("main"))
        end = store.run("main").position
        head = store.journal.head("main")
        assert head is not None
        stored, link = seal_commit(head.link, [group_of(1, None, None, None, None, [[1003 * 16 + 9, 0, "a"]])])
        store.journal.append("main", end + 1, 1, stored, link)
        with readmodel(store, None, chunk_events) as model:
            (fault,) = model.update().faults
            assert (fault.position, fault.error.code) == (end, "schema_error")
            assert "account.closed/9" in model.find("runs")[0]["fault"]
            assert len(model.find("events")) == end


def test_older_versions_are_rows_of_the_current_one(tmp_path: Path) -> None:
    """An event stored in an older version is lifted, as for every reader."""
    with toy_store(tmp_path / "refold.db") as store:
        wires = [[OPENED.tag, 0, "a", None], [PAID_1.tag, 1, "a", 5]]
        stored, link = seal_commit(genesis("old"), [group_of(7, "clerk", None, None, "letter", wires)])
        store.journal.append("old", 1, 2, stored, link)
        with store.readmodel() as model:
            first, second = model.find("events")
        assert (first["type"], first["cause"], first["cause_seq"]) == ("account.opened/1", "letter", None)
        assert (second["type"], second["data"]) == ("account.paid/2", {"account": "a", "amount": 5, "note": None})
        assert (second["cause"], second["cause_seq"], second["actor"]) == (None, 1, "clerk")


def test_projections_of_others_have_their_events(tmp_path: Path) -> None:
    """A store of another model has runs and events in the same tables, and nothing in the others."""
    with toy_store(tmp_path / "refold.db") as store:
        run = store.run("bank")
        fill(run)
        with store.readmodel() as model:
            rows = model.find("events")
            assert [(row["seq"], row["type"], row["data"]) for row in rows] == [
                (event.seq, event.type, event.data) for event in run.history()
            ]
            assert model.find("tasks") == model.find("contexts") == []


# -- where it lies ----------------------------------------------------------------------------------------------------


def test_it_lies_beside_the_store(store: Store, run: LiveRun, tmp_path: Path) -> None:
    """``refold.db`` has ``refold.read.db``; a store in memory has its read model there too, and ``path`` overrules."""
    with store.readmodel() as model:
        assert model.path == tmp_path / "refold.read.db" == beside(tmp_path / "refold.db")
    assert at_rest(tmp_path / "refold.read.db") == fresh(store)
    with open_store("memory:") as other, other.readmodel() as model:
        assert model.path is None
    with store.readmodel(tmp_path / "x.db") as model:
        assert model.path == tmp_path / "x.db" and model.positions()["main"] == run.position
    with store.readmodel("memory:") as model:
        assert model.path is None and model.positions()["main"] == run.position
    odd = tmp_path / "odd ?mode=memory#%41'\" \u00fc.db"
    with store.readmodel(odd) as model:
        assert model.path == odd and len(list(model.query("events"))) >= run.position
    assert at_rest(odd) == fresh(store)


def test_deleting_the_file_costs_a_rebuild_only(store: Store, run: LiveRun, tmp_path: Path) -> None:
    """The file can be dropped at any time, and rebuilt from what is there at any time, to the same content."""
    path = tmp_path / "refold.read.db"
    store.readmodel().close()
    before = at_rest(path)
    path.unlink()
    store.readmodel().close()
    assert at_rest(path) == before
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM tasks WHERE lifecycle = 'done'")
        connection.execute("UPDATE messages SET text = 'changed by hand'")
        assert dump(connection) != before
    with store.readmodel(rebuild=True) as model:
        assert model.updated.events == run.position
    assert at_rest(path) == before


def test_another_version_of_the_schema_is_made_anew(store: Store, run: LiveRun, tmp_path: Path) -> None:
    """A file of another version, whatever it holds, is emptied and filled; so is one of other projections."""
    path = tmp_path / "refold.read.db"
    store.readmodel().close()
    before = at_rest(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("DROP VIEW live_tasks")
        connection.execute("ALTER TABLE tasks ADD COLUMN later TEXT")
        connection.execute('CREATE TABLE "odd; name" (x)')
        connection.execute("CREATE TRIGGER odd AFTER INSERT ON tasks BEGIN DELETE FROM tasks; END")
    store.readmodel().close()
    assert at_rest(path) == before
    less = Model(store.model.projections[:1])
    with ReadModel(store.journal, store.checkpoints, less, path) as model:
        assert model.positions() == {}


def test_a_file_of_something_else_is_left_alone(store: Store, tmp_path: Path) -> None:
    """The store itself, a database of another program, a text and a folder are refused, and stay as they are."""
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE t (x)")
    text = tmp_path / "text.db"
    text.write_text("not a database, but longer than a header would be\n" * 10)
    store.run("r").tasks.open_root("root")
    for path in (tmp_path / "refold.db", foreign, text, tmp_path):
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(Exception) as refused:
            store.readmodel(path)
        assert getattr(refused.value, "code", None) == "not_a_store" and getattr(refused.value, "hint", "")
        assert (path.read_bytes() if path.is_file() else None) == before
    with pytest.raises(Exception, match="does not exist"):
        store.readmodel(tmp_path / "nowhere" / "x.db")
