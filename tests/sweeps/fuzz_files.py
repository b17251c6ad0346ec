"""Hostile SQLite files: the store, the log beside it, the read model, with bytes changed, with values of other types in
any cell, and with a schema that computes without end. It must never leave a file behind that the next case would read.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from engine.open_store import open_store
from engine.readmodel.questions import QUESTIONS
from engine.readmodel.schema import BY_NAME, TABLES, VIEWS
from tests.engine.kit import NEVER, Ticks
from tests.field_reports.whole_run import STEPS
from tests.sweeps.fuzz_imports import Attempt, Tried
from tests.sweeps.fuzz_stored import Sample, ask_everything, clear, odd_cell, samples
from tests.sweeps.harness import scratch
from tests.sweeps.mutate import Dice, changed_bytes
from tests.sweeps.watch import watched

__all__ = ["fuzz_read_model", "fuzz_schema", "fuzz_store_file"]


@cache
def _with_logs() -> tuple[tuple[Sample, bytes], ...]:
    """Return stores as a killed writer leaves them: some of their pages only in the log."""
    made = []
    for sample in samples():
        with scratch() as folder:
            path = folder / "refold.db"
            path.write_bytes(sample.data)
            with open_store(path, model=sample.model, clock=Ticks(), checkpoints=NEVER) as store:
                for run in sample.runs[:2]:
                    store.run(run).checkpoint(full=True)
                    store.fork(run, f"{run} again", at=1)
                log = path.with_name("refold.db-wal").read_bytes()
                made.append((Sample(sample.model, path.read_bytes(), sample.runs), log))
    return tuple(made)


def fuzz_store_file(folder: Path) -> Attempt:
    """Stores whose file, log or both were changed, cut, or exchanged for others'."""
    path = folder / "refold.db"

    def attempt(dice: Dice) -> Tried:
        clear(folder)
        (sample, log), (other, other_log) = dice.choice(_with_logs()), dice.choice(_with_logs())
        data, what = sample.data, dice.choice(("file", "log", "both", "other log", "head"))
        if what in ("file", "both"):
            data = changed_bytes(dice, data, other.data)
        if what in ("log", "both"):
            log = changed_bytes(dice, log, other_log)
        if what == "other log":
            log = other_log
        if what == "head":
            start = dice.choice((0, 16, 24, 28, 32, 40, 52, 56, 92, 100, 103, 105))
            other_words = changed_bytes(dice, data[start : start + 8], times=1)[:8].ljust(8, b"\0")
            data = data[:start] + other_words + data[start + 8 :]
        path.write_bytes(data)
        if dice.random() < 0.8 or what == "log":
            path.with_name("refold.db-wal").write_bytes(log)
        return _named(what, *ask_everything(dice, path, sample, strict=False))

    return attempt


def _named(what: str, outcome: str, problems: list[str]) -> Tried:
    return f"{what} {outcome}", [f"{what}: {problem}" for problem in problems]


# -- schemas ----------------------------------------------------------------------------------------------------------

_ENDLESS: Final = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT "
_BIG: Final = "zeroblob(900000000)"


def _view(table: str, columns: str) -> str:
    return f"DROP TABLE {table}; CREATE VIEW {table} AS {_ENDLESS}{columns} FROM n"


_EVENTS: Final = "x AS rowid, 'r' AS originator_id, x AS originator_version, 'refold.commit/1' AS topic, {} AS state"
_HEADS: Final = (
    "'r' AS run_id, x AS position, {} AS link, NULL AS origin_run, NULL AS origin_position, NULL AS origin_link, "
    "0 AS hidden"
)
_SCHEMAS: Final = {
    "endless events": _view("stored_events", _EVENTS.format("x'00'")),
    "endless heads": _view("run_heads", _HEADS.format("x'00'")),
    "endless checkpoints": _view("stored_checkpoints", _EVENTS.format("x'00'")),
    "huge events": _view("stored_events", _EVENTS.format(_BIG)).replace("FROM n", "FROM n LIMIT 4"),
    "huge heads": _view("run_heads", _HEADS.format(_BIG)).replace("FROM n", "FROM n LIMIT 4"),
    "views of one another": "DROP TABLE run_heads; CREATE VIEW run_heads AS SELECT * FROM run_heads2; "
    "CREATE VIEW run_heads2 AS SELECT * FROM run_heads",
    "a trigger that deletes": "CREATE TRIGGER t AFTER INSERT ON stored_events BEGIN DELETE FROM run_heads; END",
    "a trigger without end": "CREATE TRIGGER t AFTER INSERT ON stored_events BEGIN INSERT INTO stored_events "
    f"{_ENDLESS} x+100000, 'r', x+100000, 'x', x'' FROM n; END",
    "a trigger that raises": "CREATE TRIGGER t BEFORE INSERT ON stored_events BEGIN SELECT RAISE(ABORT, 'no'); END",
    "a trigger that ignores": "CREATE TRIGGER t BEFORE INSERT ON stored_events BEGIN SELECT RAISE(IGNORE); END",
    "a trigger on heads": "CREATE TRIGGER t AFTER UPDATE ON run_heads BEGIN DELETE FROM stored_events; END",
    "a trigger on checkpoints": "CREATE TRIGGER t AFTER INSERT ON stored_checkpoints BEGIN DELETE FROM run_heads; END",
    "a column computed without end": "ALTER TABLE run_heads RENAME TO old; CREATE TABLE run_heads (run_id TEXT, "
    "position INTEGER, link BLOB AS (zeroblob(900000000)), origin_run TEXT, origin_position INTEGER, origin_link BLOB, "
    "hidden INTEGER); INSERT INTO run_heads(run_id, position, hidden) VALUES ('r', 5, 0)",
    "a virtual table": "DROP TABLE run_heads; CREATE VIRTUAL TABLE run_heads USING fts5(run_id, position, link, "
    "origin_run, origin_position, origin_link, hidden)",
    "an index on an expression": "CREATE INDEX i ON stored_events (length(state) / (originator_version - 3))",
    "a missing table": "DROP TABLE stored_checkpoints",
    "a missing column": "ALTER TABLE stored_checkpoints DROP COLUMN topic",
    "another column": "ALTER TABLE stored_events ADD COLUMN more TEXT DEFAULT 'x'",
    "a foreign table": "CREATE TABLE more (x); INSERT INTO more VALUES (1); CREATE VIEW v AS SELECT * FROM more",
    "statistics": "ANALYZE",
    "another version": "PRAGMA user_version=2",
    "no version": "PRAGMA user_version=0",
    "a version below all": "PRAGMA user_version=-5",
    "another program": "PRAGMA application_id=7",
    "no program": "PRAGMA application_id=0",
    "rolled back journal": "PRAGMA journal_mode=DELETE",
    "a schema that is none": "PRAGMA writable_schema=ON; UPDATE sqlite_master SET sql='CREATE TABLE' WHERE rootpage=3",
    "a schema of another": "PRAGMA writable_schema=ON; UPDATE sqlite_master SET rootpage=2 WHERE type='table'",
    "a schema without names": "PRAGMA writable_schema=ON; UPDATE sqlite_master SET name=x'00ff', tbl_name=NULL",
}  # fmt: skip


def fuzz_schema(folder: Path) -> Attempt:
    """Stores with other tables, views in the place of tables, triggers, and what else a schema can hide."""
    path = folder / "refold.db"

    def attempt(dice: Dice) -> Tried:
        clear(folder)
        sample, what = dice.choice(samples()), dice.choice(list(_SCHEMAS))
        path.write_bytes(sample.data)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in _SCHEMAS[what].split("; "):
                if " BEGIN " in _SCHEMAS[what]:
                    connection.executescript(_SCHEMAS[what])
                    break
                with suppress(sqlite3.DatabaseError):
                    connection.execute(statement)
        return _named(what, *ask_everything(dice, path, sample, strict=False))

    return attempt


# -- the read model ---------------------------------------------------------------------------------------------------


@cache
def _model_files() -> tuple[bytes, bytes]:
    """Return a store, and its read model."""
    with scratch() as folder:
        path = folder / "refold.db"
        with open_store(path, clock=Ticks(), checkpoints=NEVER) as store:
            run = store.run("r", actor="host")
            for step in STEPS:
                step(run)
            run.checkpoint()
            store.fork("r", "fork", at=9)
            store.readmodel().close()
            run.tasks.report_usage("root", tokens=5)
        return path.read_bytes(), path.with_name("refold.read.db").read_bytes()


def fuzz_read_model(folder: Path) -> Attempt:
    """Read models that somebody has changed, beside an honest store."""
    path, beside = folder / "refold.db", folder / "refold.read.db"

    def attempt(dice: Dice) -> Tried:
        clear(folder)
        store_data, data = _model_files()
        path.write_bytes(store_data)
        beside.write_bytes(data)
        what = dice.choice(("bytes", "rows", "rows", "rows", "schema"))
        if what == "bytes":
            beside.write_bytes(changed_bytes(dice, data, store_data))
        else:
            with closing(sqlite3.connect(beside, isolation_level=None)) as connection:
                (_spoil_row if what == "rows" else _spoil_schema)(dice, connection)
        questions, tables = dice.sample(QUESTIONS, 3), dice.sample(list(BY_NAME), 4)

        def act() -> Any:
            with open_store(path, create=False, read_only=True) as store, store.readmodel() as model:
                for name in tables:
                    model.find(name)
                for question in questions:
                    given = {name: _GIVEN.get(name, "r") for name in question.parameters}
                    with model.query(question.name, given) as answer:
                        list(answer)
                return model.search("one"), model.updated.faults

        seen = watched(act, len(data), folder=folder)
        problems = list(seen.problems)
        if path.read_bytes() != store_data:
            problems.append("the store was changed")
        return _named(what, seen.outcome, problems)

    return attempt


_GIVEN: Final = {"task": "root", "at_ms": "5000", "graph": "g", "node": "0", "context": "c", "words": "one"}


def _spoil_row(dice: Dice, connection: sqlite3.Connection) -> None:
    """Put values of any type into cells; move a run's row; lose and double rows."""
    connection.execute("PRAGMA ignore_check_constraints=ON")
    for _ in range(dice.choice((1, 1, 3))):
        table = dice.choice(TABLES)
        column, other = dice.choice(table.columns).name, dice.choice(table.columns).name
        rows = list(range(1, 50))
        statement, values = dice.choice((
            (f"UPDATE {table.name} SET {column}=? WHERE rowid=?", (odd_cell(dice), dice.choice(rows))),
            (f"UPDATE {table.name} SET {column}=?", (odd_cell(dice),)),
            (f"UPDATE {table.name} SET {column}={other}", ()),
            (f"DELETE FROM {table.name}", ()),
            ("UPDATE runs SET position=?, link=?", (dice.choice((0, 5, 10**6, -1, "x")), dice.choice(("", "00" * 32)))),
            ("UPDATE tasks SET parent_task_id=task_id", ()),
        ))  # fmt: skip
        with suppress(sqlite3.Error, OverflowError):
            connection.execute(statement, values)


def _spoil_schema(dice: Dice, connection: sqlite3.Connection) -> None:
    """Let tables be others: gone, views that compute without end, with triggers and columns of their own."""
    name = dice.choice([*TABLES, *VIEWS]).name
    kind = "VIEW" if name in {view.name for view in VIEWS} else "TABLE"
    statement = dice.choice((
        f"DROP {kind} {name}",
        f"DROP {kind} {name}; CREATE VIEW {name} AS {_ENDLESS} x AS run, x AS position, '' AS link, '' AS fault FROM n",
        f"DROP {kind} {name}; CREATE TABLE {name} (run, position, link, fault)",
        f"CREATE TRIGGER t AFTER INSERT ON {name} BEGIN DELETE FROM runs; END",
        f"CREATE TRIGGER t AFTER INSERT ON events BEGIN INSERT INTO runs {_ENDLESS} x, x, x, x, x, x FROM n; END",
        f"ALTER TABLE {name} ADD COLUMN more DEFAULT 'x'",
        "PRAGMA user_version=7",
        "PRAGMA application_id=7",
        "PRAGMA writable_schema=ON; UPDATE sqlite_master SET sql='CREATE TABLE runs (x)' WHERE name='runs'",
    ))  # fmt: skip
    with suppress(sqlite3.Error):
        connection.executescript(statement)
