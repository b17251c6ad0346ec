"""Finding the cycles of a task graph and naming each as a path. It must never recurse, nor miss one: every strongly
connected group of nodes gives one path, so all of them are reported at once.

A node waits for its dependencies, and a fallback for the node that routes to it; both count as edges here, since a
cycle through either can never run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["cycles"]


def cycles(nodes: Sequence[Mapping[str, Any]], first: int = 0) -> Iterator[list[int]]:
    """Yield a shortest cycle of each group, from its smallest node back to it, by ascending smallest node.

    Edges to nodes outside ``first``.. and from a node to itself are left out; they are violations of their own.
    """
    waits = _waits(nodes, first)
    groups = [sorted(group) for group in _groups(waits) if len(group) > 1]
    for group in sorted(groups):
        yield _shortest(group[0], frozenset(group), waits)


def _waits(nodes: Sequence[Mapping[str, Any]], first: int) -> dict[int, list[int]]:
    """Return node -> the nodes it waits for, among the given ones."""
    inside = range(first, first + len(nodes))
    waits = {
        number: [other for other in dict.fromkeys(node["depends_on"]) if other != number and other in inside]
        for number, node in enumerate(nodes, first)
    }
    for number, node in enumerate(nodes, first):
        target = None if node["recovery"] is None else node["recovery"]["route_to"]
        if target is not None and target != number and target in inside and number not in waits[target]:
            waits[target].append(number)
    return waits


def _groups(waits: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """Yield the strongly connected groups (Tarjan's algorithm on an explicit stack)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    held: dict[int, None] = {}
    for root in waits:
        if root in order:
            continue
        path = [(root, iter(waits[root]))]
        order[root] = low[root] = len(order)
        held[root] = None
        while path:
            node, rest = path[-1]
            for other in rest:
                if other not in order:
                    order[other] = low[other] = len(order)
                    held[other] = None
                    path.append((other, iter(waits[other])))
                    break
                if other in held:
                    low[node] = min(low[node], order[other])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    group = []
                    while True:
                        member, _ = held.popitem()
                        group.append(member)
                        if member == node:
                            break
                    yield group


def _shortest(start: int, group: frozenset[int], waits: Mapping[int, Sequence[int]]) -> list[int]:
    """Return a shortest path inside the group from ``start`` back to it, by breadth first search."""
    came: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for other in waits[node]:
            if other == start:
                path = [start]
                while node != start:
                    path.append(node)
                    node = came[node]
                return [start, *reversed(path[1:]), start]
            if other in group and other not in came:
                came[other] = node
                queue.append(other)
    raise AssertionError("a strongly connected group of two or more holds a cycle through each member")
