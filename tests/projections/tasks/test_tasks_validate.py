"""Validation of whole tables: every violation at once, on recorded, tampered and random tables."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import ImportRefused
from projections.tasks import ChildProcessState, TaskControlState, TaskTable, Violation, validate_table
from projections.tasks.violations import RULE_TEXTS
from tests.projections.tasks.tasks_harness import family

FIXTURES = Path(__file__).parents[3] / "fixtures"
TAMPERED = json.loads((FIXTURES / "tampered-tables.json").read_text())
RECORDINGS = [
    *(FIXTURES.parent / "engine/app/data/kernel-runs").glob("*.json"),
    *(FIXTURES / "kernel-runs").glob("*.json"),
]
RECORDED = {path.stem: json.loads(path.read_text())["task_tables"] for path in RECORDINGS}

BROKEN_RULES = {
    "done without termination": {"termination.exactly_done", "join_result.termination"},
    "running with termination set": {"termination.exactly_done"},
    "join_result malformed": {"join_result.shape"},
    "running child with a join_result": {"join_result.only_done"},
    "root with process": {"process.exactly_child"},
    "unknown isolation": {"isolation.label"},
    "unknown parent": {"parent.known", "waiting_on.child"},
    "self parent": {"parent.no_cycle", "waiting_on.child"},
    "root has a parent": {"parent.no_cycle", "parent.one_root", "process.exactly_child"},
    "duplicate task row (different)": {"task_id.unique"},
    "tokens_used leading zero": {"tokens_used.form"},
    "turns > u32": {"turns_used.form"},
    "unknown task field": {"row.unknown_field"},
    "missing tokens_used": {"row.missing_field"},
    "duplicate capability ids": {"capability_ids.unique"},
    "task id 257 bytes": {"task_id.form", "waiting_on.known"},
    "suspended w/o wait but waiting_on set": {"wait.exactly_suspended", "waiting_on.exactly_join", "waiting_on.live"},
    "sub_agent_join w/ empty waiting_on": {"waiting_on.exactly_join"},
    "waiting_on self": {"waiting_on.not_self"},
    "waiting_on duplicate": {"waiting_on.unique"},
}


def rules(violations: list[Violation]) -> set[str]:
    return {violation.rule for violation in violations}


@pytest.mark.parametrize("case", TAMPERED, ids=[case["case"] for case in TAMPERED])
def test_every_tampered_table_gets_its_verdict(case: dict[str, Any]) -> None:
    """Each edited table is called valid or not as the contract says, for exactly the rules it breaks."""
    violations = validate_table(case["rows"])
    assert (violations == []) is case["valid"]
    assert rules(violations) == BROKEN_RULES.get(case["case"], set())
    if not case["valid"]:
        with pytest.raises(ImportRefused) as refused:
            TaskTable.from_rows(case["rows"])
        assert refused.value.violations == [violation.to_json() for violation in violations]
    else:
        assert TaskTable.from_rows(case["rows"]).rows().to_json() == [
            {field: row[field] for field in RECORDED_FIELDS} for row in case["rows"]
        ]


RECORDED_FIELDS = [
    "task_id",
    "parent_task_id",
    "lifecycle",
    "termination",
    "wait",
    "waiting_on",
    "capability_ids",
    "process",
    "tokens_used",
    "turns_used",
]


def as_ours(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A recorded table under the documented differences: finished children leave joins, an empty join has ended, and a
    cancelled child says on its row what its join result says."""
    table = copy.deepcopy(table)
    done = {row["task_id"] for row in table if row["lifecycle"] == "done"}
    for row in table:
        row["waiting_on"] = [child for child in row["waiting_on"] if child not in done]
        if row["wait"] == "sub_agent_join" and not row["waiting_on"]:
            row["lifecycle"], row["wait"] = "running", None
        join = row["process"] and row["process"]["join_result"]
        if join and (row["termination"], join["result"]["termination"]) == ("error", "user_abort"):
            row["termination"] = "user_abort"
    return table


def test_a_recorded_child_that_outlives_its_parent_is_a_violation() -> None:
    """The one recording that leaves children running under a finished root is called invalid for exactly that."""
    found = [validate_table(as_ours(table)) for table in RECORDED["ends_over_children"]]
    assert {violation.rule for violations in found for violation in violations} == {"parent.live"}


@pytest.mark.parametrize("run", sorted(set(RECORDED) - {"ends_over_children"}))
def test_recorded_tables_are_valid(run: str) -> None:
    """Every table of the recorded runs is valid under the documented differences, and inverts."""
    assert len(RECORDED) == 26
    for recorded in RECORDED[run]:
        table = as_ours(recorded)
        assert validate_table(table) == []
        assert TaskTable.from_rows(table).rows().to_json() == table


def test_a_finished_child_in_a_recorded_join_is_a_violation() -> None:
    """As recorded, a join that still lists finished children is named for exactly that."""
    table = RECORDED["wf_mixed"][5]
    violations = validate_table(table)
    assert [(v.row, v.task_id, v.field, v.value, v.rule) for v in violations] == [
        (0, "root", "waiting_on[0]", "wf-node1", "waiting_on.live")
    ]


def test_all_violations_come_at_once_with_row_field_value_and_rule() -> None:
    """A table with many faults reports each of them, in order of rows, and each names its place and its rule."""
    good = family().rows
    rows = copy.deepcopy(list(good.values()))
    rows[0]["turns_used"] = True
    rows[0]["termination"] = "completed"
    rows[1]["parent_task_id"] = "ghost"
    rows[1]["tokens_used"] = 5
    rows[2]["process"]["role"] = "boss"
    rows[2]["capability_ids"] = ["a", 2, "a"]
    rows[3] = [1, 2]
    assert [(v.row, v.field, v.value, v.rule) for v in validate_table(rows)] == [
        (0, "termination", "completed", "termination.exactly_done"),
        (0, "turns_used", True, "turns_used.form"),
        (1, "tokens_used", 5, "tokens_used.form"),
        (1, "parent_task_id", "ghost", "parent.known"),
        (2, "capability_ids[1]", 2, "capability_ids.form"),
        (2, "capability_ids[2]", "a", "capability_ids.unique"),
        (2, "process.role", "boss", "role.label"),
        (3, None, [1, 2], "row.shape"),
    ]
    assert all(v.text == RULE_TEXTS[v.rule] for v in validate_table(rows))


CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("b", {"task_id": ""}, "task_id.form"),
    ("b", {"task_id": " \t"}, "task_id.form"),
    ("b", {"task_id": "x\x00"}, "task_id.form"),
    ("b", {"task_id": "x\x85"}, "task_id.form"),
    ("b", {"task_id": "é" * 129}, "task_id.form"),
    ("b", {"task_id": "\ud800"}, "task_id.form"),
    ("b", {"task_id": 5}, "task_id.form"),
    ("b", {"task_id": "a"}, "task_id.unique"),
    ("b", {"parent_task_id": 7}, "parent.form"),
    ("b", {"parent_task_id": ""}, "parent.form"),
    ("b", {"parent_task_id": None, "process": None}, "parent.one_root"),
    ("b", {"lifecycle": "Running"}, "lifecycle.label"),
    ("b", {"lifecycle": ["running"]}, "lifecycle.label"),
    ("b", {"lifecycle": "done", "termination": "won"}, "termination.label"),
    ("b", {"lifecycle": "done"}, "termination.exactly_done"),
    ("b", {"wait": "approval"}, "wait.exactly_suspended"),
    ("b", {"lifecycle": "suspended"}, "wait.exactly_suspended"),
    ("b", {"lifecycle": "suspended", "wait": "lunch"}, "wait.label"),
    ("b", {"waiting_on": None}, "waiting_on.form"),
    ("b", {"waiting_on": "a"}, "waiting_on.form"),
    ("a", {"waiting_on": ["deep"]}, "waiting_on.exactly_join"),
    ("a", {"lifecycle": "suspended", "wait": "timer", "waiting_on": ["deep"]}, "waiting_on.exactly_join"),
    ("a", {"lifecycle": "suspended", "wait": "sub_agent_join", "waiting_on": ["b"]}, "waiting_on.child"),
    ("a", {"lifecycle": "suspended", "wait": "sub_agent_join", "waiting_on": ["x"]}, "waiting_on.known"),
    ("a", {"lifecycle": "suspended", "wait": "sub_agent_join", "waiting_on": [1]}, "waiting_on.form"),
    ("b", {"capability_ids": None}, "capability_ids.form"),
    ("b", {"capability_ids": ["\udfff"]}, "capability_ids.form"),
    ("b", {"process": None}, "process.exactly_child"),
    ("b", {"process": []}, "process.shape"),
    ("b", {"process": {"role": "plan"}}, "process.shape"),
    ("b", {"tokens_used": 0}, "tokens_used.form"),
    ("b", {"tokens_used": "00"}, "tokens_used.form"),
    ("b", {"tokens_used": "+1"}, "tokens_used.form"),
    ("b", {"tokens_used": ""}, "tokens_used.form"),
    ("b", {"tokens_used": "٣"}, "tokens_used.form"),
    ("b", {"tokens_used": "1_0"}, "tokens_used.form"),
    ("b", {"tokens_used": " 1"}, "tokens_used.form"),
    ("b", {"tokens_used": "18446744073709551616"}, "tokens_used.form"),
    ("b", {"tokens_used": "1" * 5000}, "tokens_used.form"),
    ("b", {"turns_used": 1.0}, "turns_used.form"),
    ("b", {"turns_used": "1"}, "turns_used.form"),
    ("b", {"turns_used": -1}, "turns_used.form"),
    ("b", {"turns_used": False}, "turns_used.form"),
    ("b", {"turns_used": 10**5000}, "turns_used.form"),
    ("a", {"lifecycle": "done", "termination": "error"}, "parent.live"),
    ("a", {"parent_task_id": "deep"}, "parent.no_cycle"),
]


@pytest.mark.parametrize(("task_id", "change", "rule"), CHANGES, ids=range(len(CHANGES)))
def test_one_change_breaks_its_rule(task_id: str, change: dict[str, Any], rule: str) -> None:
    """Each rule of the contract is found when a valid table breaks it, and its value is shown as plain JSON."""
    rows = copy.deepcopy(family().rows)
    rows[task_id].update(change)
    violations = validate_table(list(rows.values()))
    assert rule in rules(violations)
    json.dumps([violation.to_json() for violation in violations], allow_nan=False).encode()
    assert all(str(violation) for violation in violations)


def joined(**change: Any) -> list[dict[str, Any]]:
    """A valid table with a finished child, its join result changed; a field that is to be ... is left out."""
    run = family()
    run.tasks.finish("b", attempt=1, result={"final_message": "x"})
    rows = run.rows
    join = rows["b"]["process"]["join_result"]
    for field, value in change.items():
        (join if field == "agent_id" else join["result"])[field] = value
        if value is ...:
            del join["result"][field]
    return list(rows.values())


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"agent_id": "a"}, "join_result.agent_id"),
        ({"agent_id": None}, "join_result.agent_id"),
        ({"termination": "error"}, "join_result.termination"),
        ({"termination": "won"}, "join_result.shape"),
        ({"turns_used": True}, "join_result.shape"),
        ({"total_tokens_used": "5"}, "join_result.shape"),
        ({"final_message": ...}, "join_result.shape"),
        ({"extra": float("nan")}, "join_result.json"),
        ({"extra": float("inf")}, "join_result.json"),
        ({"extra": list(range(1025))}, "join_result.json"),
        ({"extra": json.loads("[" * 63 + "]" * 63)}, "join_result.json"),
        ({"extra": {1: 2}}, "join_result.json"),
    ],
)
def test_a_join_result_agrees_with_its_row(change: dict[str, Any], rule: str) -> None:
    """A join result names its task and termination, has its counters, and is JSON within the limits."""
    assert validate_table(joined()) == []
    assert rules(validate_table(joined(**change))) == {rule}


def test_further_keys_and_a_message_that_is_null_are_allowed() -> None:
    """The result inside a join result is open: other keys are kept; the message may be null."""
    assert validate_table(joined(final_message=None, artifacts=["x"])) == []


def test_a_cycle_names_its_members_only() -> None:
    """Rows on a cycle are named; rows that merely hang under it are not."""
    rows = copy.deepcopy(family().rows)
    rows["a"]["parent_task_id"] = "deep"
    rows["b"]["parent_task_id"] = "a"
    cyclic = [v.task_id for v in validate_table(list(rows.values())) if v.rule == "parent.no_cycle"]
    assert cyclic == ["a", "deep"]


def test_the_order_of_rows_is_free() -> None:
    """K25: a table whose children come before their parents is valid, and inverts in its own order."""
    rows = list(reversed(list(family().rows.values())))
    assert validate_table(rows) == []
    table = TaskTable.from_rows(rows)
    assert table.rows().to_json() == rows
    assert table.root == "root"


@pytest.mark.parametrize("rows", [None, 5, "rows", {"task_id": "x"}, {1}, 10**5000], ids=range(6))
def test_what_is_not_a_list_is_one_violation(rows: Any) -> None:
    """Anything but a list of rows is reported, not raised; an empty list is a run without tasks."""
    assert [(v.row, v.rule) for v in validate_table(rows)] == [(None, "table.shape")]
    assert validate_table([]) == validate_table(()) == []


def test_rows_as_objects_are_validated_too() -> None:
    """TaskControlState rows with impossible fields are reported in the same way, whatever those fields hold."""
    good = family().table.rows()
    assert validate_table(list(good)) == []
    bad = TaskControlState("x", "root", "flying", None, None, (), ("a", "a"), None, -1, 2**40)
    assert rules(validate_table([*good, bad])) == {
        "lifecycle.label", "capability_ids.unique", "process.exactly_child", "tokens_used.form", "turns_used.form"
    }  # fmt: skip
    odd = TaskControlState(7, None, [], {}, 1, None, None, "process", "5", None)  # type: ignore[arg-type]
    assert "process.shape" in rules(validate_table([odd]))
    child = TaskControlState(
        "y", "root", "done", "error", None, (), (), ChildProcessState("plan", "shared", "none", {"no": 1}), 0, 0
    )
    assert rules(validate_table([*good, child])) == {"join_result.shape"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*RECORDED_FIELDS, "role", "join_result", "agent_id", "result", "nope"])
ROWS = st.lists(st.dictionaries(FIELDS, JSON, max_size=11) | JSON, max_size=5)


@settings(max_examples=150, deadline=None)
@given(JSON | ROWS)
def test_garbage_is_reported_and_never_raises(garbage: Any) -> None:
    """Whatever JSON comes, validation answers with a list of violations that is itself JSON."""
    violations = validate_table(garbage)
    json.dumps([violation.to_json() for violation in violations], allow_nan=False).encode()
    assert violations or garbage == []


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_random_edit_of_a_valid_table_is_judged(data: st.DataObject) -> None:
    """An edited table is either refused with its violations, or inverts to exactly the edited rows."""
    run = family()
    run.tasks.suspend("root", wait="sub_agent_join", waiting_on=["b", "a"])
    run.tasks.finish("deep", attempt=1, result={"final_message": "x"})
    rows = list(run.rows.values())
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.sampled_from(rows))
        field = data.draw(st.sampled_from(RECORDED_FIELDS))
        row[field] = copy.deepcopy(data.draw(JSON | st.sampled_from([other[field] for other in rows])))
    violations = validate_table(rows)
    if violations:
        with pytest.raises(ImportRefused):
            TaskTable.from_rows(rows)
    else:
        assert TaskTable.from_rows(rows).rows().to_json() == rows


@pytest.mark.parametrize("value", [[], ["a", ["b"]], ("a",), {"k": [{"l": 1.5}]}, {"k": None}, [True, 10**10]])
def test_a_value_that_is_small_json_is_named_as_it_is(value: Any) -> None:
    """A list or an object that breaks a rule is the violation's value, as a copy; only what is large is shortened."""
    rows = list(copy.deepcopy(family().rows).values())
    rows[1]["lifecycle"] = value
    violation = next(violation for violation in validate_table(rows) if violation.rule == "lifecycle.label")
    assert violation.value == (list(value) if type(value) is tuple else value)
    assert violation.value is not value
    rows[1]["lifecycle"] = [value] * 100
    shortened = next(violation.value for violation in validate_table(rows) if violation.rule == "lifecycle.label")
    assert type(shortened) is str and len(shortened) < 1000


class Hostile:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


HOSTILE = [Hostile(), [Hostile()], {"k": Hostile()}, b"x", {1, 2}, 1j, 10**5000, {10**5000: 1}, "\ud800"]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("field", [*RECORDED_FIELDS, "nope"])
def test_values_that_are_not_json_are_reported(field: str, value: Any) -> None:
    """Objects that no JSON could hold, even ones that cannot be printed, are reported as any other bad value."""
    rows = copy.deepcopy(family().rows)
    rows["b"][field] = value
    violations = validate_table(list(rows.values()))
    assert violations
    json.dumps([violation.to_json() for violation in violations], allow_nan=False).encode()


def test_a_cyclic_value_is_reported() -> None:
    """A value that contains itself ends validation like any other fault."""
    rows = copy.deepcopy(family().rows)
    loop: list[Any] = []
    loop.append(loop)
    rows["b"].update(lifecycle="done", termination="error", capability_ids=loop)
    rows["b"]["process"]["join_result"] = loop
    assert {"capability_ids.form", "join_result.json", "join_result.shape"} <= rules(
        validate_table(list(rows.values()))
    )
