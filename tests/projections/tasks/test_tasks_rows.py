"""Rows: the exact JSON form, immutability, and the way back from rows to the table."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from engine.core.errors import ImportRefused, InvalidValue
from engine.core.limits import U32_MAX, U64_MAX
from projections.tasks import ChildProcessState, RowExtras, TaskControlState, TaskRows, TaskTable
from tests.projections.tasks.tasks_harness import MODEL, TaskRun, family, launch

ROW = {
    "task_id": "wf-node0",
    "parent_task_id": "root",
    "lifecycle": "done",
    "termination": "completed",
    "wait": None,
    "waiting_on": [],
    "capability_ids": ["b", "a"],
    "process": {
        "role": "custom",
        "isolation": "shared",
        "context_inheritance": "none",
        "join_result": {
            "agent_id": "wf-node0",
            "result": {
                "final_message": {"content": "out", "role": "assistant"},
                "termination": "completed",
                "total_tokens_used": 50,
                "turns_used": 2,
            },
        },
    },
    "tokens_used": str(U64_MAX),
    "turns_used": U32_MAX,
}


def test_a_row_is_the_ten_fields_of_the_seed_in_order() -> None:
    """Field names and their order, of the object and of its JSON, are those of the seed."""
    row = TaskControlState.from_json(ROW)
    assert [field.name for field in fields(row)] == list(row.to_json()) == list(ROW)
    assert list(row.to_json()["process"]) == ["role", "isolation", "context_inheritance", "join_result"]


def test_json_round_trip_is_exact() -> None:
    """from_json then to_json gives the same JSON; tokens_used is an int in between and a decimal string outside."""
    row = TaskControlState.from_json(ROW)
    assert row.to_json() == ROW
    assert row.tokens_used == U64_MAX
    assert TaskControlState.from_json(json.loads(json.dumps(row.to_json()))) == row
    assert hash(TaskControlState.from_json(row.to_json())) == hash(row)


@pytest.mark.parametrize("rubbish", [None, [], {}, {**ROW, "tokens_used": "05"}, {**ROW, "nope": 1}, {"task_id": 5}])
def test_a_row_that_breaks_a_rule_by_itself_is_refused(rubbish: Any) -> None:
    """from_json names every rule that the row breaks."""
    with pytest.raises(ImportRefused) as refused:
        TaskControlState.from_json(rubbish)
    assert refused.value.violations and refused.value.hint


def test_rows_cannot_be_changed() -> None:
    """Rows and process states refuse assignment and deletion, and give fresh copies of what could be changed."""
    row = TaskControlState.from_json(ROW)
    assert row.process is not None
    with pytest.raises(FrozenInstanceError):
        row.lifecycle = "running"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        row.process.role = "plan"
    with pytest.raises(AttributeError):
        del row.process.role
    row.process.join_result["agent_id"] = "other"
    row.to_json()["waiting_on"].append("x")
    assert row.to_json() == ROW


def test_rows_survive_copying_and_pickling() -> None:
    """A copied or pickled row, and a whole listing with its extras, are equal to what they were made from."""
    row = TaskControlState.from_json(ROW)
    assert copy.deepcopy(row) == pickle.loads(pickle.dumps(row)) == row
    rows = varied().table.rows()
    for again in (copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))):
        assert again == rows and again.extras == rows.extras


def test_equal_process_states_are_exactly_equal() -> None:
    """Values that Python calls equal but JSON does not (1, true, 1.0) make different rows."""
    states = [ChildProcessState("plan", "shared", "none", {"v": value}) for value in (1, True, 1.0)]
    assert len(set(states)) == 3
    assert states[0] == ChildProcessState("plan", "shared", "none", {"v": 1})
    assert states[0] != "plan"
    assert "join_result={'v': 1}" in repr(states[0])
    with pytest.raises(InvalidValue):
        ChildProcessState("plan", "shared", "none", {"v": {1}})


def varied() -> TaskRun:
    """A run whose table knows more than its rows show: attempts, tokens, names, times, a failure, a join in part."""
    run = family()
    run.tasks.spawn("failed", parent="root")
    run.tasks.fail_launch("failed", 1, reason="no room")
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["b", "a"])
    run.tasks.relaunch("a", mode="retry")
    launch(run, "a")
    run.tasks.suspend("deep", wait="signal", awaited="go", due_ms=77)
    run.tasks.finish("b", attempt=1, result={"final_message": "x"})
    return run


def test_rows_give_the_table_back() -> None:
    """from_rows(table.rows()) is the table, byte for byte in the state, though ten fields cannot hold all of it."""
    table = varied().table
    again = TaskTable.from_rows(table.rows())
    assert again == table
    state = MODEL.initial()
    state.parts["tasks"] = again
    assert [row.dump() for _, row in again.tasks.ordered()] == [row.dump() for _, row in table.tasks.ordered()]
    assert again != TaskTable() and again != "table"


def test_rows_and_extras_may_travel_apart() -> None:
    """The JSON rows with the extras beside them give the same table; the rows alone give a first attempt."""
    table = varied().table
    rows = table.rows()
    beside = [RowExtras(**json.loads(json.dumps(extra.to_json()))) for extra in rows.extras]
    assert TaskTable.from_rows(rows.to_json(), beside) == table
    alone = TaskTable.from_rows(rows.to_json())
    assert alone.rows() == rows
    assert alone != table
    assert {extra.attempt for extra in alone.rows().extras} == {1}
    assert TaskRows(rows).extras == (RowExtras(),) * len(rows)


@pytest.mark.parametrize(
    ("task_id", "change", "path"),
    [
        ("a", {"attempt": 0}, "extras[1].attempt"),
        ("a", {"attempt": True}, "extras[1].attempt"),
        ("a", {"launch_token": ""}, "extras[1].launch_token"),
        ("a", {"join_place": None}, "extras"),
        ("deep", {"join_place": 4}, "extras"),
        ("a", {"awaited": "x"}, "extras[1].awaited"),
        ("a", {"due_ms": 4}, "extras[1].due_ms"),
        ("a", {"failure": "x"}, "extras[1].failure"),
        ("root", {"result": {}}, "extras[0].result"),
        ("b", {"result": {"x": {1}}}, "extras[2].result.x"),
    ],
)
def test_extras_that_do_not_fit_their_row_are_refused(task_id: str, change: dict[str, Any], path: str) -> None:
    """What stands beside a row is checked as strictly as the row, and the error leads to it."""
    run = family()
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["b", "a"])
    rows = run.table.rows()
    beside = [
        extra._replace(**change) if row.task_id == task_id else extra
        for row, extra in zip(rows, rows.extras, strict=True)
    ]
    with pytest.raises(InvalidValue) as refused:
        TaskTable.from_rows(rows, beside)
    assert refused.value.path == path


def test_there_is_one_extra_a_row() -> None:
    """Too few extras, or something else in their place, is refused."""
    rows = family().table.rows()
    for beside in (rows.extras[:-1], [*rows.extras[:-1], {"attempt": 1}]):
        with pytest.raises(InvalidValue):
            TaskTable.from_rows(rows, beside)
