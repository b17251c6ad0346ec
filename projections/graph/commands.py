"""The commands of task graphs, validated once at the boundary. A command must never hold a clock reading: the time
comes with the moment, so a command repeated under its id is the same command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import Field, PlainValidator

from engine.core.codec import normalise
from engine.core.command import CommandModel
from engine.core.errors import InvalidValue
from engine.core.fields import ID, JSON_OBJECT, TEXT, U32, FieldType, optional
from engine.core.limits import GRAPH_TASKS_MAX
from projections.graph.fields import HANDLE, OUTCOME, RESULT
from projections.graph.values import FailCause, FailureStrategy, RecoveryPolicy

__all__ = [
    "AttemptCommand", "Cancel", "CancelGraph", "Complete", "Correct", "Create", "Defer", "Dispatch", "Fail",
    "GraphCommand", "ImportGraph", "Inject", "Judge", "NodeCommand", "Pause", "PREDICATE_RERUNS", "Recover", "Resume",
    "Retry", "RetryGraph", "Skip", "Start", "plain",
]  # fmt: skip

PREDICATE_RERUNS = 2
"""Re-runs after failed predicates that a graph allows over all its nodes, unless it says otherwise."""


def plain(value: Any) -> Any:
    """Return the JSON form of a public value, or the value itself."""
    to_json = getattr(value, "to_json", None)
    return value if to_json is None else to_json()


def _checked(field_type: FieldType) -> PlainValidator:
    """Return a validator that takes what an event field of the type takes, and nothing else."""

    def check(value: Any) -> Any:
        try:
            return field_type.check(plain(value))
        except InvalidValue as error:
            raise ValueError(f"{error.path}: {error.problem}" if error.path else error.problem) from None

    return PlainValidator(check)


def _record(value: Any) -> Any:
    """Return a node or graph record as canonical JSON; its rules are checked by the decision, all at once."""
    try:
        return normalise(plain(value), entries_max=GRAPH_TASKS_MAX)
    except InvalidValue as error:
        raise ValueError(f"{error.path}: {error.problem}" if error.path else error.problem) from None


def _result(value: Any) -> Any:
    """Return a result record; text alone is an output whose duration the decision works out."""
    check: Callable[[Any], Any] = TEXT.check if isinstance(value, str) else RESULT.check
    try:
        return check(plain(value))
    except InvalidValue as error:
        raise ValueError(f"{error.path}: {error.problem}" if error.path else error.problem) from None


Id: TypeAlias = Annotated[str, _checked(ID)]
Text: TypeAlias = Annotated[str, _checked(TEXT)]
OptionalText: TypeAlias = Annotated[str | None, _checked(optional(TEXT))]
Number: TypeAlias = Annotated[int, _checked(U32)]
Handle: TypeAlias = Annotated[str | Mapping[str, str] | None, _checked(optional(HANDLE))]
Records: TypeAlias = list[Annotated[Any, PlainValidator(_record)]]


class GraphCommand(CommandModel):
    """A command to a graph."""

    projection: ClassVar[str] = "graph"
    graph: Id


class NodeCommand(GraphCommand):
    """A command to a node."""

    node: Number


class AttemptCommand(NodeCommand):
    """A command about the live attempt of a node, named by its number, by its handle or by the task it follows."""

    attempt: Annotated[int | None, _checked(optional(U32))] = None
    handle: Handle = None


class Create(GraphCommand):
    """A new graph with all its nodes."""

    name: ClassVar[str] = "create"
    goal: Text
    nodes: Records
    default_failure_strategy: FailureStrategy = "abort"
    default_max_retries: Number = 3
    max_tasks: Annotated[int, Field(ge=1, le=GRAPH_TASKS_MAX)] = GRAPH_TASKS_MAX
    predicate_reruns: Number = PREDICATE_RERUNS
    extra: Annotated[dict[str, Any], _checked(JSON_OBJECT)]


class ImportGraph(GraphCommand):
    """A whole graph record from elsewhere, with the life it has lived."""

    name: ClassVar[str] = "import_graph"
    record: Annotated[Any, PlainValidator(_record)]
    max_tasks: Annotated[int, Field(ge=1, le=GRAPH_TASKS_MAX)] = GRAPH_TASKS_MAX
    predicate_reruns: Number = PREDICATE_RERUNS


class Inject(GraphCommand):
    """More nodes for a graph that is not over."""

    name: ClassVar[str] = "inject"
    nodes: Records


class Start(GraphCommand):
    name: ClassVar[str] = "start"


class Pause(GraphCommand):
    name: ClassVar[str] = "pause"


class Resume(GraphCommand):
    name: ClassVar[str] = "resume"


class CancelGraph(GraphCommand):
    name: ClassVar[str] = "cancel_graph"


class RetryGraph(GraphCommand):
    name: ClassVar[str] = "retry_graph"


class Recover(GraphCommand):
    name: ClassVar[str] = "recover"
    policy: RecoveryPolicy = "keep"


class Dispatch(NodeCommand):
    name: ClassVar[str] = "dispatch"
    handle: Handle = None
    agent: OptionalText = None


class Defer(AttemptCommand):
    name: ClassVar[str] = "defer"
    reason: OptionalText = None


class Complete(AttemptCommand):
    name: ClassVar[str] = "complete"
    result: Annotated[Any, PlainValidator(_result)] = ""


class Fail(AttemptCommand):
    name: ClassVar[str] = "fail"
    why: FailCause = "error"
    error: OptionalText = None


class Judge(NodeCommand):
    name: ClassVar[str] = "record_predicate"
    outcome: Annotated[Any, _checked(OUTCOME)]
    attempt: Annotated[int | None, _checked(optional(U32))] = None


class Retry(NodeCommand):
    name: ClassVar[str] = "retry"


class Skip(NodeCommand):
    name: ClassVar[str] = "skip"


class Cancel(NodeCommand):
    name: ClassVar[str] = "cancel"


class Correct(NodeCommand):
    name: ClassVar[str] = "correct"
    reason: Text
