"""What the tests of task graphs share: a run without a store, graphs in one line, and the laws every state must keep.

It must never ask the projection's indexes whether they are right: the laws are checked by scanning all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.core.codec import decode, encode
from engine.core.decider import Moment, fingerprint_of
from engine.core.envelope import Event, group_of
from engine.core.errors import EngineError
from engine.core.handle import Outcome
from engine.core.model import Model
from engine.core.state import ModelState
from projections.graph import PROJECTION, GraphCommands, GraphState, TaskGraph, TaskNode

MODEL = Model((PROJECTION,))
TERMINAL = {"completed", "failed", "skipped", "canceled"}


class Bench:
    """One run of task graphs in memory; time goes on by one a command. Every refusal is checked to change nothing,
    unless the bench is not ``strict`` because that check scans everything."""

    def __init__(self, model: Model = MODEL, *, strict: bool = True) -> None:
        self.model = model
        self.strict = strict
        self.state: ModelState = model.initial()
        self.wires: list[list[Any]] = []
        self.commits: list[int] = []
        self.times: list[int] = []
        """When each event was recorded."""
        self.now = 1_000
        self.graphs = GraphCommands(lambda question: question(self.part), self.submit)

    @property
    def part(self) -> GraphState:
        part: GraphState = self.state.parts["graph"]
        return part

    def submit(
        self,
        command: Any,
        *,
        command_id: str | None = None,
        actor: str | None = None,
        at_ms: int | None = None,
        cause: int | str | None = None,
    ) -> Outcome:
        fingerprint_of(command)
        self.now += 1
        moment = Moment("run", self.state.seq + 1, self.now if at_ms is None else at_ms, actor)
        return self._commit(lambda: self.model.decide(self.state, command, moment))

    def ingest(self, name: str, **data: Any) -> Outcome:
        """Record a fact that another runtime decided; it happened now unless it says when."""
        self.now += 1
        if "at_ms" in self.model.catalog.by_name[name].names:
            data.setdefault("at_ms", self.now)
        wire = self.model.catalog.check(name, data)
        moment = Moment("run", self.state.seq + 1, self.now)
        return self._commit(lambda: self.model.admit(self.state, [wire], moment))

    def _commit(self, decide: Callable[[], Sequence[Any]]) -> Outcome:
        before = self.state.bytes() if self.strict else b""
        first = self.state.begin()
        try:
            wires = list(decide())
        except EngineError:
            self.state.put_back(first)
            assert not self.strict or self.state.bytes() == before, "a refusal changed the state"
            raise
        self.state.keep()
        self.wires += decode(encode(wires))  # as the journal would give them back, sharing nothing
        self.times += [self.now] * len(wires)
        self.commits.append(len(self.wires))
        return Outcome(self.state.seq, len(wires), lambda: self.events(first))

    def events(self, after: int = 0) -> list[Event]:
        """Return the events after a position."""
        events = []
        for seq, wire in enumerate(self.wires[after:], after + 1):
            event_type = self.model.catalog.by_tag[wire[0]]
            cause = seq - wire[1] if wire[1] else None
            events.append(Event(seq, event_type.name, 0, None, None, cause, event_type.data(wire)))
        return events

    def node(self, number: int, graph: str = "g") -> TaskNode:
        return self.graphs.node(graph, number)

    def statuses(self, graph: str = "g") -> list[str]:
        return [node.status for node in self.graphs.get(graph).nodes]

    def status(self, graph: str = "g") -> str:
        return self.graphs.get(graph).status


def plan(*dependencies: Sequence[int], first: int = 0, **common: Any) -> list[TaskNode]:
    """Return new nodes, one for each list of dependencies; ``common`` fields hold for all of them."""
    return [
        TaskNode.new(number, f"node {number}", f"do {number}", depends_on=tuple(needs), **common)
        for number, needs in enumerate(dependencies, first)
    ]


def started(*dependencies: Sequence[int], nodes: list[TaskNode] | None = None, **options: Any) -> Bench:
    """Return a bench whose graph ``g`` runs; not a strict one when the graph is large."""
    bench = Bench(strict=len(nodes or dependencies) < 1_000)
    bench.graphs.create("g", "reach it", plan(*dependencies) if nodes is None else nodes, **options)
    bench.graphs.start("g")
    return bench


def run_node(bench: Bench, number: int, output: str = "done", graph: str = "g") -> Outcome:
    """Dispatch a node and complete it."""
    bench.graphs.dispatch(graph, number, agent="a")
    return bench.graphs.complete(graph, number, output, attempt=len(bench.node(number, graph).attempts))


def fail_node(bench: Bench, number: int, why: Any = "error", graph: str = "g") -> Outcome:
    """Dispatch a node and fail it."""
    bench.graphs.dispatch(graph, number, agent="a")
    return bench.graphs.fail(graph, number, why, "it broke", attempt=len(bench.node(number, graph).attempts))


class Visits(dict[Any, Any]):
    """A dict that counts how often an entry is read or written."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.count = 0

    def __getitem__(self, key: Any) -> Any:
        self.count += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self.count += 1
        return super().get(key, default)

    def __iter__(self) -> Any:
        self.count += len(self)
        return super().__iter__()

    def items(self) -> Any:
        self.count += len(self)
        return super().items()

    def values(self) -> Any:
        self.count += len(self)
        return super().values()


# -- laws -------------------------------------------------------------------------------------------------------------


def fold(wires: Sequence[list[Any]], model: Model = MODEL) -> ModelState:
    """Return the state that events fold into, from nothing."""
    state = model.initial()
    state.apply([group_of(0, None, None, None, None, [decode(encode(wire)) for wire in wires])])
    return state


def reloaded(state: ModelState, model: Model = MODEL) -> ModelState:
    """Return a state made of another's dumped records, as a checkpoint would give it back."""
    other = model.initial()
    for name, table in state.tables.items():
        for key, row in table.rows.items():
            dumped = decode(encode([key, row.dump()]))
            loaded_key = tuple(dumped[0]) if isinstance(dumped[0], list) else dumped[0]
            other.tables[name].rows[loaded_key] = table.load(dumped[1])
    other.seq = state.seq
    other.reindex()
    return other


def derived(part: GraphState) -> Any:
    """Return everything derived, as plain values to compare."""
    indexes = {
        graph: (
            index.size, index.reruns, index.unneeded, {s: sorted(m) for s, m in index.members.items()},
            index.dependents, dict(index.fallback), dict(index.unmet), sorted(index.gates), sorted(index.due),
            sorted(index.stale), sorted(index.awaiting), sorted(index.asking), sorted(index.sequential),
        )
        for graph, index in part.indexes.items()
    }  # fmt: skip
    return indexes, dict(part.by_task)


def check_fold(bench: Bench) -> None:
    """Live state, folded state and reloaded state are the same bytes with the same indexes."""
    again = fold(bench.wires)
    assert again.bytes() == bench.state.bytes()
    assert derived(again.parts["graph"]) == derived(bench.part)
    loaded = reloaded(bench.state)
    assert loaded.bytes() == bench.state.bytes()
    assert derived(loaded.parts["graph"]) == derived(bench.part)


def check_rest(graph: TaskGraph) -> None:
    """The state is at rest: nothing more follows from it, and nothing in it contradicts itself. Scans all nodes."""
    nodes = graph.nodes

    def opened(number: int) -> bool:
        node = nodes[number]
        gated = node.verify_predicate is not None
        passed = node.predicate_outcome is not None and node.predicate_outcome.passed
        return node.status == "completed" and (not gated or passed)

    fallbacks = {node.recovery.route_to for node in nodes if node.recovery and node.recovery.route_to is not None}
    statuses = [node.status for node in nodes]
    left = [number for number, status in enumerate(statuses) if status not in TERMINAL]
    awaiting = [
        node.id
        for node in nodes
        if node.status == "completed" and node.verify_predicate is not None and node.predicate_outcome is None
    ]
    if graph.status in ("completed", "failed", "canceled"):
        assert not left, f"{graph.status} with open nodes {left}"
        assert graph.finished_at is not None
    else:
        assert graph.finished_at is None
    for node in nodes:
        waits = [dependency for dependency in node.depends_on if not opened(dependency)]
        if graph.status in ("running", "paused"):
            assert not (node.status == "pending" and not waits), f"node {node.id} should be ready or parked"
            assert not (node.status == "ready" and waits), f"node {node.id} is ready and waits for {waits}"
        if node.status == "dormant":
            assert node.id in fallbacks
        live = [attempt for attempt in node.attempts if attempt.outcome is None]
        assert len(live) == (node.status == "running"), f"node {node.id} is {node.status} with live {live}"
        assert [attempt.number for attempt in node.attempts] == list(range(1, len(node.attempts) + 1))
        if node.status in ("pending", "ready", "running", "dormant"):
            assert node.result is None and node.cause is None and node.predicate_outcome is None
    if graph.status == "running":
        moving = "ready" in statuses or "running" in statuses or awaiting
        assert moving, "a running graph in which nothing can ever happen"
    if graph.status == "completed":
        assert not awaiting
    sequential = [n for n in nodes if n.status == "running" and n.execution_mode == "sequential"]
    assert len(sequential) <= 1
