"""The state of all task graphs of a run: six tables and what is derived from them. It must never hold a fact outside
its tables, nor a record that grows with the graph or with the number of attempts.

What a node is (``nodes``) is apart from how it fares (``progress``), from its attempts and from its result, so that a
checkpoint or an undo copies a few dozen bytes for a step, however long the description or the output is. JSON values
inside records are replaced as a whole, never changed in place.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from operator import attrgetter
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeVar

from engine.core.table import Table
from projections.graph.index import GraphIndex

__all__ = [
    "AttemptRow", "GraphRow", "GraphState", "LeftOutRow", "NodeRow", "ProgressRow", "Records", "ResultRow", "Rows",
    "TaskKey",
]  # fmt: skip

TaskKey: TypeAlias = tuple[str, int, int]
"""Graph, node, attempt number."""


class _Row:
    """A record whose dump is its slots in order."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[tuple[str, ...]] = ()
    """The names of the dump's columns."""
    values: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        cls.fields = cls.__slots__
        first, *rest = cls.__slots__
        cls.values = staticmethod(attrgetter(first, *rest))

    def __init__(self, *values: Any) -> None:
        for name, value in zip(self.__slots__, values, strict=True):
            setattr(self, name, value)

    def dump(self) -> list[Any]:
        """Return the record as a list of plain values."""
        return list(self.values(self))

    @classmethod
    def load(cls, dumped: list[Any]) -> Self:
        """Return a record equal to the one dumped."""
        return cls(*dumped)


class GraphRow(_Row):
    """A graph without its nodes. ``missing`` is how many events of its creation or injection are still to come."""

    __slots__ = (
        "goal", "status", "default_failure_strategy", "default_max_retries", "max_tasks", "predicate_reruns",
        "created_at", "finished_at", "held", "missing", "extra",
    )  # fmt: skip
    goal: str
    status: str
    default_failure_strategy: str
    default_max_retries: int
    max_tasks: int
    predicate_reruns: int
    created_at: int
    finished_at: int | None
    held: bool
    missing: int
    extra: dict[str, Any]


class NodeRow(_Row):
    """What a node is; never changes."""

    __slots__ = (
        "title", "description", "depends_on", "agent_hint", "failure_strategy", "max_retries", "execution_mode",
        "verify_predicate", "execution_environment", "token_budget_cents", "network_scope", "asset_sensitivity",
        "timeout", "recovery", "extra",
    )  # fmt: skip
    title: str
    description: str
    depends_on: list[int]
    agent_hint: str | None
    failure_strategy: str | None
    max_retries: int | None
    execution_mode: str
    verify_predicate: dict[str, Any] | None
    execution_environment: str | None
    token_budget_cents: float | None
    network_scope: str | None
    asset_sensitivity: str | None
    timeout: dict[str, Any] | None
    recovery: dict[str, Any] | None
    extra: dict[str, Any]

    @property
    def route_to(self) -> int | None:
        """The node that takes this one's place when it fails for good."""
        return None if self.recovery is None else self.recovery["route_to"]


class ProgressRow(_Row):
    """How a node fares. ``attempts`` counts them; the live one, if the node runs, has that number."""

    __slots__ = (
        "status", "assigned_agent", "retry_count", "predicate_rerun_count", "predicate_outcome", "routed_from",
        "cause", "tainted_by", "attempts", "asking",
    )  # fmt: skip
    status: str
    assigned_agent: str | None
    retry_count: int
    predicate_rerun_count: int
    predicate_outcome: dict[str, Any] | None
    routed_from: int | None
    cause: str | None
    tainted_by: tuple[int, ...]
    attempts: int
    asking: bool

    @classmethod
    def fresh(cls) -> ProgressRow:
        """Return the progress of a new node."""
        return cls("pending", None, 0, 0, None, None, None, (), 0, False)

    @classmethod
    def load(cls, dumped: list[Any]) -> Self:
        row = cls(*dumped)
        row.tainted_by = tuple(row.tainted_by)
        return row


class AttemptRow(_Row):
    """One dispatch of a node; ``outcome`` is None while it is live."""

    __slots__ = ("handle", "task", "agent", "started_ms", "ended_ms", "outcome", "error", "begun", "extra")
    handle: str | None
    task: str | None
    agent: str | None
    started_ms: int | None
    ended_ms: int | None
    outcome: str | None
    error: str | None
    begun: bool
    extra: dict[str, Any]


class ResultRow(_Row):
    """The result of a node, or None when it was cleared for another run."""

    __slots__ = ("value",)
    value: dict[str, Any] | None

    def dump(self) -> list[Any]:
        return [self.value]


class LeftOutRow(_Row):
    """The optional keys that an imported record does not have; for a graph under its id, for a node under its key."""

    __slots__ = ("keys",)
    keys: tuple[str, ...]

    def dump(self) -> list[Any]:
        return [list(self.keys)]

    @classmethod
    def load(cls, dumped: list[Any]) -> Self:
        return cls(tuple(dumped[0]))


R = TypeVar("R")


class Rows(Protocol[R]):
    """What the fold needs of a table: the real one, or the scratch layer over it."""

    def get(self, key: Any) -> R | None: ...
    def edit(self, key: Any) -> R: ...
    def add(self, key: Any, row: R) -> R: ...


class Records(Protocol):
    """What ``evolve`` works on: the state itself, or a decision's scratch copy of what it touches."""

    @property
    def graphs(self) -> Rows[GraphRow]: ...
    @property
    def nodes(self) -> Rows[NodeRow]: ...
    @property
    def progress(self) -> Rows[ProgressRow]: ...
    @property
    def attempts(self) -> Rows[AttemptRow]: ...
    @property
    def results(self) -> Rows[ResultRow]: ...
    @property
    def left_out(self) -> Rows[LeftOutRow]: ...
    @property
    def by_task(self) -> Any: ...
    def index(self, graph: str) -> GraphIndex: ...
    def new_index(self, graph: str) -> None: ...


class GraphState:
    """All graphs of a run."""

    def __init__(self) -> None:
        self.graphs: Table[GraphRow] = Table("graphs", GraphRow)
        self.nodes: Table[NodeRow] = Table("nodes", NodeRow)
        self.progress: Table[ProgressRow] = Table("progress", ProgressRow)
        self.attempts: Table[AttemptRow] = Table("attempts", AttemptRow)
        self.results: Table[ResultRow] = Table("results", ResultRow)
        self.left_out: Table[LeftOutRow] = Table("left_out", LeftOutRow)
        self.tables: tuple[Table[Any], ...] = (
            self.graphs,
            self.nodes,
            self.progress,
            self.attempts,
            self.results,
            self.left_out,
        )
        self.indexes: dict[str, GraphIndex] = {}
        self.by_task: MutableMapping[str, TaskKey] = {}
        """Task -> the live attempt that follows it."""

    def index(self, graph: str) -> GraphIndex:
        """Return what is derived of a graph."""
        return self.indexes[graph]

    def new_index(self, graph: str) -> None:
        """Begin the index of a new graph."""
        self.indexes[graph] = GraphIndex()

    def reindex(self) -> None:
        """Rebuild every index from the tables alone."""
        self.indexes = {str(graph): GraphIndex() for graph in self.graphs.rows}
        self.by_task = {}
        for key, node in self.nodes.rows.items():
            graph, number = _split(key)
            self.indexes[graph].add(number, node.depends_on, node.route_to)
        for key, row in self.progress.rows.items():
            graph, number = _split(key)
            index = self.indexes[graph]
            node = self.nodes.rows[key]
            if row.status != "pending":
                index.move(number, "pending", row.status)
            index.reruns += row.predicate_rerun_count
            if row.status == "completed":
                place_gate(index, number, node, row)
            elif row.status == "running":
                self._index_running(index, (graph, number, row.attempts), node)
            elif row.status == "skipped" and row.cause == "unneeded":
                index.unneeded += 1
            if row.asking:
                index.asking.add(number)

    def _index_running(self, index: GraphIndex, key: TaskKey, node: NodeRow) -> None:
        if node.execution_mode == "sequential":
            index.sequential.add(key[1])
        task = self.attempts.rows[key].task
        if task is not None:
            self.by_task[task] = key


def _split(key: Any) -> tuple[str, int]:
    graph, number = key
    return graph, number


def place_gate(index: GraphIndex, number: int, node: NodeRow, row: ProgressRow) -> None:
    """Put a node's gate where its record says: open when it is completed and its predicate, if any, has passed."""
    completed = row.status == "completed"
    outcome = row.predicate_outcome
    gated = node.verify_predicate is not None
    index.gate(number, completed and (not gated or (outcome is not None and outcome["passed"])))
    if completed and gated and outcome is None:
        index.awaiting.add(number)
    else:
        index.awaiting.discard(number)
