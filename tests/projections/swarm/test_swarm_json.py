"""JSON in and out: exact, unknown keys kept, every fault named at once."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings

from engine.core.errors import ImportRefused, InvalidValue
from projections.swarm import (
    ActionsConfig,
    Escalation,
    EscalationReason,
    Guidance,
    TaskContext,
    WorkerSummary,
    from_record,
    validate_record,
)
from projections.swarm.record import refuse_invalid
from projections.swarm.rules import RULE_TEXTS
from tests.projections.swarm.swarm_harness import SwarmRun, check_laws
from tests.projections.swarm.swarm_strategies import CONFIG, GUIDANCE, REASON, situations

RECORD = {
    "tick": 7,
    "workers": {
        "2": {
            "id": 2, "consecutive_failures": 0, "last_action": None, "last_success": None, "last_output": None,
            "history_len": 0, "has_escalation": False, "phase": "idle",
        },
        "10": {
            "id": 10, "consecutive_failures": 3, "last_action": "Grep", "last_success": False, "last_output": "none",
            "history_len": 4, "has_escalation": True, "phase": "escalated", "team": ["red", 1],
        },
    },
    "success_rate": 0.25,
    "progress": 0.7,
    "escalations": [[10, {"reason": {"consecutive_failures": 3}, "raised_at_tick": 6, "context": None, "by": "x"}]],
    "available_actions": {
        "actions": {
            "Grep": {
                "name": "Grep", "description": "search", "category": "node_expand", "groups": ["search"],
                "params": [{"name": "pattern", "required": True}], "example": None, "cost": 3,
            },
        },
        "groups": {"readonly": {"include_groups": ["search"], "exclude_groups": ["mutation"]}},
    },
    "v2_guidances": [],
    "excluded_actions": ["Read"],
    "previous_guidances": {
        "10": {
            "actions": ["Grep"], "content": None, "props": {"raw": "AP8="}, "exploration_target": {"node": 5},
            "scope": "with_team_summary",
        },
    },
    "done_workers": [],
    "metadata": {"llm_summary": "exploring", "none": None, "nested": {"b": [1, 1.5, True]}},
    "engine_version": "0.1.6",
}  # fmt: skip


def exact(value):
    """JSON text in which 1, 1.0 and true differ and the order of keys does not count."""
    return json.dumps(value, sort_keys=True)


@given(situations())
@settings(max_examples=60, deadline=None)
def test_a_record_goes_in_and_comes_out_equal(record):
    """from_record then to_record is the identity on every record, unknown and absent keys included."""
    before = deepcopy(record)
    context = TaskContext.from_record(record)
    assert exact(context.to_record()) == exact(record)
    assert record == before
    again = TaskContext.from_json(context.to_json())
    assert again == context
    assert again.to_json() == context.to_json()


@given(situations())
@settings(max_examples=40, deadline=None)
def test_an_imported_swarm_shows_its_record(record):
    """After the import event the run's context is the record's, and comes out equal; also from a checkpoint."""
    run = SwarmRun()
    run.ingest(*from_record(record))
    assert validate_record(record) == []
    assert exact(run.swarm.context().to_record()) == exact(record)
    assert run.swarm.context() == TaskContext.from_record(record)
    assert not run.swarm.import_record(record).changed
    check_laws(run)


@given(GUIDANCE, CONFIG, REASON)
@settings(max_examples=60, deadline=None)
def test_the_small_values_go_in_and_come_out_equal(guidance, config, reason):
    """Guidance, ActionsConfig and EscalationReason keep their records exactly."""
    assert exact(Guidance.from_record(guidance).to_record()) == exact(guidance)
    assert exact(ActionsConfig.from_record(config).to_record()) == exact(config)
    assert exact(EscalationReason.from_record(reason).to_record()) == exact(reason)


def test_the_written_form_is_exactly_this():
    """The JSON form of one full situation, spelled out: keys, nesting, base64, pairs and numeric order."""
    context = (
        TaskContext.new(7)
        .with_worker(WorkerSummary(10, consecutive_failures=3, last_action="Grep", last_success=False, history_len=4))
        .with_worker(WorkerSummary.new(2))
        .with_escalation(10, Escalation(EscalationReason.consecutive_failures(3), 6))
        .with_previous_guidance(10, Guidance(["Grep"], props={"raw": b"\x00\xff"}, scope="self_detail"))
        .with_success_rate(0.25)
        .with_progress(1)
        .with_v2_guidances([])
        .insert("k", {"a": [1]})
    )
    assert context.to_record() == {
        "tick": 7,
        "workers": {
            "2": {
                "id": 2, "consecutive_failures": 0, "last_action": None, "last_success": None, "last_output": None,
                "history_len": 0, "has_escalation": False, "phase": "idle",
            },
            "10": {
                "id": 10, "consecutive_failures": 3, "last_action": "Grep", "last_success": False, "last_output": None,
                "history_len": 4, "has_escalation": True, "phase": "escalated",
            },
        },
        "success_rate": 0.25,
        "progress": 1.0,
        "escalations": [[10, {"reason": {"consecutive_failures": 3}, "raised_at_tick": 6, "context": None}]],
        "available_actions": None,
        "v2_guidances": [],
        "excluded_actions": [],
        "previous_guidances": {
            "10": {
                "actions": ["Grep"], "content": None, "props": {"raw": "AP8="}, "exploration_target": None,
                "scope": "self_detail",
            },
        },
        "done_workers": [],
        "metadata": {"k": {"a": [1]}},
    }  # fmt: skip
    assert list(context.to_record()["workers"]) == ["2", "10"]


def test_workers_are_in_numeric_order_in_every_serialised_form():
    """Ids 0..20 inserted backwards come out 0..20 in workers, guidances, done workers, JSON text and the run."""
    context = TaskContext.new(0)
    for worker in reversed(range(21)):
        context = context.with_worker(WorkerSummary.new(worker)).with_previous_guidance(worker, Guidance())
        context = context.with_done_worker(worker)
    for record in (context.to_record(), json.loads(context.to_json())):
        assert list(record["workers"]) == list(record["previous_guidances"]) == [str(worker) for worker in range(21)]
        assert record["done_workers"] == list(range(21))
    run = SwarmRun()
    run.swarm.import_record(context)
    assert run.swarm.context().to_json() == context.to_json()


def test_unknown_keys_survive_a_whole_run():
    """Unknown keys of the record, of a worker and of an action are still there after the swarm went on."""
    run = SwarmRun()
    run.swarm.import_record(RECORD)
    run.swarm.complete_action(10, "Read", success=True, output="text")
    run.swarm.advance_tick()
    record = run.swarm.context().to_record()
    assert record["engine_version"] == "0.1.6"
    assert record["workers"]["10"]["team"] == ["red", 1]
    assert record["workers"]["10"]["last_action"] == "Read"
    assert record["available_actions"]["actions"]["Grep"]["cost"] == 3
    assert record["escalations"][0][1]["by"] == "x"


FAULTS = [
    (("tick",), -1, "tick"),
    (("tick",), True, "tick"),
    (("tick",), 7.0, "tick"),
    (("success_rate",), 1.01, "success_rate"),
    (("success_rate",), float("nan"), "success_rate"),
    (("progress",), -0.1, "progress"),
    (("progress",), "0.5", "progress"),
    (("workers", "10", "id"), 11, "workers.10.id"),
    (("workers", "10", "consecutive_failures"), 2**32, "workers.10.consecutive_failures"),
    (("workers", "10", "history_len"), None, "workers.10.history_len"),
    (("workers", "10", "last_success"), "no", "workers.10.last_success"),
    (("workers", "10", "phase"), "sleeping", "workers.10.phase"),
    (("workers", "10", "phase"), "working", "workers.10.phase"),
    (("workers", "10", "has_escalation"), False, "workers.10.has_escalation"),
    (("workers", "2", "phase"), "done", "workers.2.phase"),
    (("workers", "2", "team"), {"pair": (1, 2)}, "workers.2.team.pair"),
    (("workers", "02"), {}, "workers.02"),
    (("workers", str(2**64)), {}, f"workers.{2**64}"),
    (("workers", "10"), [], "workers.10"),
    (("escalations", 0, 1, "reason"), "tired", "escalations[0][1].reason"),
    (("escalations", 0, 1, "reason"), {"consecutive_failures": "3"}, "escalations[0][1].reason.consecutive_failures"),
    (("escalations", 0, 1, "raised_at_tick"), 8, "escalations[0][1].raised_at_tick"),
    (("escalations", 0, 0), 3, "escalations[0][0]"),
    (("escalations", 0), [10], "escalations[0]"),
    (("available_actions", "actions", "Grep", "category"), "other", "available_actions.actions.Grep.category"),
    (("available_actions", "actions", "Grep", "name"), "Sed", "available_actions.actions.Grep.name"),
    (("available_actions", "groups", "readonly", "include_groups"), ["a", 1],
     "available_actions.groups.readonly.include_groups[1]"),
    (("v2_guidances",), [{"scope": "all"}], "v2_guidances[0].scope"),
    (("excluded_actions",), "Read", "excluded_actions"),
    (("previous_guidances", "10", "props", "raw"), "AP8", "previous_guidances.10.props.raw"),
    (("previous_guidances", "10", "props", "raw"), "AP9=", "previous_guidances.10.props.raw"),
    (("previous_guidances", "4"), {}, "previous_guidances.4"),
    (("done_workers",), [2, 2], "done_workers"),
    (("done_workers",), [5], "done_workers[0]"),
    (("metadata", "x"), float("inf"), "metadata.x"),
    (("metadata", "x"), {"a": [{1, 2}]}, "metadata.x.a[0]"),
    (("metadata",), None, "metadata"),
]  # fmt: skip


def edited(record, path, value):
    result = deepcopy(record)
    inner = result
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return result


@pytest.mark.parametrize(("path", "value", "named"), FAULTS)
def test_a_malformed_entry_is_named_by_its_path(path, value, named):
    """Each single fault is refused with the path to it, and nothing is imported."""
    record = edited(RECORD, path, value)
    assert named in [fault["path"] for fault in validate_record(record)]
    run = SwarmRun()
    with pytest.raises(ImportRefused) as caught:
        run.swarm.import_record(record)
    assert named in [fault["path"] for fault in caught.value.violations]
    assert run.groups == [] and not run.swarm.started()
    with pytest.raises(InvalidValue):
        run.ingest("swarm.imported", {"record": record, "failure_threshold": 0})


def test_every_fault_is_named_at_once():
    """A record with many faults gives them all in one refusal; a missing field is one of them."""
    record = edited(edited(edited(RECORD, ("tick",), -1), ("success_rate",), 2), ("workers", "2", "id"), "2")
    del record["done_workers"]
    with pytest.raises(ImportRefused) as caught:
        TaskContext.from_record(record)
    assert {fault["path"] for fault in caught.value.violations} == {
        "tick", "success_rate", "workers.2.id", "done_workers",
    }  # fmt: skip
    rules = {fault["path"]: fault["rule"] for fault in caught.value.violations}
    assert rules["done_workers"] == "swarm.missing" and rules["tick"] == "swarm.field"
    assert all(fault["text"] for fault in caught.value.violations)
    assert caught.value.to_json()["details"]["violations"] == caught.value.violations


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", '{"tick": 1, "tick": 2}', "[" * 100_000, b"\xff", "9" * 5000, "null", "[]", '{"tick": 1}'],
)
def test_text_that_is_no_record_is_a_typed_refusal(text):
    """Broken, endless or foreign text raises ImportRefused and nothing else."""
    with pytest.raises(ImportRefused):
        TaskContext.from_json(text)


def test_null_missing_and_empty_guidances_are_three_things():
    """v2_guidances null, absent and [] each come out as they went in; only [] is an exploration."""
    null, empty = {**RECORD, "v2_guidances": None}, {**RECORD, "v2_guidances": []}
    absent = {key: value for key, value in RECORD.items() if key != "v2_guidances"}
    for record, explored in ((null, False), (absent, False), (empty, True)):
        run = SwarmRun()
        run.swarm.import_record(record)
        context = run.swarm.context()
        assert context.to_record() == record
        assert context.has_exploration() is explored


def test_too_many_workers_are_refused_by_name():
    """More than SWARM_WORKERS_MAX workers in a record are one named fault, found without reading them."""
    record = {**RECORD, "workers": {str(worker): None for worker in range(65_537)}}
    faults = validate_record(record)
    assert [(fault["path"], fault["rule"]) for fault in faults if fault["path"] == "workers"] == [
        ("workers", "swarm.entries_max")
    ]


RULES = {
    "swarm.field": (("tick",), -1),
    "swarm.missing": (("workers", "10"), {}),
    "swarm.key": (("metadata", "\ud800"), 1),
    "swarm.worker_key": (("workers", "02"), {}),
    "swarm.entries_max": (("done_workers",), list(range(65_537))),
    "swarm.own_name": (("workers", "10", "id"), 11),
    "swarm.one_escalation": (("escalations",), RECORD["escalations"] * 2),
    "swarm.done_once": (("done_workers",), [2, 2]),
    "swarm.worker_known": (("done_workers",), [5]),
    "swarm.raised_in_time": (("escalations", 0, 1, "raised_at_tick"), 8),
    "swarm.has_escalation": (("workers", "10", "has_escalation"), False),
    "swarm.phase": (("workers", "10", "phase"), "working"),
}


@pytest.mark.parametrize("rule", RULE_TEXTS)
def test_each_rule_is_named_where_it_is_broken(rule):
    """Every rule of the catalogue has a record that breaks it, and the fault says so by name and in words."""
    with pytest.raises(ImportRefused) as caught:
        TaskContext.from_json("NaN") if rule == "swarm.json" else refuse_invalid(edited(RECORD, *RULES[rule]))
    assert rule in [fault["rule"] for fault in caught.value.violations]
    assert all(set(fault) == {"path", "value", "rule", "text"} for fault in caught.value.violations)
    assert f"[{caught.value.violations[0]['rule']}]" in caught.value.message
