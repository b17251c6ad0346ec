"""Questions and commands at the boundary: what they say, what they take, and what repeating them does."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import IllegalTransition, ImportRefused, InvalidValue, NotFound, Refused
from projections.graph import Blockage, PredicateOutcome, Recovery, TaskGraph, TaskNode, TaskResult, VerifyPredicate
from tests.projections.graph.graph_bench import Bench, fail_node, plan, run_node, started


def test_blocked_says_why_each_node_does_not_run() -> None:
    """Every reason is named: not started, a dependency by its status, a fallback's source, a person's hold."""
    nodes = [*plan([], [0], [1]), TaskNode.new(3, "n", "", recovery=Recovery(route_to=4)), TaskNode.new(4, "n", "")]
    bench = Bench()
    bench.graphs.create("g", "goal", nodes)
    assert bench.graphs.why("g", 0) == (Blockage(0, None, "the graph is not started"),)
    bench.graphs.start("g")
    assert bench.graphs.blocked("g") == (
        Blockage(1, 0, "node 0 is ready"),
        Blockage(2, 1, "node 1 is pending"),
        Blockage(4, 3, "fallback: node 3 has not failed for good"),
    )
    bench.graphs.dispatch("g", 0)
    bench.graphs.pause("g")
    assert bench.graphs.why("g", 1) == (
        Blockage(1, None, "the graph is paused by a person"),
        Blockage(1, 0, "node 0 is running"),
    )
    assert bench.graphs.why("g", 0) == ()


def test_a_question_to_a_person_is_a_reason() -> None:
    """What waits for an answer says so."""
    bench = started([], [0], [], default_failure_strategy="ask")
    fail_node(bench, 0)
    assert bench.graphs.why("g", 1) == (Blockage(1, 0, "node 0 failed and waits for a person's answer"),)


def test_counts_running_and_ids() -> None:
    """Counters, live attempts and ids come from the state as it is."""
    bench = started([], [0], [])
    bench.graphs.create("a", "another", plan([]))
    bench.graphs.dispatch("g", 2, "h", agent="someone")
    assert bench.graphs.ids() == ("g", "a")
    assert {k: v for k, v in bench.graphs.counts("g").items() if v} == {"ready": 1, "pending": 1, "running": 1}
    (entry,) = bench.graphs.running("g")
    assert (entry.node, entry.attempt.number, entry.attempt.handle, entry.attempt.agent) == (2, 1, "h", "someone")
    assert bench.node(2).live_attempt == entry.attempt
    assert bench.graphs.outcome("g") is None


def test_ready_nodes_come_by_id_and_as_many_as_asked_for() -> None:
    """The order is by id, whatever the order in which they became ready."""
    bench = started([], [0], [], [0], [])
    run_node(bench, 4)
    run_node(bench, 0)
    assert bench.graphs.ready("g") == (1, 2, 3)
    assert bench.graphs.ready("g", 2) == (1, 2)


def test_an_attempt_must_be_named() -> None:
    """A report that names no attempt is refused: it could be anybody's."""
    bench = started([])
    bench.graphs.dispatch("g", 0)
    for report in (bench.graphs.complete, bench.graphs.fail, bench.graphs.defer):
        with pytest.raises(InvalidValue, match="name the attempt"):
            report("g", 0)
    with pytest.raises(Refused, match="never had an attempt 3"):
        bench.graphs.complete("g", 0, attempt=3)


def test_repeating_a_command_changes_nothing() -> None:
    """A command that asks for what already is gives no events: create, start, pause, skip, cancel, defer."""
    bench = started([], [], [])
    assert not bench.graphs.create("g", "reach it", plan([], [], [])).changed
    for other in ({"goal": "else"}, {"nodes": plan([], [])}, {"default_max_retries": 1}):
        arguments: dict[str, Any] = {"goal": "reach it", "nodes": plan([], [], []), **other}
        with pytest.raises(Refused, match="exists already"):
            bench.graphs.create("g", **arguments)
    assert not bench.graphs.start("g").changed and not bench.graphs.resume("g").changed
    bench.graphs.dispatch("g", 0, "h")
    bench.graphs.defer("g", 0, "full", handle="h")
    assert not bench.graphs.defer("g", 0, "full", handle="h").changed
    bench.graphs.skip("g", 1)
    bench.graphs.cancel("g", 2)
    assert not bench.graphs.skip("g", 1).changed and not bench.graphs.cancel("g", 2).changed
    bench.graphs.pause("g")
    assert not bench.graphs.pause("g").changed
    bench.graphs.cancel_graph("g")
    assert not bench.graphs.cancel_graph("g").changed


def test_a_deferral_consumes_no_retry_and_keeps_its_reason() -> None:
    """running -> ready for want of a place costs nothing and is on the record."""
    bench = started([], default_failure_strategy="retry", default_max_retries=0)
    bench.graphs.dispatch("g", 0, agent="a")
    bench.graphs.defer("g", 0, "no slot", attempt=1)
    node = bench.node(0)
    assert (node.status, node.retry_count, node.assigned_agent) == ("ready", 0, None)
    assert [(attempt.outcome, attempt.error) for attempt in node.attempts] == [("deferred", "no slot")]


@pytest.mark.parametrize("why", ["error", "run_timeout", "idle_timeout", "spawn", "tools"])
def test_every_cause_of_failure_is_its_own_and_consumes_a_retry(why: Any) -> None:
    """Timeouts and spawn errors consume retries; the cause is on the attempt and, at the end, on the node."""
    bench = started([], default_failure_strategy="retry", default_max_retries=1)
    fail_node(bench, 0, why)
    assert bench.node(0).retry_count == 1 and bench.node(0).cause is None
    fail_node(bench, 0, why)
    assert bench.node(0).cause == why and [a.outcome for a in bench.node(0).attempts] == [why, why]


def test_other_causes_are_not_a_hosts_to_report() -> None:
    """Only the five causes that a host can know are taken."""
    bench = started([])
    bench.graphs.dispatch("g", 0)
    for why in ("predicate", "crash", "corrected", "timeout"):
        with pytest.raises(InvalidValue, match=r"fail\.why"):
            bench.graphs.fail("g", 0, why, attempt=1)  # type: ignore[arg-type]


def test_a_result_is_kept_exactly() -> None:
    """A result given as a value or as JSON is stored as it is; text becomes an output with the attempt's duration."""
    bench = started([], [], [])
    full = TaskResult(output="o", artifacts=("/a",), duration_ms=3, agent_id="i", agent_def="d", extra={"x": 1})
    for number, result in enumerate([full, full.to_json(), "text"]):
        bench.graphs.dispatch("g", number, at_ms=1_000)
        bench.graphs.complete("g", number, result, attempt=1, at_ms=1_250)
    assert bench.node(0).result == bench.node(1).result == full
    assert bench.node(2).result == TaskResult(output="text", duration_ms=250)
    with pytest.raises(InvalidValue, match="artifacts"):
        bench.graphs.complete("g", 0, {"output": "o", "artifacts": "/a"}, attempt=1)


def test_a_clock_that_goes_back_gives_no_negative_duration() -> None:
    """A result's duration is never below zero, whatever the clock did."""
    bench = started([])
    bench.graphs.dispatch("g", 0, at_ms=5_000)
    bench.graphs.complete("g", 0, "x", attempt=1, at_ms=4_000)
    assert bench.node(0).result == TaskResult(output="x", duration_ms=0)


def test_values_at_the_boundary_are_not_coerced() -> None:
    """G10: commands take exactly their types; the path to the bad one is named."""
    bench = started([])
    with pytest.raises(InvalidValue, match=r"dispatch\.node"):
        bench.graphs.dispatch("g", "0")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"dispatch\.node"):
        bench.graphs.dispatch("g", True)
    with pytest.raises(InvalidValue, match=r"dispatch\.handle"):
        bench.graphs.dispatch("g", 0, {"job": "t"})
    with pytest.raises(InvalidValue, match=r"create\.graph"):
        bench.graphs.create(" ", "goal", plan([]))
    with pytest.raises(InvalidValue, match=r"create\.default_failure_strategy"):
        bench.graphs.create("h", "goal", plan([]), "ignore")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"create.nodes\[0\]"):
        bench.graphs.create("h", "goal", [{"id": {1, 2}}])
    with pytest.raises(InvalidValue, match=r"recover\.policy"):
        bench.graphs.recover("g", "restart")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"import_graph\.graph"):
        bench.graphs.import_graph({"goal": "x"})


def test_a_verdict_needs_a_gate_and_a_completion() -> None:
    """A verdict on a node without a predicate, or on one that has not completed, is refused."""
    bench = started(nodes=[*plan([]), TaskNode.new(1, "n", "", verify_predicate=VerifyPredicate.natural("x"))])
    run_node(bench, 0)
    passed = PredicateOutcome(passed=True, confidence=0.5, reason="", extra={"model": "m"})
    with pytest.raises(Refused, match="has no verify_predicate"):
        bench.graphs.record_predicate("g", 0, passed)
    with pytest.raises(IllegalTransition):
        bench.graphs.record_predicate("g", 1, passed)
    run_node(bench, 1)
    bench.graphs.record_predicate("g", 1, passed)
    assert bench.node(1).predicate_outcome == passed


def test_a_hold_lets_running_nodes_finish() -> None:
    """While a person holds a graph its running nodes end and ready what waited, and it completes if nothing is left;
    nothing is dispatched before it is resumed."""
    bench = started([], [0])
    bench.graphs.dispatch("g", 0)
    bench.graphs.pause("g")
    bench.graphs.complete("g", 0, attempt=1)
    assert (bench.status(), bench.node(1).status) == ("paused", "ready")
    with pytest.raises(IllegalTransition, match="resume graph 'g' first"):
        bench.graphs.dispatch("g", 1)
    bench.graphs.resume("g")
    bench.graphs.dispatch("g", 1)
    bench.graphs.pause("g")
    bench.graphs.complete("g", 1, attempt=1)
    assert bench.status() == "completed"


def test_skipping_a_person_s_question_lets_the_graph_go_on() -> None:
    """Skip is an answer: the failed node and what waits for it are skipped and the rest goes on by itself."""
    bench = started([], [0], [], default_failure_strategy="ask")
    fail_node(bench, 0)
    events = bench.graphs.skip("g", 0).events
    assert [event.type for event in events] == ["node.skipped", "node.skipped", "graph.resumed"]
    run_node(bench, 2)
    assert (bench.status(), bench.graphs.outcome("g")) == ("completed", "completed_with_failures")


def test_accepting_a_failure_by_resuming_completes_the_graph() -> None:
    """When everything else is done, resuming a graph that asks about a failed leaf accepts the failure."""
    bench = started([], [], default_failure_strategy="ask")
    fail_node(bench, 0)
    run_node(bench, 1)
    assert bench.status() == "paused"
    events = bench.graphs.resume("g").events
    assert [event.type for event in events] == ["graph.resumed", "graph.completed"]
    assert bench.graphs.outcome("g") == "completed_with_failures"


def test_retry_of_one_node_in_a_graph_that_is_over_points_to_the_graph() -> None:
    """A node of a failed graph is retried by retrying the graph; the refusal says so."""
    bench = started([])
    fail_node(bench, 0)
    with pytest.raises(IllegalTransition, match="retry_graph"):
        bench.graphs.retry("g", 0)
    bench.graphs.retry_graph("g")
    run_node(bench, 0)
    with pytest.raises(Refused, match="nothing in graph 'g' can be retried"):
        bench.graphs.retry_graph("g")


def test_questions_about_what_is_not_there() -> None:
    """A question about a missing graph or node is NotFound and names what there is."""
    bench = started([])
    with pytest.raises(NotFound, match=r"its nodes are 0\.\.0"):
        bench.graphs.node("g", 1)
    for ask in (bench.graphs.counts, bench.graphs.running, bench.graphs.awaiting, bench.graphs.outcome):
        with pytest.raises(NotFound):
            ask("nope")


def test_a_deadlock_behind_a_hold_shows_when_it_is_resumed() -> None:
    """A held graph in which nothing can move stays as it is; the resume tells, in one commit, that it failed."""
    bench = started([], [0])
    bench.graphs.dispatch("g", 0)
    bench.graphs.pause("g")
    bench.graphs.cancel("g", 0)
    assert (bench.status(), bench.node(1).status) == ("paused", "pending")
    events = bench.graphs.resume("g").events
    assert [event.type for event in events] == ["graph.resumed", "graph.failed", "node.canceled"]
    assert bench.node(1).cause == "deadlock"


def test_an_import_that_is_known_already_changes_nothing_and_another_is_refused() -> None:
    """Importing a graph again gives no events while it is the same; a record under another id, or with another
    content, is refused."""
    bench = started([], [0])
    record = bench.graphs.get("g")
    assert not bench.graphs.import_graph(record).changed
    run_node(bench, 0)
    with pytest.raises(Refused, match="exists already"):
        bench.graphs.import_graph(record)
    assert not record.nodes[0].is_terminal and bench.node(0).is_terminal


def test_an_imported_life_keeps_its_questions_and_its_unneeded_fallbacks() -> None:
    """A paused record whose failed nodes ask goes on asking; a skipped fallback that was not needed is no failure."""
    bench = started(nodes=[*plan([], failure_strategy="ask"), *plan([], execution_mode="sequential", first=1)])
    bench.graphs.dispatch("g", 1)
    fail_node(bench, 0)
    other = Bench()
    other.graphs.import_graph(bench.graphs.get("g"))
    assert other.graphs.why("g", 0) == () and other.part.index("g").asking == {0}
    assert other.part.index("g").sequential == {1}
    other.graphs.retry("g", 0)
    assert other.status() == "running"
    spare = started(nodes=[TaskNode.new(0, "n", "", recovery=Recovery(route_to=1)), *plan([], first=1)])
    run_node(spare, 0)
    copy = Bench()
    copy.graphs.import_graph(spare.graphs.get("g"))
    assert copy.graphs.outcome("g") == "completed"
    copy.graphs.correct("g", 0, "wrong")
    copy.graphs.retry_graph("g")
    assert copy.node(1).status == "dormant"


def test_what_is_not_a_record_is_refused_by_its_path() -> None:
    """A graph record whose nodes are no list, or an attempt with a strange handle, is refused where it stands."""
    record = started([]).graphs.get("g").to_json()
    with pytest.raises(ImportRefused) as refused:
        TaskGraph.from_json(record | {"nodes": {"0": {}}})
    assert ("nodes", {"0": {}}) in [(found["field"], found["value"]) for found in refused.value.violations]
    for handle in ({"task": " "}, {"task": "t", "more": 1}, 7):
        record["nodes"][0] |= {"status": "running", "attempts": [{"number": 1, "handle": handle}]}
        with pytest.raises(ImportRefused) as refused:
            TaskGraph.from_json(record | {"status": "running"})
        assert refused.value.violations[0]["field"].startswith("attempts[0].handle")
    with pytest.raises(ImportRefused, match="expected an object"):
        TaskGraph.from_json([])  # type: ignore[arg-type]
