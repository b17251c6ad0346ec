"""Node and graph records as JSON: what comes in goes out, or is refused by node, field and value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import ImportRefused, InvalidValue, NotFound, Refused
from projections.graph import Recovery, TaskGraph, TaskNode, TaskResult, TimeoutPolicy, VerifyPredicate
from tests.projections.graph.graph_bench import Bench, check_fold, check_rest, fail_node, plan, run_node, started
from tests.projections.graph.graph_strategies import SEED_KEYS, node_records

FIRST_ELEVEN = list(SEED_KEYS)[:11]
OLDEST_ELEVEN = [key for key in FIRST_ELEVEN if key != "predicate_rerun_count"] + ["max_retries"]
"""The 11 keys that the first version of the runtime wrote."""


def test_a_new_node_is_what_the_seed_says() -> None:
    """TaskNode.new gives a pending, parallel node without dependencies, every option None, as the seed's example."""
    node = TaskNode.new(0, "fetch data", "Download the dataset from source.")
    assert (node.status, node.depends_on, node.execution_mode) == ("pending", (), "parallel")
    assert node.network_scope is None and node.asset_sensitivity is None
    record = node.to_json()
    assert list(record) == list(SEED_KEYS)
    plain = {
        "id",
        "title",
        "description",
        "status",
        "depends_on",
        "execution_mode",
        "retry_count",
        "predicate_rerun_count",
    }
    assert all(record[key] is None for key in record if key not in plain)


@given(node_records())
def test_a_full_record_goes_out_as_it_came_in(record: dict[str, Any]) -> None:
    """A record with all keys of the seed, any of the newer ones and unknown ones survives exactly, at every level."""
    node = TaskNode.from_json(record)
    assert node.to_json() == record
    assert TaskNode.from_json(json.loads(json.dumps(node.to_json()))) == node


@given(node_records(), st.sampled_from([FIRST_ELEVEN, OLDEST_ELEVEN]))
def test_a_record_of_eleven_keys_loads_with_defaults(record: dict[str, Any], keys: list[str]) -> None:
    """A record of the first version still loads; what it lacks reads as None or the default."""
    node = TaskNode.from_json({key: record[key] for key in keys})
    assert (node.execution_mode, node.attempts, node.recovery, node.network_scope) == ("parallel", (), None, None)
    assert {key: value for key, value in node.to_json().items() if key in keys} == {key: record[key] for key in keys}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "done"),
        ("status", "Ready"),
        ("failure_strategy", "ignore"),
        ("execution_mode", None),
        ("network_scope", "open"),
        ("asset_sensitivity", "secret"),
        ("verify_predicate", {"kind": "regex", "value": "x"}),
        ("attempts", [{"number": 1, "outcome": "lost"}]),
    ],
)
def test_an_unknown_label_names_node_field_and_value(field: str, value: Any) -> None:
    """An enum value that is not known is an error that names the node, the field and the value."""
    record = TaskGraph(id="g", goal="", nodes=tuple(plan([], []))).to_json()
    record["nodes"][1][field] = value
    with pytest.raises(ImportRefused) as refused:
        TaskGraph.from_json(record)
    (found,) = refused.value.violations
    assert found["node"] == 1 and found["field"].startswith(field) and found["value"] == value
    assert f"node 1, {field}" in refused.value.message
    with pytest.raises(InvalidValue, match=field):
        TaskNode.from_json(record["nodes"][1])


@pytest.mark.parametrize("value", [None, 7, "x", [1]])
def test_what_is_no_node_at_all_is_one_violation(value: Any) -> None:
    """Something else in a node's place is named once, with the value: not once a key that it has not got."""
    record = TaskGraph(id="g", goal="", nodes=tuple(plan([], [0]))).to_json()
    record["nodes"][1] = value
    with pytest.raises(ImportRefused) as refused:
        TaskGraph.from_json(record)
    (found,) = refused.value.violations
    assert (found["node"], found["field"], found["value"]) == (1, "", value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "0"), ("id", True), ("id", 1.0), ("id", -1), ("title", None), ("depends_on", [1.0]),
        ("depends_on", None),
        ("retry_count", "3"), ("max_retries", 2**32), ("token_budget_cents", "5"), ("x_future", {"a": {1, 2}}),
        ("result", {"output": "x", "duration_ms": 1.5}), ("result", "x"), ("title", "\ud800"),
    ],
)  # fmt: skip
def test_nothing_is_coerced(field: str, value: Any) -> None:
    """G10: a value of another type is refused with the path to it, never converted."""
    record = TaskNode.new(0, "t", "d").to_json() | {field: value}
    with pytest.raises(InvalidValue) as refused:
        TaskNode.from_json(record)
    assert refused.value.path.startswith(field)


NODE: dict[str, Any] = dict.fromkeys(SEED_KEYS) | {
    "id": 0, "title": "t", "description": "d", "status": "ready", "depends_on": [], "retry_count": 0,
    "predicate_rerun_count": 0, "execution_mode": "parallel",
}  # fmt: skip
WRITTEN = {key: NODE[key] for key in list(SEED_KEYS)[:15]}
"""A node as the runtime writes it: the four youngest keys of the seed only when they hold something."""

HEAD: dict[str, Any] = {
    "id": "g", "goal": "go", "status": "running", "default_failure_strategy": "abort", "default_max_retries": 3,
    "created_at": 5, "finished_at": None,
}  # fmt: skip
OVER = {"status": "completed", "finished_at": 9}
DONE = {**WRITTEN, "status": "completed", "result": {"output": "o"}}
GATE = {"kind": "natural", "value": "v"}
LATE = {**WRITTEN, "status": "failed", "failure_strategy": "skip", "cause": "error"}
AS_WRITTEN: dict[str, dict[str, Any]] = {
    "all keys": {**HEAD, "nodes": [NODE]},
    "as written": {**HEAD, "nodes": [WRITTEN, {**WRITTEN, "id": 1, "token_budget_cents": 2.5, "depends_on": [0],
                                               "status": "pending"}]},
    "nulls of the newer keys": {**HEAD, "nodes": [{**NODE, "timeout": None, "recovery": None, "routed_from": None,
                                                   "attempts": [], "cause": None, "tainted_by": []}]},
    "eleven keys": {**HEAD, "status": "created", "nodes": [{key: WRITTEN[key] for key in FIRST_ELEVEN}
                                                           | {"status": "pending"}]},
    "least": {"id": "g", "goal": "", "created_at": 0, "nodes": [{"id": 0, "title": "", "description": ""}]},
    "running without attempts": {**HEAD, "nodes": [{**WRITTEN, "status": "running", "assigned_agent": "a"}]},
    "one way out": {**HEAD, "nodes": [{**WRITTEN, "recovery": {"route_to": 1}, "timeout": {"run_timeout_secs": 5}},
                                      {**WRITTEN, "id": 1, "status": "dormant"}]},
    "short values": {**HEAD, "nodes": [WRITTEN, {**DONE, "id": 1, "verify_predicate": GATE,
                                                 "predicate_outcome": {"passed": True, "confidence": 0.5}}]},
    "short attempts": {**HEAD, "nodes": [{**LATE, "attempts": [{"number": 1, "outcome": "error", "error": "e"}]},
                                         {**WRITTEN, "id": 1}]},
    "over without outcome": {**HEAD, **OVER, "nodes": [DONE]},
    "over with failures": {**HEAD, **OVER, "nodes": [LATE], "outcome": "completed_with_failures"},
    "no outcome yet": {**HEAD, "outcome": None, "nodes": [WRITTEN]},
    "unknown keys": {**HEAD, "owner": {"z": 1, "a": [None, 1.5]},
                     "nodes": [{**WRITTEN, "x": 1, "recovery": {"state_injection": "s", "y": None}}]},
}  # fmt: skip


@pytest.mark.parametrize("record", AS_WRITTEN.values(), ids=AS_WRITTEN)
def test_a_record_goes_out_with_the_keys_that_it_came_with(record: dict[str, Any]) -> None:
    """Absent stays absent and null stays null, at every level: as a value, in a run, after a restore, and in a run that
    takes the events of the first one as facts. A repetition is known as one."""
    given = json.loads(json.dumps(record))
    assert TaskGraph.from_json(given).to_json() == record
    bench = Bench()
    bench.graphs.import_graph(given)
    assert bench.graphs.get("g").to_json() == record
    assert [bench.node(number).to_json() for number in range(len(record["nodes"]))] == record["nodes"]
    assert not bench.graphs.import_graph(record).changed
    check_fold(bench)
    other = Bench()
    for event in bench.events():
        other.ingest(event.type, **event.data)
    assert other.state.bytes() == bench.state.bytes()


@given(node_records(), st.data())
def test_any_optional_keys_may_be_lacking(record: dict[str, Any], data: st.DataObject) -> None:
    """Whatever optional keys a node's record lacks, inside its parts too, it goes out without those, and with every
    other."""
    for name in sorted(record.keys() - {"id", "title", "description"}):
        part = record[name]
        inside = [part] if isinstance(part, dict) else part if name == "attempts" else []
        for each in inside:
            for key in sorted(each.keys() - {"number", "output", "kind", "value", "passed", "confidence"}):
                if data.draw(st.booleans(), label=f"{name}.{key}"):
                    del each[key]
        if data.draw(st.booleans(), label=name):
            del record[name]
    assert TaskNode.from_json(json.loads(json.dumps(record))).to_json() == record


def test_what_a_record_lacks_comes_when_it_says_something() -> None:
    """Keys that an imported record lacks are written as soon as they hold more than their default, and so is the
    outcome of a graph that goes on, or turns out otherwise, here."""
    bench = Bench()
    bench.graphs.import_graph(AS_WRITTEN["running without attempts"])
    assert bench.graphs.running("g")[0].attempt.agent == "a"
    bench.graphs.complete("g", 0, "x", attempt=1)
    record = bench.graphs.get("g").to_json()
    assert record["outcome"] == "completed" and record["nodes"][0]["attempts"][0]["outcome"] == "completed"
    assert "network_scope" not in record["nodes"][0]
    bench = Bench()
    bench.graphs.import_graph(AS_WRITTEN["over without outcome"])
    bench.graphs.correct("g", 0, "wrong")
    assert bench.graphs.get("g").to_json()["outcome"] == "completed_with_failures"
    bench = Bench()
    bench.graphs.import_graph(AS_WRITTEN["over without outcome"] | {"nodes": [LATE]})
    assert "outcome" not in bench.graphs.get("g").to_json()
    bench.graphs.retry_graph("g")
    run_node(bench, 0)
    assert bench.graphs.get("g").to_json()["outcome"] == "completed"
    check_fold(bench)


@pytest.mark.parametrize(
    ("nodes", "keys", "message"),
    [
        ([0], ["nowhere"], "no optional key"), ([0], ["result.output"], "no optional key"),
        ([0], ["attempts.x.agent"], "no optional key"), (None, ["goal"], "no optional key"),
        ([7], ["result"], "no node 7"), ([0], ["result"], "came before"), ([0, 0], ["result"], "duplicate"),
    ],
)  # fmt: skip
def test_what_a_record_lacks_is_told_once_and_of_keys_that_there_are(
    nodes: list[int] | None, keys: list[str], message: str
) -> None:
    """A fact about keys that no record may lack, about a node twice or about none, is refused by name."""
    source, bench = Bench(), Bench()
    source.graphs.import_graph(AS_WRITTEN["as written"])
    *before, last = source.events()
    for event in before:
        bench.ingest(event.type, **event.data)
    with pytest.raises((InvalidValue, NotFound), match=message):
        bench.ingest("graph.keys_left_out", graph="g", nodes=nodes, keys=keys)
    bench.ingest(last.type, **last.data)
    with pytest.raises(Refused, match="does not expect"):
        bench.ingest("graph.keys_left_out", graph="g", nodes=[0], keys=["result"])


def lived() -> Bench:
    """Return a graph with a rich life behind it, still running."""
    nodes = [
        TaskNode.new(0, "a", "b", agent_hint="h", token_budget_cents=2.5, extra={"x_new": {"k": [1, None]}}),
        TaskNode.new(
            1, "a", "b", depends_on=[0], verify_predicate=VerifyPredicate.expression("ok"), network_scope="deny"
        ),
        TaskNode.new(2, "a", "b", recovery=Recovery(route_to=3), timeout=TimeoutPolicy(run_timeout_secs=5)),
        TaskNode.new(3, "a", "b", asset_sensitivity="internal"),
        TaskNode.new(4, "a", "b", failure_strategy="skip", execution_mode="sequential"),
        TaskNode.new(5, "a", "b", depends_on=[1]),
    ]
    bench = started(nodes=nodes, extra={"x_owner": "someone"})
    result = TaskResult(output="x", artifacts=("/a", "/b"), duration_ms=9, agent_id="i", extra={"x_cost": 0.25})
    bench.graphs.dispatch("g", 0, "h0", agent="a")
    bench.graphs.complete("g", 0, result, handle="h0")
    run_node(bench, 1)
    fail_node(bench, 2, "idle_timeout")
    fail_node(bench, 4)
    bench.graphs.dispatch("g", 3, task="t3")
    return bench


def test_a_graph_goes_out_and_in_and_out_equal() -> None:
    """A record exported goes out equal after an import, live attempts and unknown keys included, and its life goes on
    alike in both runs."""
    bench = lived()
    record = bench.graphs.get("g").to_json()
    assert record["nodes"][0]["result"]["x_cost"] == 0.25 and record["x_owner"] == "someone"
    assert TaskGraph.from_json(record) == bench.graphs.get("g")
    other = Bench()
    assert other.graphs.import_graph(json.loads(json.dumps(record))).changed
    assert other.graphs.get("g").to_json() == record
    check_fold(other)
    check_rest(other.graphs.get("g"))
    assert not other.graphs.import_graph(record).changed
    verdict = {"passed": True, "confidence": 1, "reason": "x"}
    for run in (bench, other):
        run.now = 5_000
        run.graphs.complete("g", 3, "y", task="t3")
        run.graphs.record_predicate("g", 1, verdict)
        run_node(run, 5)
    assert bench.graphs.get("g") == other.graphs.get("g")
    assert (bench.status(), bench.graphs.outcome("g")) == ("completed", "completed_with_failures")
    assert TaskGraph.from_json(bench.graphs.get("g").to_json()).outcome == "completed_with_failures"


def test_a_running_node_without_attempts_can_be_ended_by_number() -> None:
    """A record from a runtime that keeps no attempts gives its running nodes one, with agent and no handle."""
    record = TaskGraph(id="g", goal="", nodes=tuple(plan([])), status="running").to_json()
    record["nodes"][0] |= {"status": "running", "assigned_agent": "a"}
    bench = Bench()
    bench.graphs.import_graph(record)
    assert bench.graphs.running("g")[0].attempt.agent == "a"
    bench.graphs.complete("g", 0, attempt=1)
    assert bench.status() == "completed"


def test_an_imported_graph_that_is_not_at_rest_is_settled_in_the_same_commit() -> None:
    """A runtime that computes readiness at its next tick leaves it to be computed: the import does it, as events."""
    nodes = plan([], [0], [1])
    record = TaskGraph(id="g", goal="", nodes=tuple(nodes), status="running", created_at=7).to_json()
    record["nodes"][0] |= {"status": "completed", "result": {"output": "x"}}
    bench = Bench()
    events = bench.graphs.import_graph(record).events
    assert (events[-1].type, events[-1].data["node"]) == ("node.readied", 1)
    assert bench.graphs.get("g").created_at == 7


_RUNS = {"status": "running"}
_OVER = {"status": "completed", "finished_at": 9}
_HOLE = [{"number": 2, "outcome": "error"}]
_NO = {"passed": False, "confidence": 1}
BROKEN: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("Z7", {"status": "failed", "finished_at": 9}, {"status": "running"}, "status"),
    ("stale end", {"status": "paused", "finished_at": 9}, {}, "finished_at"),
    ("no end", {"status": "canceled"}, {"status": "canceled"}, "finished_at"),
    ("not started", {}, {"status": "ready"}, "status"),
    ("outcome hides a failure", {**_OVER, "outcome": "completed"}, {"status": "failed"}, "outcome"),
    ("awaits a verdict", _OVER, {"status": "completed", "verify_predicate": {"kind": "natural", "value": ""}},
     "predicate_outcome"),
    ("live attempt of a done node", _RUNS, {"status": "failed", "attempts": [{"number": 1}]}, "attempts[0].outcome"),
    ("attempts with a hole", _RUNS, {"status": "failed", "attempts": _HOLE}, "attempts[0].number"),
    ("result before the run", _RUNS, {"status": "ready", "result": {"output": ""}}, "result"),
    ("dormant without source", _RUNS, {"status": "dormant"}, "status"),
    ("routed from nowhere", _RUNS, {"status": "ready", "routed_from": 1}, "routed_from"),
    ("tainted by nobody", _RUNS, {"status": "ready", "tainted_by": [9]}, "tainted_by"),
    ("failed verdict kept", _RUNS, {"status": "completed", "predicate_outcome": _NO}, "predicate_outcome"),
]  # fmt: skip


@pytest.mark.parametrize(("graph", "node", "field"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_record_that_contradicts_itself_is_refused(graph: dict[str, Any], node: dict[str, Any], field: str) -> None:
    """Z7: an imported graph whose statuses do not agree is refused with the field, not restored and not repaired."""
    record = TaskGraph(id="g", goal="", nodes=tuple(plan([]))).to_json() | graph
    record["nodes"][0] |= node
    with pytest.raises(ImportRefused) as refused:
        Bench().graphs.import_graph(record)
    assert field in [found["field"] for found in refused.value.violations]


def test_ready_or_sequential_nodes_that_cannot_be_are_refused() -> None:
    """An imported node is ready only behind open gates, and one sequential node runs at most."""
    nodes = plan([], [], [0], execution_mode="sequential")
    record = TaskGraph(id="g", goal="", nodes=tuple(nodes), status="running").to_json()
    record["nodes"][0]["status"] = record["nodes"][1]["status"] = "running"
    record["nodes"][2]["status"] = "ready"
    with pytest.raises(ImportRefused) as refused:
        TaskGraph.from_json(record)
    assert [(found["node"], found["field"]) for found in refused.value.violations] == [(None, "nodes"), (2, "status")]


def test_what_is_handed_out_shares_nothing() -> None:
    """Changing what a caller got, or what it gave, changes no byte of state."""
    given_extra = {"x_list": [1]}
    bench = started(nodes=[TaskNode.new(0, "t", "d", extra=given_extra)])
    before = bench.state.bytes()
    given_extra["x_list"].append(2)
    taken = bench.graphs.node("g", 0)
    taken.extra["x_list"].append(3)
    record = bench.graphs.get("g").to_json()
    record["nodes"][0]["x_list"].append(4)
    assert bench.state.bytes() == before
    with pytest.raises(AttributeError):
        taken.status = "failed"  # type: ignore[misc]
