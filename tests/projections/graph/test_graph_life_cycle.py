"""The life cycles as tables: what they allow is taken, what they do not allow is refused by name, and nothing else
happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.errors import IllegalTransition, NotFound, Refused
from engine.core.transition import allowed, mermaid, states
from projections.graph import GRAPH, NODE, GraphCommands, PredicateOutcome, Recovery, TaskNode, VerifyPredicate
from projections.graph.events import EVENTS
from projections.graph.fields import GRAPH_STATUSES, NODE_STATUSES
from projections.graph.transitions import GRAPH_STEPS, NODE_STEPS
from tests.projections.graph.graph_bench import MODEL, Bench, fail_node, fold, plan, run_node, started

PASSED = PredicateOutcome(passed=True, confidence=1.0)
FAILED = PredicateOutcome(passed=False, confidence=1.0, reason="no")

NODE_OF = {
    "pending": 0,
    "ready": 1,
    "running": 2,
    "completed": 3,
    "failed": 4,
    "skipped": 5,
    "canceled": 6,
    "dormant": 7,
}


def every_status() -> Bench:
    """Return a running graph that has a node in each status."""
    nodes = plan([8], [], [], [], [], [], [], [], [])
    special = {
        3: {"verify_predicate": VerifyPredicate.natural("good")},
        4: {"failure_strategy": "ask"},
        5: {"failure_strategy": "skip"},
        8: {"recovery": Recovery(route_to=7)},
    }
    for number, fields in special.items():
        nodes[number] = TaskNode.new(number, "n", "", **fields)
    bench = started(nodes=nodes)
    bench.graphs.dispatch("g", 2, "live")
    run_node(bench, 3)
    fail_node(bench, 5)
    bench.graphs.cancel("g", 6)
    bench.graphs.dispatch("g", 8)
    fail_node(bench, 4)
    bench.graphs.resume("g")
    assert {bench.node(number).status: number for number in range(8)} == NODE_OF
    return bench


NODE_COMMANDS: dict[str, Callable[[GraphCommands, int], Any]] = {
    "node.dispatched": lambda graphs, n: graphs.dispatch("g", n),
    "node.completed": lambda graphs, n: graphs.complete("g", n, "x", attempt=1),
    "node.failed": lambda graphs, n: graphs.fail("g", n, "tools", "x", attempt=1),
    "node.deferred": lambda graphs, n: graphs.defer("g", n, "x", attempt=1),
    "node.predicate_recorded": lambda graphs, n: graphs.record_predicate("g", n, PASSED),
    "node.retried": lambda graphs, n: graphs.retry("g", n),
    "node.skipped": lambda graphs, n: graphs.skip("g", n),
    "node.canceled": lambda graphs, n: graphs.cancel("g", n),
    "node.corrected": lambda graphs, n: graphs.correct("g", n, "wrong"),
}
REPEATS = {("skipped", "node.skipped"), ("canceled", "node.canceled")}


@pytest.mark.parametrize("status", NODE_STATUSES)
@pytest.mark.parametrize("event", NODE_COMMANDS)
def test_a_node_takes_what_its_table_allows_and_refuses_the_rest(status: str, event: str) -> None:
    """For every status and command: legal by the table is recorded, a repetition gives nothing, the rest is refused
    with the status and what is allowed there."""
    bench = every_status()
    number = NODE_OF[status]
    if (status, event) in NODE_STEPS:
        outcome = NODE_COMMANDS[event](bench.graphs, number)
        assert outcome.events[0].type == event
    elif (status, event) in REPEATS:
        assert not NODE_COMMANDS[event](bench.graphs, number).changed
    else:
        with pytest.raises(Refused) as refused:
            NODE_COMMANDS[event](bench.graphs, number)
        if isinstance(refused.value, IllegalTransition):
            assert refused.value.details["state"] == status
            assert refused.value.details["allowed"] == allowed(NODE, status)
        else:
            assert "never had an attempt" in refused.value.message


def in_status(status: str) -> Bench:
    """Return a graph in a status."""
    bench = Bench()
    strategy: Any = "ask" if status == "paused" else "abort"
    bench.graphs.create("g", "goal", plan([], []), default_failure_strategy=strategy)
    steps = {"created": [], "canceled": ["cancel_graph"]}.get(status, ["start"])
    for step in steps:
        getattr(bench.graphs, step)("g")
    if status == "completed":
        run_node(bench, 0)
        bench.graphs.skip("g", 1)
    if status in ("failed", "paused"):
        fail_node(bench, 0)
    if status == "paused":
        bench.graphs.pause("g")
    assert bench.status() == status
    return bench


GRAPH_COMMANDS: dict[str, Callable[[GraphCommands], Any]] = {
    "graph.started": lambda graphs: graphs.start("g"),
    "graph.paused": lambda graphs: graphs.pause("g"),
    "graph.resumed": lambda graphs: graphs.resume("g"),
    "graph.canceled": lambda graphs: graphs.cancel_graph("g"),
    "graph.retried": lambda graphs: graphs.retry_graph("g"),
    "graph.recovered": lambda graphs: graphs.recover("g", "requeue"),
    "graph.injected": lambda graphs: graphs.inject("g", plan([], first=2)),
}
GRAPH_REPEATS = {
    ("running", "graph.started"),
    ("running", "graph.resumed"),
    ("running", "graph.recovered"),
    ("paused", "graph.recovered"),
    ("paused", "graph.paused"),
    ("canceled", "graph.canceled"),
}


@pytest.mark.parametrize("status", GRAPH_STATUSES)
@pytest.mark.parametrize("event", GRAPH_COMMANDS)
def test_a_graph_takes_what_its_table_allows_and_refuses_the_rest(status: str, event: str) -> None:
    """For every status and command of a graph: as the table says, or nothing when there is nothing to do."""
    bench = in_status(status)
    if (status, event) in GRAPH_REPEATS:
        assert not GRAPH_COMMANDS[event](bench.graphs).changed
    elif (status, event) in GRAPH_STEPS:
        assert GRAPH_COMMANDS[event](bench.graphs).events[0].type == event
    else:
        with pytest.raises(IllegalTransition) as refused:
            GRAPH_COMMANDS[event](bench.graphs)
        assert refused.value.details["allowed"] == allowed(GRAPH, status)


def scenarios() -> list[Bench]:
    """Return runs that between them take every step of both tables."""
    everything = every_status()
    everything.graphs.correct("g", 3, "wrong")  # aborts: cancels 0, 1, 2, 7 and 8
    everything.graphs.retry_graph("g")

    routes = started(nodes=[TaskNode.new(0, "n", "", recovery=Recovery(route_to=1)), *plan([], [], [2], first=1)])
    fail_node(routes, 0)
    routes.graphs.dispatch("g", 2, task="t")
    routes.ingest("node.attempt_started", graph="g", node=2, attempt=1, at_ms=5)
    routes.graphs.recover("g", "requeue")
    routes.graphs.dispatch("g", 2)
    routes.graphs.defer("g", 2, attempt=2)
    routes.graphs.skip("g", 2)

    gates = started(nodes=plan([], verify_predicate=VerifyPredicate.natural("x")), predicate_reruns=1)
    for _ in range(2):
        run_node(gates, 0)
        gates.graphs.record_predicate("g", 0, FAILED)
    gates.graphs.retry_graph("g")
    gates.graphs.cancel("g", 0)

    fixed = started(nodes=plan([], [0], recovery=Recovery(state_injection="x")))
    fail_node(fixed, 0)

    withdrawn = started([], [0], [1], default_failure_strategy="ask")
    run_node(withdrawn, 0)
    withdrawn.graphs.correct("g", 0, "wrong")
    withdrawn.graphs.skip("g", 1)
    withdrawn.graphs.inject("g", plan([], first=3))
    withdrawn.graphs.pause("g")
    withdrawn.graphs.retry_graph("g")

    asked = started([], [0], default_failure_strategy="ask")
    fail_node(asked, 0)
    asked.graphs.skip("g", 0)

    lost = started([], [0], [1])
    run_node(lost, 0)
    fail_node(lost, 1)
    lost.graphs.correct("g", 0, "wrong")
    lost.graphs.retry_graph("g")

    paused = started([], [], default_failure_strategy="ask")
    fail_node(paused, 0)
    paused.graphs.dispatch("g", 1)
    paused.graphs.recover("g", "requeue")
    paused.graphs.cancel_graph("g")
    paused.graphs.retry_graph("g")

    mixed = started(nodes=[*plan([], failure_strategy="ask"), *plan([], first=1)])
    fail_node(mixed, 0)
    fail_node(mixed, 1)

    dropped = started(nodes=[TaskNode.new(0, "n", "", recovery=Recovery(route_to=1)), *plan([], [0], first=1)])
    run_node(dropped, 0)
    dropped.graphs.skip("g", 2)

    held = started([], [])
    held.graphs.dispatch("g", 0)
    held.graphs.pause("g")
    held.graphs.complete("g", 0, attempt=1)
    held.graphs.skip("g", 1)

    drafted = Bench()
    drafted.graphs.create("g", "goal", plan([], [0]))
    drafted.graphs.inject("g", plan([], first=2))
    drafted.graphs.skip("g", 1)
    drafted.graphs.cancel("g", 0)
    drafted.graphs.cancel_graph("g")
    drafted.graphs.retry_graph("g")
    run_node(drafted, 0)

    doomed = started(nodes=[TaskNode.new(0, "n", "", recovery=Recovery(route_to=1)), *plan([], first=1)])
    fail_node(doomed, 0)
    doomed.graphs.inject("g", plan([], first=2))
    fail_node(doomed, 1)
    doomed.graphs.retry_graph("g")
    doomed.graphs.cancel_graph("g")

    redone = started([], [], default_failure_strategy="skip")
    fail_node(redone, 0)
    run_node(redone, 1)
    redone.graphs.retry_graph("g")
    return [
        everything, routes, gates, fixed, withdrawn, asked, lost, paused, mixed, dropped, held, drafted, doomed, redone,
    ]  # fmt: skip


def test_every_step_of_the_tables_happens_and_no_other() -> None:
    """Folding runs event by event shows exactly the steps that the tables list: the tables are whole and hold nothing
    that cannot be."""
    seen_nodes: set[tuple[str | None, str, str]] = set()
    seen_graphs: set[tuple[str | None, str, str]] = set()
    for bench in scenarios():
        for seq in range(len(bench.wires)):
            event = bench.events(seq)[0]
            before = fold(bench.wires[:seq]).parts["graph"]
            after = fold(bench.wires[: seq + 1]).parts["graph"]
            key = (event.data["graph"], event.data.get("node"))
            if event.type.startswith("node.") and event.type not in ("node.tainted", "node.imported"):
                old = before.progress.get(key)
                seen_nodes.add((old and old.status, after.progress.get(key).status, event.type))
            elif event.type.startswith("graph."):
                old = before.graphs.get(key[0])
                seen_graphs.add((old and old.status, after.graphs.get(key[0]).status, event.type))
    assert seen_nodes == {step[:3] for step in NODE}
    assert seen_graphs == {step[:3] for step in GRAPH}


def test_the_tables_speak_of_known_statuses_and_events_only() -> None:
    """Every status and every event of the tables exists, and every life-cycle event is in a table."""
    assert set(states(NODE)) == set(NODE_STATUSES)
    assert set(states(GRAPH)) == set(GRAPH_STATUSES)
    named = {step.event for step in (*NODE, *GRAPH)}
    besides = {"node.tainted", "node.imported", "graph.imported", "graph.keys_left_out"}
    assert named | besides == {event_type.name for event_type in EVENTS}
    assert "running --> completed: completed (by the live attempt)" in mermaid(NODE)


def test_event_numbers_are_those_of_the_graph() -> None:
    """Every event has a number of the range 80..119, once."""
    numbers = [event_type.number for event_type in EVENTS]
    assert len(set(numbers)) == len(numbers) and all(number is not None and 80 <= number < 120 for number in numbers)
    assert MODEL.catalog.by_name.keys() >= {event_type.name for event_type in EVENTS}


def test_unknown_graphs_and_nodes_are_named() -> None:
    """A graph or a node that does not exist is NotFound, by name, for commands and for questions."""
    bench = started([])
    for ask in (
        bench.graphs.get,
        bench.graphs.ready,
        bench.graphs.start,
        bench.graphs.blocked,
        bench.graphs.retry_graph,
    ):
        with pytest.raises(NotFound, match="no graph 'h'"):
            ask("h")
    for command in NODE_COMMANDS.values():
        with pytest.raises(NotFound, match="graph 'g' has no node 7"):
            command(bench.graphs, 7)


def test_terminal_statuses_absorb_every_late_report() -> None:
    """D8: nothing that arrives late about an attempt moves a node that is terminal."""
    bench = started([], [], default_failure_strategy="skip")
    run_node(bench, 0)
    fail_node(bench, 1)
    before = bench.state.bytes()
    for number in (0, 1):
        for event in ("node.dispatched", "node.completed", "node.failed", "node.deferred", "node.canceled"):
            with pytest.raises(Refused):
                NODE_COMMANDS[event](bench.graphs, number)
    assert bench.state.bytes() == before
