"""The rules of a graph's shape, at creation, injection and import: every violation at once, nothing recorded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import ImportRefused, InvalidValue
from engine.core.limits import GRAPH_TASKS_MAX
from projections.graph import Recovery, TaskGraph, TaskNode, VerifyPredicate
from projections.graph.cycles import cycles
from tests.projections.graph.graph_bench import Bench, plan, run_node, started


def violations(nodes: list[Any], **options: Any) -> list[tuple[int | None, str, Any]]:
    """Return (node, field, value) of everything that creation finds wrong."""
    bench = Bench()
    with pytest.raises(ImportRefused) as refused:
        bench.graphs.create("g", "goal", nodes, **options)
    assert bench.graphs.ids() == ()
    return [(found["node"], found["field"], found["value"]) for found in refused.value.violations]


def node(number: int, *needs: int, **fields: Any) -> TaskNode:
    return TaskNode.new(number, "n", "", depends_on=needs, **fields)


CASES = {
    "empty graph": ([], [(None, "nodes", [])]),
    "id is not the position": ([node(1)], [(0, "id", 1)]),
    "self dependency": ([node(0, 0)], [(0, "depends_on", 0)]),
    "dangling dependency": ([node(0, 4)], [(0, "depends_on", 4)]),
    "duplicate dependency": ([node(0), node(1, 0, 0)], [(1, "depends_on", 0)]),
    "cycle": ([node(0, 2), node(1, 0), node(2, 1)], [(0, "depends_on", [0, 2, 1, 0])]),
    "route to self": ([node(0, recovery=Recovery(route_to=0))], [(0, "recovery.route_to", 0)]),
    "dangling route": ([node(0, recovery=Recovery(route_to=3))], [(0, "recovery.route_to", 3)]),
    "fallback with dependencies": (
        [node(0), node(1, recovery=Recovery(route_to=2)), node(2, 0)],
        [(1, "recovery.route_to", 2)],
    ),
    "chained routes": (
        [node(0, recovery=Recovery(route_to=1)), node(1, recovery=Recovery(route_to=2)), node(2)],
        [(0, "recovery.route_to", 1)],
    ),
    "shared fallback": (
        [node(0, recovery=Recovery(route_to=2)), node(1, recovery=Recovery(route_to=2)), node(2)],
        [(1, "recovery.route_to", 2)],
    ),
    "source waits for its own fallback": (
        [node(0, 1, recovery=Recovery(route_to=1)), node(1)],
        [(0, "depends_on", [0, 1, 0])],
    ),
    "recovery names both": (
        [node(0, recovery=Recovery(route_to=1, state_injection="x")), node(1)],
        [(0, "recovery", {"route_to": 1, "state_injection": "x"})],
    ),
    "recovery names neither": (
        [node(0, recovery=Recovery())],
        [(0, "recovery", {"route_to": None, "state_injection": None})],
    ),
    "recovery with a predicate": (
        [node(0, recovery=Recovery(state_injection="x"), verify_predicate=VerifyPredicate.natural("y"))],
        [(0, "recovery", {"route_to": None, "state_injection": "x"})],
    ),
    "negative budget": ([node(0, token_budget_cents=-0.5)], [(0, "token_budget_cents", -0.5)]),
    "endless budget": ([{**node(0).to_json(), "token_budget_cents": "1e9"}], [(0, "token_budget_cents", "1e9")]),
    "a life behind it": (
        [{**node(0).to_json(), "status": "completed", "retry_count": 2}],
        [(0, "status", "completed"), (0, "retry_count", 2)],
    ),
    "unknown label": ([{**node(0).to_json(), "network_scope": "maybe"}], [(0, "network_scope", "maybe")]),
    "missing key": ([{"id": 0, "title": "n"}], [(0, "description", None)]),
    "not an object": (["n"], [(0, "", "n")]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_rule_is_reported_with_node_field_and_value(case: str) -> None:
    """A graph that breaks one rule is refused with exactly that violation, and nothing is recorded."""
    nodes, expected = CASES[case]
    assert violations(nodes) == expected


def test_all_violations_are_reported_at_once() -> None:
    """A graph that breaks many rules is told all of them in one refusal."""
    nodes = [node(0, 0, 9), node(2, 0, 0), node(2, 3), node(3, 2), {**node(4).to_json(), "execution_mode": "serial"}]
    found = violations(nodes, max_tasks=4)
    assert found == [
        (4, "execution_mode", "serial"),
        (None, "nodes", 5),
        (0, "depends_on", 0),
        (0, "depends_on", 9),
        (1, "id", 2),
        (1, "depends_on", 0),
        (2, "depends_on", [2, 3, 2]),
    ]


def test_two_cycles_are_two_paths() -> None:
    """Every knot of cycles is named by a path of its own, the shortest from its smallest node."""
    nodes = [node(0, 1), node(1, 0), node(2, 4), node(3, 2, 4), node(4, 3, 2)]
    assert violations(nodes) == [(0, "depends_on", [0, 1, 0]), (2, "depends_on", [2, 4, 2])]


def test_more_nodes_than_max_tasks_are_refused_in_words() -> None:
    """The refusal says how many there are and how many may be; max_tasks itself has a limit."""
    with pytest.raises(ImportRefused, match="3 nodes are more than max_tasks, which is 2"):
        Bench().graphs.create("g", "goal", plan([], [], []), max_tasks=2)
    with pytest.raises(InvalidValue, match="max_tasks"):
        Bench().graphs.create("g", "goal", plan([]), max_tasks=GRAPH_TASKS_MAX + 1)


def test_confidence_out_of_range_is_refused() -> None:
    """A verdict's confidence is in 0..1, at import and when it is recorded."""
    bench = started(nodes=plan([], verify_predicate=VerifyPredicate.natural("x")))
    run_node(bench, 0)
    for confidence in (1.5, -0.1, float("nan"), "0.5", True):
        with pytest.raises(InvalidValue, match="confidence"):
            bench.graphs.record_predicate("g", 0, {"passed": True, "confidence": confidence})
    record = bench.graphs.get("g").to_json()
    record["nodes"][0]["predicate_outcome"] = {"passed": True, "confidence": 1.5, "reason": ""}
    with pytest.raises(ImportRefused, match="out of range") as refused:
        TaskGraph.from_json(record)
    assert [found["field"] for found in refused.value.violations] == ["predicate_outcome.confidence"]


# -- injection --------------------------------------------------------------------------------------------------------


def test_injected_nodes_go_on_from_the_last_id_and_become_ready() -> None:
    """K20, Z2: injected nodes get the next positions, are events like any other, and a completed dependency readies
    them in the same commit."""
    bench = started([], [0])
    run_node(bench, 0)
    events = bench.graphs.inject("g", plan([0], [2], first=2)).events
    assert [(event.type, event.data.get("node")) for event in events] == [
        ("graph.injected", None),
        ("node.added", 2),
        ("node.added", 3),
        ("node.readied", 2),
    ]
    assert {event.cause for event in events[1:]} == {events[0].seq}
    run_node(bench, 2)
    assert bench.statuses() == ["completed", "ready", "completed", "ready"]


@pytest.mark.parametrize(
    ("nodes", "field"),
    [
        ([], "nodes"),
        ([node(1)], "id"),
        ([node(2, 3), node(3, 2)], "depends_on"),
        ([node(2, recovery=Recovery(route_to=1))], "recovery.route_to"),
        ([node(2), node(3), node(4)], "nodes"),
        ([node(2, 7)], "depends_on"),
    ],
)
def test_a_refused_injection_leaves_the_graph_as_it_was(nodes: list[TaskNode], field: str) -> None:
    """A rejected injection changes no byte of state, and names what is wrong."""
    bench = started([], [0], max_tasks=4)
    before = bench.state.bytes()
    with pytest.raises(ImportRefused, match="injection into graph 'g'") as refused:
        bench.graphs.inject("g", nodes)
    assert [found["field"] for found in refused.value.violations] == [field]
    assert bench.state.bytes() == before


def test_an_injected_fallback_sleeps_like_any_other() -> None:
    """An injection may bring a node with its fallback; the fallback sleeps at once in a graph that runs."""
    bench = started([])
    bench.graphs.inject("g", [node(1, recovery=Recovery(route_to=2)), node(2)])
    assert bench.statuses() == ["ready", "ready", "dormant"]


# -- depth ------------------------------------------------------------------------------------------------------------


def test_ten_thousand_nodes_in_a_chain_are_checked_without_recursion() -> None:
    """A chain of 10,000 nodes is created, a ring of as many is named as one cycle."""
    chain = plan([], *([number] for number in range(9_999)))
    bench = Bench()
    bench.graphs.create("g", "goal", chain)
    assert bench.graphs.counts("g")["pending"] == 10_000
    ring = [{"depends_on": [(number + 1) % 10_000], "recovery": None} for number in range(10_000)]
    (path,) = cycles(ring)
    assert path == [*range(10_000), 0]


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
    )
)
def test_a_cycle_is_reported_exactly_when_there_is_one(drawn: tuple[int, set[tuple[int, int]]]) -> None:
    """Against trying every order of removal: cycles are found if and only if they exist, and each path is one."""
    count, edges = drawn
    edges = {edge for edge in edges if edge[0] != edge[1]}
    nodes = [{"depends_on": sorted(b for a, b in edges if a == n), "recovery": None} for n in range(count)]
    left = set(range(count))
    while free := {n for n in left if not any(d in left for d in nodes[n]["depends_on"])}:  # type: ignore[union-attr]
        left -= free
    found = list(cycles(nodes))
    assert bool(found) == bool(left)
    for path in found:
        assert path[0] == path[-1] and len(set(path)) == len(path) - 1 >= 2
        assert all(step in edges for step in pairwise(path))
