"""The public values of a task graph: immutable copies that callers read, build and serialise. They must never share
anything with the state, and never decide.

Every class reads and writes the JSON form of its shape exactly: a key that is not known here stays in ``extra`` and is
written back, an unknown label is an error that names where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from projections.graph.fields import (
    ATTEMPT_SHAPE,
    GRAPH_SHAPE,
    NODE_SHAPE,
    OUTCOME_SHAPE,
    OVER,
    PREDICATE_SHAPE,
    RECOVERY_SHAPE,
    RESULT_SHAPE,
    TERMINAL,
    TIMEOUT_SHAPE,
    Shape,
)
from projections.graph.left_out import NEWER_KEYS, left_out_of_graph, left_out_of_node, without
from projections.graph.validate import read_graph

__all__ = [
    "Attempt", "Blockage", "ExecutionMode", "FailCause", "FailureStrategy", "GraphOutcome", "GraphStatus", "NodeStatus",
    "PredicateOutcome", "Recovery", "RecoveryPolicy", "Running", "TaskGraph", "TaskNode", "TaskResult",
    "TimeoutPolicy", "VerifyPredicate",
]  # fmt: skip

NodeStatus: TypeAlias = Literal["pending", "ready", "running", "completed", "failed", "skipped", "canceled", "dormant"]
GraphStatus: TypeAlias = Literal["created", "running", "completed", "failed", "canceled", "paused"]
GraphOutcome: TypeAlias = Literal["completed", "completed_with_failures", "failed", "canceled"]
FailureStrategy: TypeAlias = Literal["abort", "retry", "skip", "ask"]
ExecutionMode: TypeAlias = Literal["parallel", "sequential"]
FailCause: TypeAlias = Literal["error", "run_timeout", "idle_timeout", "spawn", "tools"]
RecoveryPolicy: TypeAlias = Literal["keep", "requeue", "fail"]


class _Value:
    """A record with a shape: JSON in, JSON out, unknown keys kept in ``extra``."""

    __slots__ = ()
    SHAPE: ClassVar[Shape]
    extra: Mapping[str, Any]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the value of a JSON record. Raises InvalidValue with the path to the first bad value."""
        return cls.of(cls.SHAPE.check(data))

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of a record that its shape has checked; for use inside the projection."""
        known = {key.name: _frozen(record[key.name]) for key in cls.SHAPE.keys}
        return cls(**known, extra=cls.SHAPE.extra(record))  # type: ignore[call-arg]  # a dataclass in every subclass

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON: every key of the shape, then the unknown ones. Shares nothing."""
        record = {key.name: _plain(getattr(self, key.name)) for key in self.SHAPE.keys}
        return record | self.SHAPE.extra(self.extra)


def _frozen(value: Any) -> Any:
    """Return a list as a tuple, so that nothing handed out can be changed; an object as a copy."""
    if type(value) is list:
        return tuple(_frozen(item) for item in value)
    return dict(value) if type(value) is dict else value


def _plain(value: Any) -> Any:
    """Return the JSON form of an attribute."""
    if isinstance(value, _Value):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(_Value):
    """What an attempt produced. ``artifacts`` are paths or references, ``agent_def`` the definition it ran under."""

    SHAPE: ClassVar[Shape] = RESULT_SHAPE
    output: str
    artifacts: tuple[str, ...] = ()
    duration_ms: int = 0
    agent_id: str | None = None
    agent_def: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPredicate(_Value):
    """The criterion that a node's output must meet before its dependents may consume it."""

    SHAPE: ClassVar[Shape] = PREDICATE_SHAPE
    kind: Literal["natural", "expression"]
    value: str
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def natural(cls, criterion: str) -> VerifyPredicate:
        """Return a criterion in plain language, for a model to judge."""
        return cls(kind="natural", value=criterion)

    @classmethod
    def expression(cls, source: str) -> VerifyPredicate:
        """Return a criterion that the host evaluates."""
        return cls(kind="expression", value=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateOutcome(_Value):
    """The verdict on a node's output; ``confidence`` is in 0..1."""

    SHAPE: ClassVar[Shape] = OUTCOME_SHAPE
    passed: bool
    confidence: float
    reason: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutPolicy(_Value):
    """How long an attempt may run, and how long it may be silent, in seconds. The host measures; the graph records."""

    SHAPE: ClassVar[Shape] = TIMEOUT_SHAPE
    run_timeout_secs: int | None = None
    idle_timeout_secs: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery(_Value):
    """What becomes of a node that failed for good: an output in place of its own, or another node in its place."""

    SHAPE: ClassVar[Shape] = RECOVERY_SHAPE
    state_injection: str | None = None
    route_to: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(_Value):
    """One dispatch of a node. ``outcome`` is None while it is live; ``started_ms`` is when it was dispatched or, for
    an attempt that follows a task, when the task began to run; ``handle`` is the host's text or ``{"task": id}``."""

    SHAPE: ClassVar[Shape] = ATTEMPT_SHAPE
    number: int
    handle: str | Mapping[str, str] | None = field(default=None, hash=False)
    agent: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    outcome: str | None = None
    error: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def task(self) -> str | None:
        """The task of the run that this attempt follows, or None."""
        return None if self.handle is None or isinstance(self.handle, str) else self.handle["task"]


_NODE_PARTS: dict[str, type[_Value]] = {
    "result": TaskResult,
    "verify_predicate": VerifyPredicate,
    "predicate_outcome": PredicateOutcome,
    "timeout": TimeoutPolicy,
    "recovery": Recovery,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNode(_Value):
    """One node of a task graph: the seed's 19 fields, those of newer versions, and ours.

    Ours: ``attempts`` (one record each, so a retry overwrites nothing), ``cause`` (why it is failed, skipped or
    canceled) and ``tainted_by`` (nodes corrected after this one had consumed their output). ``left_out`` are the
    optional keys that its record did not have: they are not written while they hold their default.
    """

    SHAPE: ClassVar[Shape] = NODE_SHAPE
    id: int
    title: str
    description: str
    agent_hint: str | None = None
    status: NodeStatus = "pending"
    depends_on: tuple[int, ...] = ()
    result: TaskResult | None = None
    assigned_agent: str | None = None
    retry_count: int = 0
    predicate_rerun_count: int = 0
    failure_strategy: FailureStrategy | None = None
    max_retries: int | None = None
    execution_mode: ExecutionMode = "parallel"
    verify_predicate: VerifyPredicate | None = None
    predicate_outcome: PredicateOutcome | None = None
    execution_environment: str | None = None
    token_budget_cents: float | None = None
    network_scope: Literal["inherit", "allow", "deny"] | None = None
    asset_sensitivity: Literal["public", "internal", "confidential"] | None = None
    timeout: TimeoutPolicy | None = None
    recovery: Recovery | None = None
    routed_from: int | None = None
    attempts: tuple[Attempt, ...] = ()
    cause: str | None = None
    tainted_by: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    left_out: tuple[str, ...] = field(default=NEWER_KEYS, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("depends_on", "attempts", "tainted_by"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def new(cls, id: int, title: str, description: str, **fields: Any) -> TaskNode:
        """Return a pending node: no dependencies, parallel, every option None, unless ``fields`` says otherwise."""
        return cls(id=id, title=title, description=description, **fields)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the node of a JSON record; :meth:`to_json` gives it back equal. Raises InvalidValue with the path to
        the first bad value."""
        return cls.of(NODE_SHAPE.check(data), left_out_of_node(data))

    @classmethod
    def of(cls, record: Mapping[str, Any], left_out: tuple[str, ...] = NEWER_KEYS) -> Self:
        known: dict[str, Any] = {key.name: _frozen(record[key.name]) for key in NODE_SHAPE.keys}
        for name, part in _NODE_PARTS.items():
            if record[name] is not None:
                known[name] = part.of(record[name])
        known["attempts"] = tuple(Attempt.of(attempt) for attempt in record["attempts"])
        return cls(**known, extra=NODE_SHAPE.extra(record), left_out=left_out)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON: the seed's 19 keys, then the others as far as they hold something; a record
        that came from elsewhere has the keys that it came with."""
        record = {key.name: _plain(getattr(self, key.name)) for key in NODE_SHAPE.keys}
        return without(record, self.left_out) | NODE_SHAPE.extra(self.extra)

    @property
    def is_terminal(self) -> bool:
        """Whether the node is completed, failed, skipped or canceled."""
        return self.status in TERMINAL

    @property
    def live_attempt(self) -> Attempt | None:
        """The attempt that is running now, or None."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.outcome is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph(_Value):
    """A goal and the nodes that reach it; ``nodes[i].id == i``. Times are Unix milliseconds."""

    SHAPE: ClassVar[Shape] = GRAPH_SHAPE
    id: str
    goal: str
    nodes: tuple[TaskNode, ...]
    status: GraphStatus = "created"
    default_failure_strategy: FailureStrategy = "abort"
    default_max_retries: int = 3
    created_at: int = 0
    finished_at: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    left_out: tuple[str, ...] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the graph of a JSON record that keeps every rule; :meth:`to_json` gives it back equal. Raises
        ImportRefused naming every violation."""
        record = read_graph(data)
        left_out = [left_out_of_node(node) for node in data["nodes"]]
        return cls.of(record, left_out_of_graph(data), left_out.__getitem__)

    @classmethod
    def of(
        cls,
        record: Mapping[str, Any],
        left_out: tuple[str, ...] | None = None,
        left_out_of: Callable[[int], tuple[str, ...]] = lambda node: NEWER_KEYS,
    ) -> Self:
        known = {key.name: record[key.name] for key in GRAPH_SHAPE.keys if key.name not in ("nodes", "outcome")}
        nodes = tuple(TaskNode.of(node, left_out_of(number)) for number, node in enumerate(record["nodes"]))
        return cls(**known, nodes=nodes, extra=GRAPH_SHAPE.extra(record), left_out=left_out)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON; ``outcome`` is written when the graph is over. A record that came from
        elsewhere has the keys that it came with, and an outcome as soon as it ends here."""
        record = {key.name: _plain(getattr(self, key.name)) for key in GRAPH_SHAPE.keys}
        absent = self.left_out if self.left_out is not None else () if self.status in OVER else ("outcome",)
        for key in GRAPH_SHAPE.keys:
            if key.name in absent and (key.name == "outcome" or record[key.name] == key.default):
                del record[key.name]
        return record | GRAPH_SHAPE.extra(self.extra)

    @property
    def outcome(self) -> GraphOutcome | None:
        """How the graph ended, or None while it has not. A completed graph never hides a failed, skipped or canceled
        node; a fallback that was not needed is none of these."""
        if self.status not in OVER:
            return None
        if self.status != "completed":
            return self.status  # type: ignore[return-value]  # OVER without completed: failed, canceled
        clean = all(n.status == "completed" or (n.status == "skipped" and n.cause == "unneeded") for n in self.nodes)
        return "completed" if clean else "completed_with_failures"


class Blockage(NamedTuple):
    """One reason why a node does not run: ``on`` is the node it waits for, or None when the graph itself holds it."""

    node: int
    on: int | None
    reason: str


class Running(NamedTuple):
    """A node that runs, with its live attempt: what a host needs to attach to it again."""

    node: int
    attempt: Attempt
