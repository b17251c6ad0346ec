"""What is documented is executed: every question, view and column of SCHEMA.md, on a store whose answers are known."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from engine.core.errors import NotFound
from engine.open_store import open_store
from engine.readmodel import ReadModel
from engine.readmodel.page import PAGE, described, render
from engine.readmodel.questions import QUESTIONS
from engine.readmodel.schema import BY_NAME, TABLES
from engine.readmodel.shape import SQL_TYPES

NOON = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadModel]:
    """A run ``nightly``, an event a second from midnight on, and its fork ``what-if``."""
    clock = iter(range(NOON, NOON + 10**9, 1000))
    with open_store(tmp_path_factory.mktemp("questions") / "refold.db", clock=lambda: next(clock)) as store:
        run = store.run("nightly", actor="planner")
        tasks = run.tasks
        tasks.open_root("root")  # 1
        tasks.start("root")
        tasks.spawn("fetch", parent="root", role="explore", command_id="spawn-fetch")  # 3
        tasks.publish_launch("fetch")
        tasks.acknowledge_launch("fetch", 1)
        tasks.report_usage("fetch", tokens=120, turns=2)  # 6
        tasks.spawn("build", parent="fetch", role="implement")
        tasks.fail_launch("build", 1, reason="no place left")  # 8
        tasks.suspend("root", wait="sub_agent_join", waiting_on=["fetch"], actor="kernel")  # 9
        run.contexts.create("chat", model_window=10)
        run.contexts.append("chat", {"role": "user", "text": "When is the deadline of the report?"})  # 11
        run.contexts.append("chat", {"role": "assistant", "text": "On Friday."})
        run.contexts.append("chat", {"role": "user", "text": "Thank you."})
        plan = run.contexts.plan_compaction("chat", keep_last=1)
        assert plan is not None
        run.contexts.apply_compaction("chat", plan, {"facts": ["the report has a deadline"]})  # 14
        run.graphs.create("plan", "ship", [_node(0), _node(1, depends_on=[0])])  # 15..17
        run.graphs.start("plan")
        for _ in range(2):
            run.graphs.dispatch("plan", 0, "h1", "coder")
            run.graphs.fail(
                "plan", 0, "tools", "compiler crashed", attempt=run.graphs.running("plan")[0].attempt.number
            )
        run.swarm.start(2, failure_threshold=2)
        run.swarm.complete_action(1, "climb", success=False, output="fell", duration_ms=5)
        run.swarm.complete_action(1, "climb", success=False, output="fell again", duration_ms=5)
        run.swarm.set_metadata("site", {"region": {"zone a": ["eu", "us"]}})
        fork = run.fork("what-if", at=9)
        fork.tasks.finish("fetch", attempt=1, result={"final_message": "found it"})
        with store.readmodel() as opened:
            assert opened.updated.faults == ()
            yield opened


def _node(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "title": f"step {number}", "description": "", "failure_strategy": "retry", **more}


ANSWERS: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "who_changed": (
        {"run": "nightly", "task": "root"},
        [("suspended", 9, "2026-01-01 00:00:08", "task.suspended/1", "kernel", None, None, None)],
    ),
    "waiting_at": (
        {"run": "nightly", "task": "root", "at_ms": NOON + 8500},
        [(9, "suspended", "sub_agent_join", '["fetch"]', None, "kernel")],
    ),
    "usage_under": ({"run": "nightly", "task": "root"}, [(3, 120, 2)]),
    "task_durations": ({"run": "nightly"}, [("build", "implement", "error", 1000, 0)]),
    "failures": ({}, [("explore", "completed", 1), ("implement", "error", 1)]),  # the fork shares the second
    "own_events": ({}, [("nightly", 30, 0, None), ("what-if", 1, 9, "nightly")]),
    "consequences": (
        {"run": "nightly", "seq": 15},
        [
            (0, 15, "graph.created/1", "planner"),
            (1, 16, "node.added/1", "planner"),
            (1, 17, "node.added/1", "planner"),
        ],
    ),
    "task_events": (
        {"run": "nightly", "task": "build"},
        [
            (7, "2026-01-01 00:00:06", "task.spawned/1", "planner", None),
            (8, "2026-01-01 00:00:07", "task.launch_failed/1", "planner", None),
        ],
    ),
    "said": (
        {"words": "deadline report"},
        [("nightly", "chat", 0, "user", "When is the [deadline] of the [report]?", 0)],
    ),
    "conversation": (
        {"run": "nightly", "context": "chat"},
        [(2, "user", "Thank you.", None, None)],
    ),
    "why_not_ready": (
        {"run": "nightly", "graph": "plan", "node": 1},
        [(0, "node 0 is ready")],
    ),
    "retried_nodes": (
        {},
        [
            ("nightly", "plan", 0, "step 0", 1, "tools", "compiler crashed", 1000),
            ("nightly", "plan", 0, "step 0", 2, "tools", "compiler crashed", 1000),
        ],
    ),
    "failing_workers": (
        {},
        [("nightly", 1, "escalated", 2, "climb", "fell again", "consecutive_failures", 0)],
    ),
    "metadata_at": ({"key": "site", "path": '$.region."zone a"[1]'}, [("nightly", "site", "us")]),
    "between": (
        {"run": "nightly", "from_ms": NOON + 1000, "to_ms": NOON + 2000},
        [(2, "task.started/1", "planner", None), (3, "task.spawned/1", "planner", "spawn-fetch")],
    ),
    "differs_from_origin": (
        {"fork": "what-if"},
        [("root", "suspended", "running", 0, 0), ("fetch", "running", "done", 120, 120)],
    ),
}
"""By question: its parameters, and its answer; the data of events, when it comes last, is left out."""


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
@pytest.mark.parametrize("as_text", [False, True], ids=["typed", "texts"])
def test_every_question_is_answered(model: ReadModel, question: Any, as_text: bool) -> None:
    """Each documented question gives the known answer, by name and by its SQL, with typed parameters and with the texts
    that a command line has; it takes the parameters it says, and no other."""
    parameters, expected = ANSWERS[question.name]
    assert set(parameters) == set(question.parameters) == set(re.findall(r":([a-z_]+)", question.sql))
    given = {name: str(value) for name, value in parameters.items()} if as_text else parameters
    answer = model.query(question.name, given)
    with_data = answer.columns[-1] == "data"
    rows = list(answer)
    assert [row[:-1] if with_data else row for row in rows] == expected
    assert all(isinstance(json.loads(row[-1]), dict) for row in rows if with_data)
    assert list(model.query(question.sql, given)) == rows


def test_every_question_has_a_known_answer() -> None:
    """None is documented that these tests do not run."""
    assert set(ANSWERS) == {question.name for question in QUESTIONS}
    assert not {question.name for question in QUESTIONS} & set(BY_NAME)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_column_is_as_documented(model: ReadModel, name: str) -> None:
    """Tables and views have exactly the documented columns, in order, and their values are of the documented kind; a
    column that is documented as never NULL never is."""
    shape = BY_NAME[name]
    answer = model.query(name)
    assert answer.columns == tuple(column.name for column in shape.columns)
    for row in answer:
        for stored, column in zip(row, shape.columns, strict=True):
            assert column.doc
            if stored is None:
                assert column.null, (name, column.name)
            elif column.kind == "json":
                json.loads(stored)
            else:
                assert isinstance(stored, {"TEXT": str, "INTEGER": int, "REAL": float}[SQL_TYPES[column.kind]])
            if column.kind == "bool":
                assert stored in (None, 0, 1)


def test_keys_and_references_are_as_documented(model: ReadModel) -> None:
    """Primary keys, foreign keys and types in the file are those of the shapes."""
    assert model.path is not None
    with closing(sqlite3.connect(model.path)) as connection:
        for table in TABLES:
            columns = connection.execute(f'PRAGMA table_info("{table.name}")').fetchall()
            assert [(column[1], column[2]) for column in columns] == [
                (column.name, SQL_TYPES[column.kind]) for column in table.columns
            ]
            keyed = [column[1] for column in sorted(columns, key=lambda column: column[5]) if column[5]]
            assert keyed == (["id"] if table.search else list(table.key))
            found: dict[int, tuple[str, list[str]]] = {}
            for number, _, other, column, *_ in connection.execute(f'PRAGMA foreign_key_list("{table.name}")'):
                found.setdefault(number, (other, []))[1].append(column)
            assert sorted((other, tuple(names)) for other, names in found.values()) == sorted(
                (foreign.table, foreign.columns) for foreign in table.foreign
            )


def test_the_page_is_fresh() -> None:
    """``engine/SCHEMA.md`` says what the code says; after a change of either: ``make docs``."""
    assert PAGE.read_text(encoding="utf-8") == render(), "run 'make docs' and commit engine/SCHEMA.md"


def test_the_page_documents_everything_by_name() -> None:
    """Every table, view, question and column stands in the page and in what ``--schema`` prints."""
    text = render()
    for shape in described():
        assert f"\n### {shape['name']}\n" in text and described(shape["name"]) == [shape]
        assert all(f"`{column['name']}`" in text for column in shape["columns"])
    with pytest.raises(NotFound, match="nothing"):
        described("nothing")
