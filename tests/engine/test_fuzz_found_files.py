"""What fuzzing has found in SQLite files, each as the smallest case of its kind: a schema that computes, cells of other
types. A store says so and is left alone; a read model says so, or is made anew."""

from __future__ import annotations

import sqlite3
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import NotAStore
from engine.doctor import diagnose
from engine.open_store import Store, open_store
from engine.store.sqlite_pages import MAGIC, Pages, SourcePage
from projections.model import MODEL
from tests.engine.kit import raw

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT "


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with the runs ``a`` and ``r``, its read model beside it."""
    path = tmp_path / "refold.db"
    with open_store(path, clock=lambda: 5) as store:
        for name in ("a", "r"):
            run = store.run(name)
            run.tasks.open_root("root")
            run.tasks.start("root")
            run.tasks.spawn("child", parent="root")
            run.checkpoint()
        store.readmodel().close()
    return path


@pytest.fixture
def beside(path: Path) -> Path:
    return path.with_name("refold.read.db")


def run_sql(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


# -- the store --------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "a view for a table": f"DROP TABLE run_heads; CREATE VIEW run_heads AS {ENDLESS} 'r' run_id, x position FROM n",
    "by another case": f"DROP TABLE run_heads; CREATE VIEW Run_HEADS AS {ENDLESS} 'r' run_id, x position FROM n",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON stored_events BEGIN DELETE FROM run_heads; END",
    "a trigger on checkpoints": "CREATE TRIGGER t AFTER INSERT ON STORED_checkpoints BEGIN DELETE FROM run_heads; END",
    "our trigger, saying something else": "DROP TRIGGER keep_last_number; CREATE TRIGGER keep_last_number AFTER DELETE "
    "ON stored_events BEGIN DELETE FROM run_heads; END",
    "a column that computes": "ALTER TABLE run_heads ADD COLUMN more AS (zeroblob(900000000))",
    "checkpoints that compute": "DROP TABLE stored_checkpoints; "
    "CREATE TABLE stored_checkpoints (originator_id, originator_version, topic, state AS (zeroblob(900000000)))",
    "a view of checkpoints": "DROP TABLE stored_checkpoints; "
    f"CREATE VIEW stored_checkpoints AS {ENDLESS} x topic FROM n",
    "virtual checkpoints": "DROP TABLE stored_checkpoints; CREATE VIRTUAL TABLE stored_checkpoints USING fts5(topic)",
    "a virtual table": "DROP TABLE run_heads; CREATE VIRTUAL TABLE run_heads USING fts5(run_id, position, link)",
}


@pytest.mark.parametrize("what", SCHEMAS)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_whose_tables_are_something_else_is_refused(path: Path, what: str, read_only: bool) -> None:
    """A view in the place of a table may compute without end, a trigger may do anything: neither is ever run. The
    doctor says it too, and the file stays as it is."""
    run_sql(path, SCHEMAS[what])
    before = path.read_bytes()
    with pytest.raises(NotAStore, match="another program changed it") as caught:
        open_store(path, create=False, read_only=read_only)
    assert caught.value.details["reason"].split()[0] in ("the", "no")
    assert [finding.code for finding in diagnose(path, MODEL).findings] == ["not_a_store"]
    assert path.read_bytes() == before


def test_tables_of_others_and_indexes_are_no_damage(path: Path) -> None:
    """Whoever keeps notes in the same file, or counts in it, hinders nobody."""
    run_sql(path, "CREATE TABLE notes (x); CREATE INDEX i ON stored_events (topic); ANALYZE")
    with open_store(path) as store:
        store.run("r").tasks.report_usage("root", tokens=1)
        assert store.verify("r").ok
    assert diagnose(path, MODEL).ok


def test_a_head_before_all_positions_stops_the_read_model_with_a_fault(path: Path) -> None:
    """The rows of the other runs are made; the damaged one is named."""
    with raw(path) as connection:
        connection.execute("UPDATE run_heads SET position=-1 WHERE run_id='r'")
    with open_store(path, read_only=True) as store, store.readmodel("memory:") as model:
        assert [fault.run for fault in model.updated.faults] == ["r"]
        assert model.positions()["a"] == 3


def varint(number: int) -> bytes:
    """A number as SQLite writes it, in four bytes."""
    return bytes([*(0x80 | number >> shift & 0x7F for shift in (21, 14, 7)), number & 0x7F])


def test_a_chain_of_pages_that_goes_in_a_circle_is_no_row(tmp_path: Path) -> None:
    """A row of 60 MiB in a file of three pages, named by its page 1,700 times: seen once, and not put together."""
    local = 489  # of a row of this size stand in its page
    size = local + 15_000 * 4092
    kinds = bytes([9, 0, 13 + 2 * 1, 9, 13 + 2 * 15]) + varint(12 + 2 * (size - 25))
    row = (kinds + b"r" + b"refold.commit/1").ljust(local, b"x")
    leaf = b"\x0d\0\0" + (1_700).to_bytes(2, "big") + b"\0\0\0" + (3_420).to_bytes(2, "big") * 1_700
    leaf = (leaf.ljust(3_420, b"\0") + varint(size) + b"\x01" + row + (3).to_bytes(4, "big")).ljust(4096, b"\0")
    circle = ((3).to_bytes(4, "big")).ljust(4096, b"y")
    path = tmp_path / "refold.db"
    path.write_bytes((MAGIC + b"\x10\x00\x01\x01").ljust(4096, b"\0") + leaf + circle)
    pages = Pages(path)
    ((place, record),) = pages.cells(SourcePage(4096, 0))
    assert record[:4] == [None, "r", 1, "refold.commit/1"]
    tracemalloc.start()
    assert list(pages.last_blobs(place, 5)) == []
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    pages.close()
    assert not diagnose(path, MODEL).ok


# -- the read model ---------------------------------------------------------------------------------------------------


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path, read_only=True) as opened:
        yield opened


CHANGED = {
    "a view that says something else": f"DROP VIEW live_tasks; CREATE VIEW live_tasks AS {ENDLESS} x AS run FROM n",
    "a view for a table": f"DROP TABLE task_transitions; CREATE VIEW task_transitions AS {ENDLESS} x AS run FROM n",
    "by another case": f"DROP TABLE task_transitions; CREATE VIEW Task_TRANSITIONS AS {ENDLESS} x AS run FROM n",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON Events BEGIN DELETE FROM runs; END",
    "no table": "DROP TABLE workers",
    "no view": "DROP VIEW live_tasks",
    "no column": "ALTER TABLE metadata RENAME COLUMN key TO other",
    "a table for a view": "DROP VIEW live_tasks; CREATE TABLE live_tasks (run)",
    "a column that computes": "ALTER TABLE tasks ADD COLUMN more AS (zeroblob(900000000))",
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_read_model_that_computes_is_refused(store: Store, beside: Path, what: str) -> None:
    """With the advice to delete it, for the journal has everything."""
    run_sql(beside, CHANGED[what])
    with pytest.raises(NotAStore, match="damaged, or changed by others") as caught:
        store.readmodel()
    assert "delete the file" in caught.value.hint
    for left in beside.parent.glob("refold.read.db*"):
        left.unlink()
    with store.readmodel() as model:
        assert len(model.find("tasks")) == 4


@pytest.mark.parametrize("where", ["position='x'", "position=NULL", "link=7", "link=x'00'", "fault=5"])
def test_rows_that_say_nothing_of_where_they_are_are_made_anew(store: Store, beside: Path, where: str) -> None:
    """A position that is a text is no position: the run's rows are dropped and made again."""
    run_sql(beside, f"PRAGMA ignore_check_constraints=ON; UPDATE OR IGNORE runs SET {where} WHERE run='r'")
    with store.readmodel() as model:
        assert model.positions() == {"a": 3, "r": 3}
        assert model.find("runs", {"run": "r"})[0]["fault"] is None


@pytest.mark.parametrize("said", ["'{'", "x'ff'", "5", f"'{'[' * 100_000}'"], ids=["half", "bytes", "number", "deep"])
def test_a_cell_that_holds_no_json_is_damage(store: Store, beside: Path, said: str) -> None:
    """What stands in a column of JSON and is none is not handed out, and not a crash."""
    run_sql(beside, f"UPDATE events SET data={said}")
    with store.readmodel() as model:
        if said == "5":
            assert model.find("events")[0]["data"] == 5
            return
        with pytest.raises(NotAStore, match="damaged, or changed by others"):
            model.find("events")


def test_rows_that_fit_nothing_are_damage_not_a_busy_store(store: Store, beside: Path) -> None:
    """A key that is there already is no reason to try again."""
    run_sql(beside, "DELETE FROM runs")
    with pytest.raises(NotAStore, match="damaged, or changed by others"):
        store.readmodel()


def test_questions_about_a_circle_of_parents_end(store: Store, beside: Path) -> None:
    """No journal makes one; a file that others write may."""
    run_sql(beside, "UPDATE tasks SET parent_task_id=task_id")
    with store.readmodel() as model:
        assert len(model.find("subtree_usage")) == 4
        with model.query("usage_under", {"run": "r", "task": "root"}) as answer:
            assert next(iter(answer))[0] == 1


def test_whoever_stops_in_the_middle_of_an_answer_leaves_nothing_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that were not read are dropped without a complaint on standard error."""
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    with store.readmodel() as model:
        for _ in range(2):
            with model.query("SELECT * FROM events") as answer:
                for _row in answer:
                    break
        rows = iter(model.query("SELECT * FROM events"))
        next(rows)
        del rows
    assert not dropped
