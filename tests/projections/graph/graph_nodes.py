"""Nodes to draw: for the second reading of the contract, and the same as values of the projection."""

from __future__ import annotations

from hypothesis import strategies as st

from projections.graph import Recovery, TaskNode, VerifyPredicate
from tests.projections.graph.graph_oracle import Node

STRATEGIES = st.sampled_from(["abort", "retry", "skip", "ask"])
NODES_MAX = 8


@st.composite
def new_nodes(draw: st.DrawFn, first: int, most: int) -> list[Node]:
    """Draw nodes that may depend on any before them, some with gates, recoveries and strategies of their own."""
    count = draw(st.integers(1, most))
    nodes = []
    for number in range(first, first + count):
        deps = draw(st.lists(st.integers(0, number - 1), unique=True, max_size=3)) if number else []
        gated = draw(st.integers(0, 3)) == 0
        injection = "instead" if not gated and draw(st.integers(0, 7)) == 0 else None
        nodes.append(
            Node(
                deps,
                draw(st.none() | STRATEGIES),
                draw(st.none() | st.integers(0, 2)),
                draw(st.integers(0, 3)) == 0,
                gated,
                injection,
            )
        )
    targets = [first + n for n, node in enumerate(nodes) if not node.deps]
    for number, node in enumerate(nodes, first):
        if node.gated or node.injection is not None or not targets or draw(st.integers(0, 2)):
            continue
        target = draw(st.sampled_from(targets))
        upstream = ancestors(number, nodes, first)
        taken = target == number or target in upstream or nodes[target - first].route is not None
        if not taken and all(nodes[n - first].route is None for n in upstream | {number} if n >= first):
            node.route = target
            targets.remove(target)
    chained = {node.route for node in nodes} - {None}
    for number, node in enumerate(nodes, first):
        if number in chained:
            node.route = None
    return nodes


def ancestors(number: int, nodes: list[Node], first: int) -> set[int]:
    """Return everything that a node waits for, through dependencies and fallbacks."""
    found: set[int] = set()
    front = [number]
    while front:
        current = front.pop()
        waits = list(nodes[current - first].deps) if current >= first else []
        waits += [first + n for n, node in enumerate(nodes) if node.route == current]
        for other in waits:
            if other not in found:
                found.add(other)
                front.append(other)
    return found


def as_task(number: int, node: Node) -> TaskNode:
    recovery = None
    if node.injection is not None or node.route is not None:
        recovery = Recovery(state_injection=node.injection, route_to=node.route)
    return TaskNode.new(
        number,
        f"n{number}",
        "",
        depends_on=node.deps,
        failure_strategy=node.strategy,
        max_retries=node.retries,
        execution_mode="sequential" if node.sequential else "parallel",
        verify_predicate=VerifyPredicate.natural("good") if node.gated else None,
        recovery=recovery,
    )
