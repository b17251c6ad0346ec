"""Asking: what a caller says is never part of a statement, and a query never changes anything.

L43 (a saver that put filter keys into its SQL was taken over through them) and L46 (nested metadata was forgotten) of
the field reports: texts of every kind as names, ids, keys, paths and values, in every way of asking, against a model
that is a list comprehension.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.core.errors import EngineError, InvalidValue, NotFound, ReadOnly
from engine.core.json_patch import same
from engine.open_store import open_store
from engine.readmodel import ReadModel
from engine.readmodel.schema import BY_NAME, TABLES
from tests.engine.readmodel.readmodel_harness import at_rest, dump
from tests.engine.readmodel.readmodel_runs import NASTY, VALUES, Step, live, steps
from tests.engine.strategies import json_values

texts = st.sampled_from(NASTY) | st.text(max_size=12)
ids = st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=("C",)), min_size=1, max_size=12).filter(
    str.strip
)
steps_in = st.lists(st.sampled_from(("a", "b", "c", '"', "a.b", "$", "$[0]")) | st.text(max_size=4) | st.integers(0, 3))
values = st.sampled_from(VALUES) | json_values


def _inside(value: Any, path: list[Any]) -> tuple[bool, Any]:
    for step in path:
        in_object = isinstance(value, dict) and isinstance(step, str) and step in value
        in_list = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if not in_object and not in_list:
            return False, None
        value = value[step]
    return True, value


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything in a value."""
    yield ()
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            for rest in _paths(inner):
                yield (key, *rest)


@settings(max_examples=30)
@given(metadata=st.dictionaries(texts, values, max_size=5), data=st.data())
def test_nested_metadata_is_found_by_key_path_and_value(metadata: dict[str, Any], data: st.DataObject) -> None:
    """L43, L46: filters by any key, any path and any value find exactly the rows that a scan in Python finds; what the
    metadata holds at any depth is found again."""
    with open_store("memory:") as store:
        run = store.run("r")
        run.swarm.start(1)
        try:
            for key, value in metadata.items():
                run.swarm.set_metadata(key, value)
        except EngineError:
            assume(False)
        with store.readmodel() as model:
            rows = model.find("metadata")
            kept = run.swarm.context().metadata
            assert same({row["key"]: row["value"] for row in rows}, kept)
            key = data.draw(st.sampled_from(sorted(kept)) | texts) if kept else data.draw(texts)
            path = data.draw(steps_in)
            if kept.get(key) is not None and data.draw(st.booleans()):
                path = list(data.draw(st.sampled_from(list(_paths(kept[key])))))
            there, inner = _inside(kept.get(key), path) if key in kept else (False, None)
            wanted = inner if there and data.draw(st.booleans()) else data.draw(values)
            try:
                found = model.find("metadata", {"run": "r", "key": key, ("value", *path): wanted})
            except InvalidValue:
                assert any("\ud800" <= char <= "\udfff" for char in f"{key}{path}{wanted}")
                return
            holds = there and same(inner, wanted) if path or wanted is not None else False
            assert [row["key"] for row in found] == ([key] if holds else [])


@settings(max_examples=30)
@given(names=st.lists(ids, min_size=1, max_size=4, unique=True), text=texts, data=st.data())
def test_ids_and_texts_are_found_as_they_are(names: list[str], text: str, data: st.DataObject) -> None:
    """L43: runs, tasks, contexts, actors and messages under any name and text are found by exactly that, through find,
    through parameters of SQL and through the documented questions; the tables are all there afterwards."""
    with open_store("memory:") as store:
        try:
            for name in names:
                run = store.run(name, actor=name)
                run.tasks.open_root(name, capability_ids=[name])
                run.contexts.create(name)
                run.contexts.append(name, {"role": "user", "text": text, name: {name: text}})
        except EngineError:
            assume(False)
        wanted = data.draw(st.sampled_from(names) | ids)
        expected = [wanted] if wanted in names else []
        with store.readmodel() as model:
            assert [row["task_id"] for row in model.find("tasks", {"task_id": wanted})] == expected
            assert [row["run"] for row in model.find("events", {"run": wanted, "actor": wanted, "seq": 1})] == expected
            assert [row["run"] for row in model.find("tasks", {("capability_ids", 0): wanted})] == expected
            assert [row["run"] for row in model.find("messages", {("extra", wanted, wanted): text})] == expected
            found = model.query("SELECT run FROM tasks WHERE task_id = :id AND run = :id", {"id": wanted})
            assert list(found) == [(name,) for name in expected]
            found = model.query("SELECT run FROM contexts WHERE context = ?", [wanted])
            assert list(found) == [(name,) for name in expected]
            said = model.find("messages", {"text": text})
            assert sorted(row["run"] for row in said) == sorted(names)
            changed = list(model.query("who_changed", {"run": wanted, "task": wanted}))
            assert [row[4] for row in changed] == expected
            assert set(model.positions()) == set(names)


@settings(max_examples=30)
@given(name=texts, column=texts, value=values)
def test_a_name_that_is_none_is_refused(name: str, column: str, value: Any) -> None:
    """L43: a table, a column or a step that the schema does not have is refused by name, whatever it says, and never
    reaches SQLite."""
    assume(name not in BY_NAME and column not in {known.name for known in BY_NAME["tasks"].columns})
    with open_store("memory:") as store, store.readmodel() as model:
        statements: list[str] = []
        model._place._connection.set_trace_callback(statements.append)
        with pytest.raises(NotFound, match="has no table"):
            model.find(name)
        for where in ({column: value}, {(column, "a"): value}, {(): value}, {("task_id", name): "x"}):
            with pytest.raises(InvalidValue):
                model.find("tasks", where)
        assert [said for said in statements if not said.startswith("PRAGMA")] == []


@settings(max_examples=25)
@given(chosen=steps(20, 40), data=st.data())
def test_find_agrees_with_a_scan(chosen: list[Step], data: st.DataObject) -> None:
    """L43, L46: any filters over any table and view, on values that are there and others, find what a scan finds."""
    with open_store("memory:") as store:
        live(store.run("r"), chosen)
        with store.readmodel() as model:
            shape = BY_NAME[data.draw(st.sampled_from(sorted(BY_NAME)))]
            rows = model.find(shape.name)
            where: dict[Any, Any] = {}
            for column in data.draw(st.lists(st.sampled_from(shape.columns), max_size=2)):
                value = data.draw(st.sampled_from(rows))[column.name] if rows else None
                if column.kind == "whole" and isinstance(value, float):
                    continue  # a sum above 2^63-1, about right as documented: nothing to look up by
                if column.kind == "json" and value is not None:
                    path = data.draw(st.sampled_from(list(_paths(value))))
                    where[(column.name, *path)] = _inside(value, list(path))[1]
                else:
                    where[column.name] = value
            limit = data.draw(st.none() | st.integers(0, 3))

            def matches(row: dict[str, Any]) -> bool:
                for key, value in where.items():
                    name, *path = key if isinstance(key, tuple) else (key,)
                    if row[name] is None or (value is None and not path):
                        if row[name] is not value:
                            return False
                        continue
                    there, inner = _inside(row[name], path)
                    if not (there and same(inner, value)):
                        return False
                return True

            expected = [row for row in rows if matches(row)]
            found = model.find(shape.name, where, limit=limit)
            assert repr(found) == repr(expected if limit is None else expected[:limit])


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ({"seq": "1"}, "expected whole"),
        ({"seq": True}, "expected whole"),
        ({"seq": 1.0}, "expected whole"),
        ({"run": 1}, "expected text"),
        ({"run": b"r"}, "expected text"),
        ({"run": "\ud800"}, "surrogate"),
        ({"seq": -(2**63) - 1}, "no such number"),
        ({("data", -1): 1}, "no step"),
        ({("data", 1.5): 1}, "no step"),
        ({("data", "a"): float("nan")}, "JSON number"),
        ({("data", "a"): object()}, "cannot be kept"),
        ({("run", "a"): 1}, "no JSON"),
    ],
)
def test_a_value_of_another_type_is_refused(where: Any, says: str) -> None:
    """Nothing is coerced: what could only be compared after a conversion is refused, with the name."""
    with open_store("memory:") as store, store.readmodel() as model, pytest.raises(InvalidValue, match=says):
        model.find("events", where)


@settings(max_examples=30)
@given(words=texts)
def test_search_takes_any_text_as_words(words: str) -> None:
    """Operators, quotes and control characters of the search language are words like any other; no text is an error of
    the database."""
    with open_store("memory:") as store:
        run = store.run("r")
        run.contexts.create("c")
        run.contexts.append("c", {"role": "user", "text": f"before {words} after"})
        run.contexts.append("c", {"role": "user", "text": "\u2603"})
        with store.readmodel() as model:
            if not words.replace("\0", " ").split():
                with pytest.raises(InvalidValue, match="no word"):
                    model.search(words)
                return
            assert [row["place"] for row in model.search(words, run="r")] in ([0], [])
            assert model.search(words, run="another") == []
            if words.isalnum() and words.isascii():
                assert [row["place"] for row in model.search(f"{words} before")] == [0]


# -- queries only read ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["file", "memory"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReadModel]:
    """A read model of a small store, in a file and in memory."""
    with open_store(tmp_path / "refold.db") as store:
        run = store.run("r")
        run.tasks.open_root("root")
        run.contexts.create("c")
        run.contexts.append("c", {"role": "user", "text": "hello there"})
        with store.readmodel(None if request.param == "file" else "memory:") as opened:
            yield opened


_WRITES = (
    "DELETE FROM tasks",
    "INSERT INTO runs VALUES ('x', 0, '', NULL, NULL, NULL)",
    "UPDATE tasks SET lifecycle = 'done' RETURNING *",
    "WITH x AS (SELECT 1) DELETE FROM tasks RETURNING *",
    "REPLACE INTO runs VALUES ('x', 0, '', NULL, NULL, NULL) RETURNING run",
    "DROP TABLE tasks",
    "CREATE TABLE x (y)",
    "CREATE TEMP TABLE x AS SELECT * FROM tasks",
    "CREATE TEMP TRIGGER x AFTER INSERT ON tasks BEGIN DELETE FROM tasks; END",
    "ALTER TABLE tasks ADD COLUMN x",
    "INSERT INTO messages_fts (messages_fts) VALUES ('rebuild')",
    "UPDATE sqlite_master SET sql = ''",
    "ATTACH 'attached.db' AS attached",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'copy.db'",
    "REINDEX",
    "ANALYZE",
    "BEGIN IMMEDIATE",
    "COMMIT",
    "SAVEPOINT x",
    "PRAGMA user_version = 5",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA query_only = OFF",
    "PRAGMA writable_schema = ON",
    "PRAGMA wal_checkpoint",
    "SELECT load_extension('x')",
    "SELECT fts3_tokenizer('simple', x'00')",
    "EXPLAIN DELETE FROM tasks",
    "SELECT 1; DELETE FROM tasks",
    "",
    "-- nothing",
    "nonsense",
    "SELECT * FROM nothing",
    "SELECT nothing FROM tasks",
    "SELECT ?",
    "SELECT :name",
    "SELECT sum(n) FROM (SELECT 9223372036854775807 AS n UNION ALL SELECT 1)",
    "SELECT CAST(x'ff' AS TEXT)",
    "SELECT 'nul\0'",
    "SELECT '\ud800'",
)


@pytest.mark.parametrize("sql", _WRITES)
def test_what_does_more_than_read_is_refused(
    model: ReadModel, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements that write, open or make other files, change settings or are wrong raise ReadOnly or InvalidValue with
    a hint, change nothing, and leave the handle usable."""
    monkeypatch.chdir(tmp_path)
    before = _content(model)
    with pytest.raises((ReadOnly, InvalidValue)) as refused:
        list(model.query(sql))
    assert refused.value.hint and refused.value.code in ("read_only", "invalid_value")
    assert _content(model) == before
    assert not (tmp_path / "attached.db").exists() and not (tmp_path / "copy.db").exists()
    assert list(model.query("SELECT count(*) FROM tasks")) == [(1,)]
    assert model.update().faults == ()


def _content(model: ReadModel) -> bytes:
    if model.path is not None:
        return at_rest(model.path)
    with model._place.reading() as connection:
        return dump(connection)


def test_reading_of_every_kind_is_allowed(model: ReadModel) -> None:
    """Joins, windows, recursion, JSON, full text, plans and what tells about the schema are all reading."""
    for sql in (
        "SELECT t.*, e.data FROM tasks t JOIN events e USING (run)",
        "SELECT row_number() OVER (ORDER BY seq) FROM events",
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5) SELECT * FROM n",
        "SELECT e.seq, j.key, j.value FROM events e, json_tree(e.data) j",
        "SELECT * FROM messages_fts WHERE messages_fts MATCH 'hello'",
        "SELECT m.text, bm25(messages_fts) FROM messages_fts JOIN messages m ON m.id = messages_fts.rowid "
        "WHERE messages_fts MATCH 'hel*'",
        "EXPLAIN QUERY PLAN SELECT * FROM live_tasks",
        "PRAGMA table_info('tasks')",
        "PRAGMA foreign_key_list('tasks')",
        "SELECT name FROM sqlite_master WHERE type = 'table'",
        "SELECT name FROM pragma_table_info('tasks')",
        "VALUES (1, 2)",
    ):
        assert list(model.query(sql)), sql
    assert model.query("tasks").columns == tuple(TABLES[3].names)
    assert [row["found"] for row in model.search("HELLO there")] == ["hello there"]


def test_an_answer_is_of_one_moment_and_can_be_left(tmp_path: Path) -> None:
    """Rows are those of the moment of asking while the model moves on; an answer that is closed early holds nothing
    up."""
    with open_store(tmp_path / "refold.db") as store:
        run = store.run("r")
        run.tasks.open_root("root")
        for number in range(50):
            run.tasks.spawn(f"t{number}", parent="root")
        with store.readmodel() as model:
            answer = model.query("SELECT task_id FROM tasks ORDER BY number")
            rows = iter(answer)
            assert next(rows) == ("root",)
            run.tasks.spawn("late", parent="root")
            model.update()
            assert len(list(rows)) == 50
            with model.query("tasks") as left:
                assert next(iter(left))
            assert len(list(model.query("tasks"))) == 52
            model.close()
            model.close()
            with pytest.raises(EngineError):
                model.update()


def test_an_interrupt_ends_a_long_query(model: ReadModel) -> None:
    """A query without end is left by an interrupt, which stays one."""
    import signal

    endless = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(model.query(endless))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert list(model.query("SELECT 1")) == [(1,)]


def test_whole_numbers_of_any_size_come_back(tmp_path: Path) -> None:
    """A number that SQLite has no integer for is stored as its digits and a u, found by its value, and given back."""
    with open_store(tmp_path / "refold.db") as store:
        run = store.run("r")
        run.tasks.open_root("root")
        run.tasks.spawn("large", parent="root")
        run.tasks.report_usage("root", tokens=2**63 - 1)
        run.tasks.report_usage("large", tokens=2**64 - 1)
        with store.readmodel() as model:
            assert [row["task_id"] for row in model.find("tasks", {"tokens_used": 2**64 - 1})] == ["large"]
            assert [row["tokens_used"] for row in model.find("tasks")] == [2**64 - 1, 2**63 - 1]
            (used,) = model.query("SELECT tokens_used FROM tasks WHERE task_id = 'large'")
            assert used == ("18446744073709551615u",)
            (total,) = model.query("SELECT tokens_used FROM subtree_usage WHERE task_id = 'root'")
            assert total[0] == pytest.approx(2**64 + 2**63)


def test_any_sqlite_tool_can_read_it(tmp_path: Path) -> None:
    """The file is plain SQLite: a bare connection runs the views and the full-text search, a schema that is not
    trusted too."""
    with open_store(tmp_path / "refold.db") as store:
        live(store.run("r"), [Step(number * 97, number, number * 3, number * 7) for number in range(1, 60)])
        store.readmodel().close()
    with closing(sqlite3.connect(f"file:{tmp_path / 'refold.read.db'}?mode=ro", uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        for name in BY_NAME:
            connection.execute(f'SELECT * FROM "{name}"').fetchall()
        assert connection.execute("SELECT count(*) FROM events").fetchone()[0] > 20
        connection.execute("SELECT rowid FROM messages_fts WHERE messages_fts MATCH 'a'").fetchall()
