"""What users of comparable runtimes reported, by the ids of the collected threads: each test holds a kind of fault that
cannot happen here.

Rows held elsewhere in this folder: Z1, D2 (laws: every cut), Z2, K20 (validate: injection), Z7 (json: contradictions),
Z11 (examples: fallbacks), Z14 (reactions), K25 (laws: order), D8 (life cycle and laws). Z22's other half, that a real
run leaves a journal on disk, and Z19's, that a live owner is not taken for dead, are the engine's to hold.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from engine.core.errors import IllegalTransition, ImportRefused, InvalidValue, Refused
from projections.graph import TaskNode, VerifyPredicate
from tests.projections.graph.graph_bench import (
    Bench,
    check_fold,
    check_rest,
    fail_node,
    fold,
    plan,
    reloaded,
    run_node,
    started,
)

GATE = VerifyPredicate.natural("good")
PASSED = {"passed": True, "confidence": 0.75, "reason": "fine"}
FAILED = {"passed": False, "confidence": 0.5, "reason": "no"}


def restored(bench: Bench) -> Bench:
    """Return another bench that holds the same run, made from the records alone."""
    other = Bench()
    other.state, other.wires, other.now = reloaded(bench.state), list(bench.wires), bench.now
    return other


def gated(**options: Any) -> Bench:
    """Return a running graph 0 -> 1 with a gate on node 0."""
    nodes = plan([], [0])
    nodes[0] = TaskNode.new(0, "n", "", verify_predicate=GATE)
    return started(nodes=nodes, **options)


def test_z1_progress_is_there_after_every_step() -> None:
    """Z1: after 3 of 10 nodes, and after every event on the way, the prefix holds exactly what had happened."""
    bench = started(*[[]] * 10)
    for number in range(3):
        run_node(bench, number)
        assert fold(bench.wires).bytes() == bench.state.bytes()
        assert restored(bench).statuses() == ["completed"] * (number + 1) + ["ready"] * (9 - number)


def test_z2_every_mutation_is_an_event() -> None:
    """Z2: injections and predicate resets survive, because there is no other door than events."""
    bench = gated()
    run_node(bench, 0)
    bench.graphs.inject("g", plan([0], first=2))
    bench.graphs.record_predicate("g", 0, FAILED)
    again = Bench()
    again.state = fold(bench.wires)
    assert again.node(0) == bench.node(0) and again.node(0).predicate_rerun_count == 1
    assert again.statuses() == ["ready", "pending", "pending"]


def test_z4_a_restored_run_keeps_its_verdicts() -> None:
    """Z4: a recorded verdict is in the state, so nothing asks for another one after a restore, and none is taken."""
    bench = gated()
    run_node(bench, 0)
    assert restored(bench).graphs.awaiting("g") == (0,)
    bench.graphs.record_predicate("g", 0, PASSED)
    again = restored(bench)
    assert again.graphs.awaiting("g") == ()
    assert again.node(0).predicate_outcome == bench.node(0).predicate_outcome is not None
    with pytest.raises(Refused, match="has its verdict already"):
        again.graphs.record_predicate("g", 0, FAILED)


def test_z4_a_late_verdict_is_on_its_own_attempt() -> None:
    """Z4: a verdict that names the attempt it judged cannot fall on the output of a later one."""
    bench = gated()
    run_node(bench, 0)
    bench.graphs.record_predicate("g", 0, FAILED, attempt=1)
    assert not bench.graphs.record_predicate("g", 0, FAILED, attempt=1).changed
    run_node(bench, 0)
    with pytest.raises(Refused, match="the verdict is on attempt 1"):
        bench.graphs.record_predicate("g", 0, FAILED, attempt=1)
    bench.graphs.record_predicate("g", 0, PASSED, attempt=2)
    assert bench.node(1).status == "ready"


def test_z5_a_gate_holds_whatever_the_host_is_configured_to() -> None:
    """Z5: a plan that waits for a verdict is waiting, not in a deadlock, for as long as it takes; also on its last
    node, and after a restore."""
    bench = gated()
    run_node(bench, 0)
    for again in (bench, restored(bench)):
        assert again.status() == "running"
        assert again.graphs.blocked("g")[0].reason == "node 0 is completed and awaits its predicate"
    last = started(nodes=plan([], verify_predicate=GATE))
    run_node(last, 0)
    assert (last.status(), last.graphs.outcome("g")) == ("running", None)
    last.graphs.record_predicate("g", 0, PASSED)
    assert last.graphs.outcome("g") == "completed"


def test_z5_a_fallback_that_was_not_needed_is_no_deadlock() -> None:
    """Z5: a deadlock is what nothing can move any more, and it is told with its reasons before it is one."""
    bench = started([], [0], [1], default_failure_strategy="ask")
    fail_node(bench, 0)
    assert [(entry.node, entry.on) for entry in bench.graphs.blocked("g")] == [(1, 0), (2, 1)]
    events = bench.graphs.cancel("g", 1).events
    assert [event.type for event in events] == ["node.canceled"], "a person's answer may still come"
    assert bench.graphs.why("g", 2)[0].reason == "node 1 is canceled, which never unblocks"
    deadlocked = bench.graphs.retry("g", 0) and run_node(bench, 0).events
    assert [(event.type, event.data.get("reason")) for event in deadlocked[-2:]] == [
        ("graph.failed", "deadlock"),
        ("node.canceled", None),
    ]
    check_rest(bench.graphs.get("g"))


@pytest.mark.parametrize("statuses", list(product(["completed", "failed", "skipped", "canceled"], repeat=2)))
def test_z8_a_graph_is_retried_from_every_mix_of_statuses(statuses: tuple[str, ...]) -> None:
    """Z8: whatever mix a graph ended in, a retry leaves no stale running node, no old handle, and it can complete."""
    nodes = plan([], [], [], [2], [0, 1, 2])
    for number, status in enumerate(statuses):
        if status == "skipped":
            nodes[number] = TaskNode.new(number, "n", "", failure_strategy="skip")
        if status == "failed":
            nodes[number] = TaskNode.new(number, "n", "", failure_strategy="ask")
    bench = started(nodes=nodes)
    for number, status in enumerate(statuses):
        if status == "completed":
            run_node(bench, number)
        elif status == "canceled":
            bench.graphs.cancel("g", number)
        else:
            fail_node(bench, number)
    bench.graphs.dispatch("g", 2, "stale")
    if bench.status() in ("running", "paused"):
        bench.graphs.cancel_graph("g")
    bench.graphs.retry_graph("g")
    check_rest(bench.graphs.get("g"))
    check_fold(bench)
    with pytest.raises(Refused):
        bench.graphs.complete("g", 2, handle="stale")
    while ready := bench.graphs.ready("g"):
        run_node(bench, ready[0])
    assert (bench.status(), bench.graphs.outcome("g")) == ("completed", "completed")


def test_z10_a_correction_reaches_dependents_and_graph() -> None:
    """Z10: correcting a node marks everything that was made from its output, finished or running, and shows in the
    outcome of a graph that had completed."""
    bench = started([], [0], [1], [])
    for number in range(4):
        run_node(bench, number)
    assert bench.graphs.outcome("g") == "completed"
    events = bench.graphs.correct("g", 0, "wrong table").events
    assert [(event.type, event.data["node"], event.cause) for event in events[1:]] == [
        ("node.tainted", 1, events[0].seq),
        ("node.tainted", 2, events[1].seq),
    ]
    assert [node.tainted_by for node in bench.graphs.get("g").nodes] == [(), (0,), (0,), ()]
    assert (bench.status(), bench.graphs.outcome("g")) == ("completed", "completed_with_failures")
    assert bench.node(0).attempts[0].outcome == "corrected"
    assert not bench.graphs.correct("g", 0, "wrong table").changed


def test_z10_a_correction_withdraws_what_had_not_run() -> None:
    """Z10: in a running graph the node's strategy applies, and a dependent that was ready waits for the new output."""
    bench = started([], [0], [0], default_failure_strategy="retry", default_max_retries=1)
    run_node(bench, 0)
    bench.graphs.dispatch("g", 1)
    events = bench.graphs.correct("g", 0, "wrong").events
    assert [(event.type, event.data["node"]) for event in events] == [
        ("node.corrected", 0),
        ("node.tainted", 1),
        ("node.retried", 0),
        ("node.withdrawn", 2),
    ]
    run_node(bench, 0)
    assert bench.node(2).status == "ready" and bench.node(1).tainted_by == (0,)


def test_z17_every_graph_comes_to_a_terminal_record() -> None:
    """Z17: running whatever is ready, well or badly, always ends the graph, with the time of its end on the record."""
    for strategy, worst in product(("abort", "retry", "skip"), range(6)):
        bench = started([], [], [0, 1], [2], [1], [], default_failure_strategy=strategy, default_max_retries=1)
        while ready := bench.graphs.ready("g", 1):
            (fail_node if ready[0] == worst else run_node)(bench, ready[0])
        graph = bench.graphs.get("g")
        assert graph.status in ("completed", "failed") and graph.finished_at == bench.now
        assert graph.outcome != "completed"


def test_z19_time_alone_ends_nothing() -> None:
    """Z19: a running node stays running however much time passes; only what is recorded ends it."""
    bench = started([], [])
    bench.graphs.dispatch("g", 0, "h")
    bench.now += 10**10
    again = restored(bench)
    run_node(again, 1)
    assert again.graphs.running("g")[0].attempt.handle == "h"


def test_z22_no_step_goes_unrecorded() -> None:
    """Z22: every command that changes anything appends at least one event; those that change nothing append none."""
    bench = gated()
    seq = bench.state.seq
    for act in (
        lambda: bench.graphs.dispatch("g", 0, "h"),
        lambda: bench.graphs.defer("g", 0, handle="h"),
        lambda: bench.graphs.dispatch("g", 0, "h2"),
        lambda: bench.graphs.complete("g", 0, handle="h2"),
        lambda: bench.graphs.record_predicate("g", 0, PASSED),
        lambda: bench.graphs.pause("g"),
        lambda: bench.graphs.resume("g"),
        lambda: bench.graphs.cancel("g", 1),
    ):
        before = bench.state.bytes()
        assert act().changed and bench.state.bytes() != before and bench.state.seq > seq
        seq = bench.state.seq


def test_z23_a_restored_run_does_not_start_a_finished_node_again() -> None:
    """Z23: after a restore nothing that finished, or that still runs, is offered for dispatch, and repeating the report
    that ended it changes nothing."""
    bench = started([], [], [0])
    bench.graphs.dispatch("g", 0, "h0")
    bench.graphs.complete("g", 0, {"output": "x"}, handle="h0")
    bench.graphs.dispatch("g", 1, "h1", agent="a")
    again = restored(bench)
    assert again.graphs.dispatchable("g") == (2,)
    assert not again.graphs.complete("g", 0, {"output": "x"}, handle="h0").changed
    assert not again.graphs.dispatch("g", 1, "h1", agent="a").changed
    assert not again.graphs.start("g").changed
    with pytest.raises(IllegalTransition):
        again.graphs.dispatch("g", 0, "h2")


def test_k19_a_resumed_node_goes_on_with_its_own_count() -> None:
    """K19: attempts, retries and re-runs are numbered on after a restore, and reports name the attempt."""
    bench = gated(default_failure_strategy="retry", default_max_retries=5, predicate_reruns=5)
    fail_node(bench, 0)
    run_node(bench, 0)
    bench.graphs.record_predicate("g", 0, FAILED)
    again = restored(bench)
    again.graphs.dispatch("g", 0)
    node = again.node(0)
    assert (len(node.attempts), node.retry_count, node.predicate_rerun_count) == (3, 1, 1)
    with pytest.raises(Refused, match=r"attempt 2 of node 0 in graph 'g' is not live; attempt 3 is"):
        again.graphs.complete("g", 0, "late", attempt=2)


def test_k22_a_completion_reported_twice_counts_once() -> None:
    """K22: the same completion again changes nothing, another one is refused, so no counter runs ahead."""
    bench = started([], [], [0, 1])
    bench.graphs.dispatch("g", 0, "h")
    bench.graphs.complete("g", 0, "out", handle="h")
    for _ in range(2):
        assert not bench.graphs.complete("g", 0, "out", handle="h").changed
        with pytest.raises(IllegalTransition):
            bench.graphs.complete("g", 0, "other", handle="h")
    assert bench.node(2).status == "pending"
    bench.graphs.dispatch("g", 1, "h")
    for _ in range(2):
        bench.graphs.fail("g", 1, "tools", "x", handle="h")
    assert bench.node(1).status == "failed" and len(bench.node(1).attempts) == 1


def test_k23_no_limit_parks_a_plan_and_no_empty_plan_completes() -> None:
    """K23: a concurrency of nothing is refused where it is asked for, and so is a graph of nothing."""
    bench = started([], [])
    for limit in (0, -1):
        for ask in (bench.graphs.ready, bench.graphs.dispatchable):
            with pytest.raises(InvalidValue, match="limit"):
                ask("g", limit)
    assert bench.graphs.dispatchable("g", 1) == (0,)
    with pytest.raises(ImportRefused):
        bench.graphs.create("h", "goal", [])


def test_d1_a_crash_between_attempt_and_outcome_is_in_flight() -> None:
    """D1: an attempt without an outcome is restored as running, never as done with nothing."""
    bench = started([], [0], default_failure_strategy="retry")
    fail_node(bench, 0)
    bench.graphs.dispatch("g", 0, "h2")
    again = restored(bench)
    node = again.node(0)
    assert (node.status, node.result, node.live_attempt and node.live_attempt.number) == ("running", None, 2)
    assert again.node(1).status == "pending"
    assert [entry.attempt.handle for entry in again.graphs.running("g")] == ["h2"]


def test_d2_whatever_is_not_terminal_can_go_on() -> None:
    """D2: between two steps the next node is ready in the same commit, so a crash there blocks nothing; a second
    sequential node waits with a reason, and is free when the first ends."""
    bench = started(nodes=plan([], [0], [], execution_mode="sequential"))
    bench.graphs.dispatch("g", 0)
    assert bench.graphs.ready("g") == (2,) and bench.graphs.dispatchable("g") == ()
    with pytest.raises(Refused, match="sequential node 0 is running"):
        bench.graphs.dispatch("g", 2)
    assert bench.graphs.why("g", 2)[0].on == 0
    bench.graphs.complete("g", 0, attempt=1)
    again = restored(bench)
    assert again.graphs.ready("g") == (1, 2) and again.graphs.dispatchable("g") == (1,)
