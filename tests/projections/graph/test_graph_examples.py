"""The worked examples of the task graph's contract, by their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import IllegalTransition, Refused
from projections.graph import PredicateOutcome, Recovery, VerifyPredicate
from tests.projections.graph.graph_bench import Bench, check_fold, check_rest, fail_node, plan, run_node, started

DIAMOND = ([], [0], [0], [1, 2])
FAILED = PredicateOutcome(passed=False, confidence=0.9, reason="too short")
PASSED = PredicateOutcome(passed=True, confidence=0.8, reason="fine")


def kinds(bench: Bench, after: int = 0) -> list[tuple[str, int | None]]:
    """Return (event, node) of everything after a position."""
    return [(event.type, event.data.get("node")) for event in bench.events(after)]


def test_example_1_diamond_joins_when_both_sides_are_done() -> None:
    """1: after one side of a diamond completes the join is pending; after both it is ready, in the same commit."""
    bench = started(*DIAMOND)
    run_node(bench, 0)
    run_node(bench, 1)
    assert bench.node(3).status == "pending"
    outcome = run_node(bench, 2)
    assert bench.node(3).status == "ready"
    completed, readied = outcome.events
    assert (readied.type, readied.data["node"], readied.cause) == ("node.readied", 3, completed.seq)
    assert run_node(bench, 3).events[-1].type == "graph.completed"
    assert bench.graphs.outcome("g") == "completed"


def test_example_2_abort_cancels_everything_in_the_same_commit() -> None:
    """2: under abort a failure fails the graph and cancels what runs and what waits, in one commit, causes named."""
    bench = started([], [], [0, 1])
    bench.graphs.dispatch("g", 0, "h0")
    bench.graphs.dispatch("g", 1, "h1")
    events = bench.graphs.fail("g", 0, "error", "boom", handle="h0").events
    assert bench.statuses() == ["failed", "canceled", "canceled"]
    assert (bench.status(), bench.graphs.outcome("g")) == ("failed", "failed")
    assert [event.type for event in events] == ["node.failed", "graph.failed", "node.canceled", "node.canceled"]
    assert [event.cause for event in events] == [None, events[0].seq, events[1].seq, events[1].seq]
    assert bench.node(1).attempts[0].outcome == "canceled"
    assert bench.node(1).cause == "abort"


def test_example_3_skip_takes_the_whole_chain_and_the_graph_completes() -> None:
    """3: under skip a failed node takes its chain along; the graph completes and says that something failed."""
    bench = started([], [0], [1], default_failure_strategy="skip")
    events = fail_node(bench, 0).events
    assert bench.statuses() == ["skipped"] * 3
    assert (bench.status(), bench.graphs.outcome("g")) == ("completed", "completed_with_failures")
    assert [event.cause for event in events[1:4]] == [events[0].seq, events[1].seq, events[2].seq]
    assert [node.cause for node in bench.graphs.get("g").nodes] == ["failure", "dependency", "dependency"]


@pytest.mark.parametrize(("max_retries", "attempts"), [(1, 2), (0, 1)])
def test_example_4_max_retries_are_extra_attempts_and_all_are_kept(max_retries: int, attempts: int) -> None:
    """4: max_retries 1 gives two attempts, both kept with what happened; 0 gives one; then it is as under abort."""
    bench = started([], nodes=plan([], failure_strategy="retry", max_retries=max_retries))
    for number in range(attempts):
        assert bench.node(0).retry_count == number
        fail_node(bench, 0, "run_timeout" if number == 0 else "spawn")
    node = bench.node(0)
    assert [attempt.outcome for attempt in node.attempts] == ["run_timeout", "spawn"][:attempts]
    assert all(attempt.error == "it broke" and attempt.ended_ms is not None for attempt in node.attempts)
    assert (node.status, bench.status()) == ("failed", "failed")


def test_example_5_ask_pauses_and_retry_re_arms() -> None:
    """5: under ask the graph pauses and siblings go on; resume names what blocks it and runs nothing again; retry
    re-arms the failed node and the graph goes on."""
    bench = started([], [], [0], default_failure_strategy="ask")
    bench.graphs.dispatch("g", 1, "h1")
    fail_node(bench, 0)
    assert (bench.status(), bench.statuses()) == ("paused", ["failed", "running", "pending"])
    resumed = bench.graphs.resume("g").events
    assert [(event.type, event.data["blocked_by"]) for event in resumed] == [("graph.resumed", [0])]
    assert bench.statuses() == ["failed", "running", "pending"]
    bench.graphs.complete("g", 1, handle="h1")
    assert bench.status() == "paused", "nothing can go on: the question stands again"
    with pytest.raises(Refused, match="failed node 0") as refused:
        bench.graphs.resume("g")
    assert refused.value.details["blocked_by"] == [0]
    bench.graphs.retry("g", 0)
    assert (bench.status(), bench.node(0).status, bench.node(0).retry_count) == ("running", "ready", 0)
    run_node(bench, 0)
    run_node(bench, 2)
    assert (bench.status(), bench.graphs.outcome("g")) == ("completed", "completed")


def test_example_5_siblings_are_dispatched_while_the_question_stands() -> None:
    """5: a graph paused by a question still dispatches what does not depend on the answer; a held one does not."""
    bench = started([], [], [1], default_failure_strategy="ask")
    fail_node(bench, 0)
    run_node(bench, 1)
    assert bench.graphs.dispatchable("g") == (2,)
    bench.graphs.pause("g")
    assert bench.graphs.dispatchable("g") == ()
    with pytest.raises(IllegalTransition, match="paused"):
        bench.graphs.dispatch("g", 2)


def test_example_6_predicate_fails_twice_then_passes() -> None:
    """6: within its budget a failed predicate runs the node again, with result and verdict cleared and no retry
    consumed; only the passed verdict opens the gate."""
    nodes = plan([], [0])
    nodes[0] = plan([], verify_predicate=VerifyPredicate.natural("long enough"))[0]
    bench = started(nodes=nodes, predicate_reruns=2)
    for rerun in (1, 2):
        run_node(bench, 0)
        assert bench.graphs.awaiting("g") == (0,)
        assert bench.node(1).status == "pending"
        bench.graphs.record_predicate("g", 0, FAILED)
        node = bench.node(0)
        assert (node.status, node.predicate_rerun_count, node.retry_count) == ("ready", rerun, 0)
        assert node.result is None and node.predicate_outcome is None
    run_node(bench, 0)
    bench.graphs.record_predicate("g", 0, PASSED)
    assert bench.node(1).status == "ready"
    assert bench.node(0).predicate_outcome == PASSED
    assert [attempt.outcome for attempt in bench.node(0).attempts] == ["predicate", "predicate", "completed"]


def test_example_6_exhausted_budget_fails_the_node_then_its_strategy() -> None:
    """6: with the budget spent, which is one for the whole graph, the node fails with cause predicate and its strategy
    applies."""
    gate = VerifyPredicate.expression("len > 3")
    bench = started(nodes=plan([], [], verify_predicate=gate, failure_strategy="skip"), predicate_reruns=1)
    run_node(bench, 0)
    bench.graphs.record_predicate("g", 0, FAILED)
    run_node(bench, 1)
    events = bench.graphs.record_predicate("g", 1, FAILED).events
    assert [event.type for event in events] == ["node.predicate_recorded", "node.rejected", "node.skipped"]
    assert bench.node(1).attempts[0].outcome == "predicate"
    assert bench.node(1).attempts[0].error == "too short"
    bench.graphs.dispatch("g", 0)
    bench.graphs.complete("g", 0, attempt=2)
    bench.graphs.record_predicate("g", 0, FAILED)
    assert (bench.node(0).status, bench.status()) == ("skipped", "completed")


def routed(*more: Any, **options: Any) -> Bench:
    """Return a graph in which node 1 takes the place of node 0 when that fails for good."""
    nodes = plan([], [], [1])
    nodes[0] = plan([], recovery=Recovery(route_to=1), **options)[0]
    return started(nodes=nodes)


def test_example_7_a_fallback_that_is_not_needed_is_skipped_at_completion() -> None:
    """7, Z11: on success the fallback never runs: it is skipped with what depends on it, and that is no failure."""
    bench = routed()
    assert bench.statuses() == ["ready", "dormant", "pending"]
    run_node(bench, 0)
    assert bench.statuses() == ["completed", "skipped", "skipped"]
    assert (bench.status(), bench.graphs.outcome("g")) == ("completed", "completed")
    assert bench.graphs.get("g").outcome == "completed"


def test_example_7_a_fallback_runs_when_its_source_failed_for_good() -> None:
    """7, Z11: the fallback wakes after the last retry of its source, says where it came from, and the outcome still
    tells of the failure."""
    bench = routed(failure_strategy="retry", max_retries=1)
    fail_node(bench, 0)
    assert bench.node(1).status == "dormant"
    fail_node(bench, 0)
    assert bench.statuses() == ["failed", "ready", "pending"]
    assert bench.node(1).routed_from == 0
    run_node(bench, 1)
    run_node(bench, 2)
    assert (bench.status(), bench.graphs.outcome("g")) == ("completed", "completed_with_failures")


def test_recovery_comes_before_the_strategy() -> None:
    """A node whose recovery injects an output is completed with it; its dependents go on, whatever its strategy."""
    nodes = plan([], [0])
    nodes[0] = plan([], recovery=Recovery(state_injection="none found"), failure_strategy="ask")[0]
    bench = started(nodes=nodes)
    events = fail_node(bench, 0).events
    assert [event.type for event in events] == ["node.failed", "node.recovered", "node.readied"]
    assert [event.cause for event in events[1:]] == [events[0].seq, events[1].seq]
    node = bench.node(0)
    assert (node.status, node.cause) == ("completed", "recovered")
    assert node.result is not None and node.result.output == "none found"
    assert node.attempts[0].outcome == "error"


@pytest.mark.parametrize("policy", ["keep", "requeue", "fail"])
def test_example_8_a_crash_between_dispatch_and_completion(policy: Any) -> None:
    """8: what ran is restored as running with its attempt; only the recovery step says what becomes of it."""
    bench = started([], [0], default_failure_strategy="retry", default_max_retries=1)
    bench.graphs.dispatch("g", 0, "h0", agent="a")
    check_fold(bench)
    assert bench.graphs.running("g")[0].attempt.handle == "h0"
    bench.graphs.recover("g", policy)
    node = bench.node(0)
    if policy == "keep":
        assert node.status == "running"
        bench.graphs.complete("g", 0, handle="h0")
        return
    assert (node.status, node.attempts[0].outcome) == ("ready", "unknown" if policy == "requeue" else "crash")
    assert node.retry_count == (0 if policy == "requeue" else 1)
    with pytest.raises(IllegalTransition):
        bench.graphs.complete("g", 0, handle="h0")
    bench.graphs.dispatch("g", 0, "h1")
    bench.graphs.complete("g", 0, handle="h1")
    assert bench.node(1).status == "ready"


def test_example_8_recovery_defaults_to_keep_and_is_an_event() -> None:
    """8: without a policy the running nodes are kept, and the step is in the journal like any other."""
    bench = started([])
    bench.graphs.dispatch("g", 0, "h0")
    assert [(event.type, event.data["policy"]) for event in bench.graphs.recover("g").events] == [
        ("graph.recovered", "keep")
    ]
    assert bench.node(0).status == "running"


def test_example_9_a_late_completion_of_a_timed_out_attempt_is_refused() -> None:
    """9: an attempt that timed out cannot finish its own retry, by number or by handle."""
    bench = started([], default_failure_strategy="retry")
    bench.graphs.dispatch("g", 0, "h1")
    bench.graphs.fail("g", 0, "run_timeout", handle="h1")
    with pytest.raises(IllegalTransition):
        bench.graphs.complete("g", 0, handle="h1")
    bench.graphs.dispatch("g", 0, "h2")
    for name in ({"handle": "h1"}, {"attempt": 1}):
        with pytest.raises(Refused, match="attempt 1 of node 0 in graph 'g' is not live; attempt 2 is"):
            bench.graphs.complete("g", 0, **name)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="never had an attempt 'h3'"):
        bench.graphs.complete("g", 0, handle="h3")
    bench.graphs.complete("g", 0, handle="h2")
    assert bench.status() == "completed"


def test_example_10_a_graph_taken_up_again_has_no_stale_end() -> None:
    """10: pausing sets no finished_at, resuming leaves none, and a retried graph loses the one it had."""
    bench = started([], [], default_failure_strategy="ask")
    fail_node(bench, 0)
    assert bench.graphs.get("g").finished_at is None
    bench.graphs.resume("g")
    assert bench.graphs.get("g").finished_at is None
    bench.graphs.cancel_graph("g")
    assert bench.graphs.get("g").finished_at is not None
    bench.graphs.retry_graph("g")
    assert (bench.status(), bench.graphs.get("g").finished_at) == ("running", None)
    check_rest(bench.graphs.get("g"))
