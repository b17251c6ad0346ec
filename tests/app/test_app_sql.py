"""``refold sql``: shapes of the answers, parameters, the schema, what is refused, and that nothing but the read model
is ever written."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from engine import open_store
from engine.readmodel.page import described
from tests.app.conftest import Cli, flip


def test_a_query_answers_with_rows(cli: Cli, nightly: Path) -> None:
    """``sql`` prints a table under the names of the columns; with --json a list of objects, one a row, in order."""
    query = "SELECT task_id, lifecycle, tokens_used FROM tasks WHERE run = 'nightly' ORDER BY number"
    answer = cli("sql", query, "--json")
    assert answer.code == 0 and answer.err == ""
    assert answer.json == [
        {"task_id": "root", "lifecycle": "suspended", "tokens_used": 0},
        {"task_id": "fetch", "lifecycle": "done", "tokens_used": 120},
        {"task_id": "build", "lifecycle": "running", "tokens_used": 2**60},
    ]
    shown = cli("sql", query)
    assert shown.code == 0
    assert shown.out.splitlines() == [
        "task_id  lifecycle          tokens_used",
        "root     suspended                    0",
        "fetch    done                       120",
        "build    running    1152921504606846976",
    ]


def test_names_stand_for_their_rows(cli: Cli, nightly: Path) -> None:
    """The name of a table, a view or a question is a query; a question takes its parameters from --param."""
    assert len(cli("sql", "events", "--json").json) == 13
    (row,) = cli("sql", " waiting_tasks ", "--json").json
    assert (row["task_id"], row["waiting_on"], row["waiting_on_lifecycle"]) == ("root", "build", "running")
    (row,) = cli("sql", "who_changed", "--param", "run=nightly", "--param", "task=build", "--json").json
    assert (row["seq"], row["type"], row["actor"]) == (13, "task.capabilities_granted/1", "planner")


def test_parameters_are_values_and_never_sql(cli: Cli, nightly: Path) -> None:
    """A parameter is one text whatever it says (L43); it compares as the column's type."""
    count = "SELECT count(*) AS n FROM tasks WHERE task_id = :id OR tokens_used = :id"
    for text, found in (("fetch", 1), ("120", 1), ("' OR 1=1 --", 0), ("a=b=c", 0), ("", 0)):
        assert cli("sql", count, "--param", f"id={text}", "--json").json == [{"n": found}]
    assert cli("sql", "tasks", "--json").code == 0
    for wrong in ("id", "=x", "1d=x", "a b=x"):
        answer = cli("sql", count, "--param", wrong, "--json")
        assert answer.code == 2 and answer.error["code"] == "wrong_usage"


def test_it_is_up_to_date_first(cli: Cli, nightly: Path) -> None:
    """Each query takes in what was recorded since the last one, and deleted runs are gone."""
    assert cli("sql", "SELECT max(seq) AS n FROM events", "--json").json == [{"n": 13}]
    with open_store(nightly) as store:
        store.run("nightly").tasks.report_usage("build", tokens=1)
        store.run("another").tasks.open_root("root")
    assert cli("sql", "SELECT run, position FROM runs ORDER BY run", "--json").json == [
        {"run": "another", "position": 1},
        {"run": "nightly", "position": 14},
    ]
    with open_store(nightly) as store:
        store.delete("another")
    assert [row["run"] for row in cli("sql", "runs", "--json").json] == ["nightly"]


def test_the_read_model_lies_where_it_is_told(cli: Cli, nightly: Path, tmp_path: Path) -> None:
    """Beside the store, at --path, or nowhere; --rebuild makes it anew; the store's file never changes."""
    before = nightly.read_bytes()
    assert cli("sql", "tasks", "--path", "memory:", "--json").code == 0
    assert not (tmp_path / "refold.read.db").exists()
    assert cli("sql", "tasks", "--path", tmp_path / "elsewhere.db").code == 0
    assert cli("sql", "tasks").code == 0
    beside = tmp_path / "refold.read.db"
    with closing(sqlite3.connect(beside)) as connection, connection:
        connection.execute("UPDATE tasks SET role = 'tampered'")
    roles = "SELECT DISTINCT role FROM tasks ORDER BY 1"
    assert cli("sql", roles, "--json").json == [{"role": "tampered"}]
    assert [row["role"] for row in cli("sql", roles, "--rebuild", "--json").json] == [None, "explore", "implement"]
    assert nightly.read_bytes() == before
    for name in ("refold.db", "foreign.db"):
        if name == "foreign.db":
            with closing(sqlite3.connect(tmp_path / name)) as connection:
                connection.execute("CREATE TABLE t (x)")
        content = (tmp_path / name).read_bytes()
        answer = cli("sql", "tasks", "--path", name, "--json")
        assert answer.code == 3 and answer.error["code"] == "not_a_store"
        assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        ("SELECT * FROM missing", "invalid_value", "no such table: missing"),
        ("SELEC 1", "invalid_value", "syntax error"),
        ("SELECT 1; SELECT 2", "invalid_value", "one statement"),
        ("", "invalid_value", "no rows"),
        ("SELECT :x", "invalid_value", "parameter"),
        ("DELETE FROM tasks", "read_only", "more than read"),
        ("ATTACH 'x.db' AS x", "read_only", "more than read"),
        ("PRAGMA journal_mode = DELETE", "read_only", "more than read"),
        ("SELECT * FROM messages_fts WHERE messages_fts MATCH '\"'", "invalid_value", "unterminated"),
    ],
)
def test_a_query_that_cannot_be_is_wrong_usage(cli: Cli, nightly: Path, query: str, code: str, says: str) -> None:
    """SQL that SQLite refuses, or that does more than read, is exit code 2 with its message and a way on; what names a
    table that is not there is told the tables that are."""
    answer = cli("sql", query, "--json")
    assert answer.code == 2 and answer.out in ("", "[")
    assert answer.error["code"] == code and says in answer.error["message"] and answer.error["hint"]
    if "missing" in query:
        assert "tasks" in answer.error["hint"] and "waiting_tasks" in answer.error["hint"]
    assert not Path("x.db").exists()


def test_without_a_query_it_says_how_it_is_used(cli: Cli, nightly: Path) -> None:
    """No query and no --schema is wrong usage."""
    assert cli("sql", "--json").error["code"] == "wrong_usage"


def test_the_schema_is_printed_without_a_store(cli: Cli) -> None:
    """``--schema`` describes every table, view and question with its columns; with a name, that one alone."""
    answer = cli("sql", "--schema", "--json")
    assert answer.code == 0 and answer.json == described()
    shown = cli("sql", "--schema").out
    for shape in described():
        assert f"{shape['name']}, {shape['what']}: " in shown
    one = cli("sql", "--schema", "usage_under").out
    assert "WITH RECURSIVE" in one and ":task" in one and "live_tasks" not in one
    unknown = cli("sql", "--schema", "nothing", "--json")
    assert unknown.code == 2 and unknown.error["code"] == "not_found" and "tasks" in unknown.error["hint"]


def test_cells_of_every_kind_are_printed(cli: Cli, nightly: Path) -> None:
    """Bytes, infinities and two columns of one name have a place in JSON; control characters do not reach a terminal;
    no row is said to be none."""
    answer = cli("sql", "SELECT x'00ff' AS b, 9e999 AS i, 1 AS n, 2 AS n, NULL AS z", "--json")
    assert answer.json == [{"b": {"$bytes": "AP8="}, "i": "inf", "n": 1, "n_2": 2, "z": None}]
    shown = cli("sql", "SELECT char(27) || '[31m' AS red")
    assert "\x1b" not in shown.out and "\\x1b[31m" in shown.out
    nothing = cli("sql", "SELECT 1 WHERE 0")
    assert (nothing.code, nothing.out) == (0, "") and "no row" in nothing.err
    assert cli("sql", "SELECT 1 WHERE 0", "--json").json == []


def test_a_damaged_run_is_named_and_the_others_answer(cli: Cli, nightly: Path) -> None:
    """The answer comes from what could be read, the damage is named beside it, and the exit code says so."""
    with open_store(nightly) as store:
        store.run("whole").tasks.open_root("root")
    flip(nightly, "stored_events", 9)
    answer = cli("sql", "SELECT run, position, fault IS NULL AS whole FROM runs ORDER BY run", "--json")
    assert answer.code == 1
    assert answer.json == [
        {"run": "nightly", "position": 8, "whole": 0},
        {"run": "whole", "position": 1, "whole": 1},
    ]
    assert "run nightly ends here at 8" in answer.err and "position 9" in answer.err


def test_what_is_no_store_gets_no_read_model(cli: Cli, tmp_path: Path) -> None:
    """A missing store is store trouble, and nothing is made."""
    answer = cli("sql", "tasks", "--json")
    assert answer.code == 3 and json.loads(answer.err)["error"]["code"] == "not_found"
    assert list(tmp_path.iterdir()) == []
