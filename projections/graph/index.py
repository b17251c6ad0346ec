"""What is derived from a graph's records so that no question scans them: who depends on whom, how many dependencies
each node still waits for, and the nodes of each status. It must never hold a fact of its own: ``reindex`` rebuilds it.

The containers of :class:`ScratchIndex` lie over those of the real index and keep only what differs, so that a decision
can play out a cascade and leave the state alone. Both share every line that changes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, MutableMapping, MutableSet
from typing import Any, Generic, TypeVar

from projections.graph.fields import NODE_STATUSES

__all__ = ["GraphIndex", "LayeredDict", "LayeredSet", "OrderedIds", "ScratchIndex"]

K = TypeVar("K")
V = TypeVar("V")
_GONE: Any = object()


class OrderedIds(MutableSet[int]):
    """A set of ids that is always in ascending order: whoever wants the first few lists no more than those."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids = sorted(ids)

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, int):
            return False
        place = bisect_left(self._ids, item)
        return place < len(self._ids) and self._ids[place] == item

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, value: int) -> None:
        ids = self._ids
        if not ids or value > ids[-1]:  # nearly always: nodes become ready in the order of their ids
            ids.append(value)
        elif value not in self:
            ids.insert(bisect_left(ids, value), value)

    def discard(self, value: int) -> None:
        place = bisect_left(self._ids, value)
        if place < len(self._ids) and self._ids[place] == value:
            del self._ids[place]


class LayeredSet(MutableSet[int]):
    """A set that leaves the one beneath it alone."""

    __slots__ = ("added", "base", "gone")

    def __init__(self, base: Collection[int]) -> None:
        self.base = base
        self.added: set[int] = set()
        self.gone: set[int] = set()

    def __contains__(self, item: object) -> bool:
        return item in self.added or (item in self.base and item not in self.gone)

    def __iter__(self) -> Iterator[int]:
        yield from self.added
        if self.base:  # a set that was large once has its large table still, and walking an empty one costs that
            yield from (item for item in self.base if item not in self.gone)

    def __len__(self) -> int:
        return len(self.base) - len(self.gone) + len(self.added)

    def add(self, value: int) -> None:
        if value in self.base:
            self.gone.discard(value)
        else:
            self.added.add(value)

    def discard(self, value: int) -> None:
        self.added.discard(value)
        if value in self.base:
            self.gone.add(value)


class LayeredDict(Generic[K, V]):
    """The few operations of a dict that the index and the records need, leaving the one beneath it alone."""

    __slots__ = ("base", "over")

    def __init__(self, base: Any) -> None:
        self.base = base
        self.over: dict[K, V] = {}

    def __contains__(self, key: K) -> bool:
        found = self.over.get(key)
        return key in self.base if found is None else found is not _GONE

    def __getitem__(self, key: K) -> V:
        found = self.over.get(key)
        if found is None:
            return self.base[key]  # type: ignore[no-any-return]
        if found is _GONE:
            raise KeyError(key)
        return found

    def get(self, key: K, default: Any = None) -> Any:
        found = self.over.get(key)
        if found is None:
            return self.base.get(key, default)
        return default if found is _GONE else found

    def __setitem__(self, key: K, value: V) -> None:
        self.over[key] = value

    def pop(self, key: K, default: Any = None) -> Any:
        found = self.get(key, default)
        self.over[key] = _GONE
        return found


class GraphIndex:
    """The derived side of one graph."""

    __slots__ = (
        "asking", "awaiting", "dependents", "due", "fallback", "gates", "members", "reruns", "sequential", "size",
        "stale", "unmet", "unneeded",
    )  # fmt: skip

    def __init__(self) -> None:
        self.size = 0
        self.reruns = 0
        """Predicate re-runs used, over all nodes."""
        self.unneeded = 0
        """Skipped nodes that were only a fallback, or depended on one, and were not needed."""
        self.members: dict[str, MutableSet[int]] = {status: set() for status in NODE_STATUSES}
        self.members["ready"] = OrderedIds()
        self.dependents: dict[int, list[int]] = {}
        self.fallback: MutableMapping[int, int] = {}
        """Fallback -> the node that routes to it."""
        self.unmet: MutableMapping[int, int] = {}
        """Node -> how many of its dependencies have not opened their gate."""
        self.gates: MutableSet[int] = set()
        """Completed nodes whose output may be consumed."""
        self.due: MutableSet[int] = set()
        """Pending nodes that wait for nothing: to be readied, or parked, by the decision that is being made."""
        self.stale: MutableSet[int] = set()
        """Ready nodes that wait for something again: to be withdrawn by the decision that is being made."""
        self.awaiting: MutableSet[int] = set()
        """Completed nodes with a predicate and no verdict."""
        self.asking: MutableSet[int] = set()
        """Failed nodes about which a person was asked."""
        self.sequential: MutableSet[int] = set()
        """Running nodes of mode sequential."""

    def link(self, node: int, dependency: int) -> None:
        """Note that ``node`` depends on ``dependency``."""
        self.dependents.setdefault(dependency, []).append(node)

    def dependents_of(self, node: int) -> Iterable[int]:
        """Return the nodes that depend on this one, in ascending order."""
        return self.dependents.get(node, ())

    def add(self, node: int, depends_on: Iterable[int], route_to: int | None) -> None:
        """Put a pending node at the next position."""
        self.size = node + 1
        unmet = 0
        for dependency in depends_on:
            self.link(node, dependency)
            if dependency not in self.gates:
                unmet += 1
        self.unmet[node] = unmet
        if route_to is not None:
            self.fallback[route_to] = node
        self.members["pending"].add(node)
        if not unmet:
            self.due.add(node)

    def move(self, node: int, old: str, new: str) -> None:
        """Follow a node from one status to another."""
        members = self.members
        members[old].discard(node)
        members[new].add(node)
        if old == "pending":
            self.due.discard(node)
        elif old == "ready":
            self.stale.discard(node)
        if new == "pending" and not self.unmet[node]:
            self.due.add(node)
        elif new == "ready" and self.unmet[node]:
            self.stale.add(node)

    def gate(self, node: int, opened: bool) -> None:
        """Follow a node's gate; visits its dependents only when that changes."""
        if (node in self.gates) == opened:
            return
        if opened:
            self.gates.add(node)
        else:
            self.gates.discard(node)
        pending, ready, unmet = self.members["pending"], self.members["ready"], self.unmet
        step = -1 if opened else 1
        for dependent in self.dependents_of(node):
            left = unmet[dependent] + step
            unmet[dependent] = left
            if dependent in pending:
                if left:
                    self.due.discard(dependent)
                else:
                    self.due.add(dependent)
            elif dependent in ready:
                if left:
                    self.stale.add(dependent)
                else:
                    self.stale.discard(dependent)

    @property
    def moving(self) -> bool:
        """Whether anything can still change without a person: a node ready, running or awaiting its predicate."""
        members = self.members
        return bool(members["running"] or members["ready"] or self.awaiting)

    def open(self) -> list[int]:
        """Return the nodes that are not terminal, in ascending order."""
        members = self.members
        return sorted([*members["pending"], *members["ready"], *members["running"], *members["dormant"]])

    @property
    def clean(self) -> bool:
        """Whether no node is failed, canceled, or skipped for any reason but not being needed."""
        members = self.members
        return not members["failed"] and not members["canceled"] and len(members["skipped"]) == self.unneeded


class ScratchIndex(GraphIndex):
    """An index over another one: reads through, changes only itself."""

    __slots__ = ("base",)

    def __init__(self, base: GraphIndex) -> None:
        self.base = base
        self.size, self.reruns, self.unneeded = base.size, base.reruns, base.unneeded
        self.members = {status: LayeredSet(nodes) for status, nodes in base.members.items()}
        self.dependents = {}
        self.fallback: Any = LayeredDict(base.fallback)
        self.unmet: Any = LayeredDict(base.unmet)
        self.gates = LayeredSet(base.gates)
        self.due = LayeredSet(base.due)
        self.stale = LayeredSet(base.stale)
        self.awaiting = LayeredSet(base.awaiting)
        self.asking = LayeredSet(base.asking)
        self.sequential = LayeredSet(base.sequential)

    def dependents_of(self, node: int) -> Iterable[int]:
        more = self.dependents.get(node)
        below = self.base.dependents_of(node)
        return below if more is None else [*below, *more]
