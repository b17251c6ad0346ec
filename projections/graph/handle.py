"""``run.graphs``: how callers read task graphs and command them. It must never keep anything between two calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, Unpack

from engine.core.command import listed
from engine.core.errors import InvalidValue
from engine.core.handle import Commands, Outcome, Queries
from engine.core.limits import GRAPH_TASKS_MAX
from projections.graph import commands as cmd
from projections.graph import queries
from projections.graph.state import GraphState
from projections.graph.values import (
    Blockage,
    FailCause,
    FailureStrategy,
    GraphOutcome,
    PredicateOutcome,
    RecoveryPolicy,
    Running,
    TaskGraph,
    TaskNode,
    TaskResult,
)

__all__ = ["Context", "GraphCommands", "GraphQueries"]

Json: TypeAlias = Mapping[str, Any]
Handle: TypeAlias = str | Mapping[str, str]


class Context(TypedDict, total=False):
    """What every command may be given beside its arguments: an id that makes it repeatable, who commands, when, and
    what led to it."""

    command_id: str | None
    actor: str | None
    at_ms: int | None
    cause: int | str | None


class GraphQueries(Queries[GraphState]):
    """The reading side, at one position of the run."""

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all graphs, in order of creation."""
        return self._ask(lambda state: tuple(str(graph) for graph in state.graphs.rows))

    def get(self, graph: str) -> TaskGraph:
        """Return a graph with all its nodes. Raises NotFound."""
        return self._ask(lambda state: queries.get(state, graph))

    def node(self, graph: str, node: int) -> TaskNode:
        """Return one node. Raises NotFound."""
        return self._ask(lambda state: queries.node(state, graph, node))

    def outcome(self, graph: str) -> GraphOutcome | None:
        """Return how the graph ended, or None while it has not; a completed one never hides a failed node."""
        return self._ask(lambda state: queries.outcome(state, graph))

    def counts(self, graph: str) -> dict[str, int]:
        """Return how many nodes have each status. Raises NotFound."""
        return self._ask(lambda state: queries.counts(state, graph))

    def ready(self, graph: str, limit: int | None = None) -> tuple[int, ...]:
        """Return the ready nodes by id, the first ``limit`` of them if one is given (1 or more)."""
        return self._ask(lambda state: queries.ready(state, graph, limit))

    def dispatchable(self, graph: str, limit: int | None = None) -> tuple[int, ...]:
        """Return ready nodes that could all be dispatched now: none while a person holds the graph, and one sequential
        node at most."""
        return self._ask(lambda state: queries.dispatchable(state, graph, limit))

    def running(self, graph: str) -> tuple[Running, ...]:
        """Return the running nodes with their live attempts: what to attach to, or to give up, after a crash."""
        return self._ask(lambda state: queries.running(state, graph))

    def awaiting(self, graph: str) -> tuple[int, ...]:
        """Return the completed nodes whose output is still to be judged."""
        return self._ask(lambda state: queries.awaiting(state, graph))

    def blocked(self, graph: str) -> tuple[Blockage, ...]:
        """Return every reason why a node that is not terminal does not run."""
        return self._ask(lambda state: queries.blocked(state, graph))

    def why(self, graph: str, node: int) -> tuple[Blockage, ...]:
        """Return every reason why one node does not run."""
        return self._ask(lambda state: queries.why(state, graph, node))


class GraphCommands(GraphQueries, Commands[GraphState]):
    """The commanding side. A command is one commit with all its consequences, or it is refused and changes nothing.

    Each also takes the keywords of :class:`Context`, returns an Outcome, and raises Refused (naming what is allowed),
    NotFound, Conflict or BackendUnavailable.
    """

    # -- growing ----------------------------------------------------------------------------------------------------

    def create(
        self,
        graph_id: str,
        goal: str,
        nodes: Sequence[TaskNode | Json],
        default_failure_strategy: FailureStrategy = "abort",
        default_max_retries: int = 3,
        max_tasks: int = GRAPH_TASKS_MAX,
        predicate_reruns: int = cmd.PREDICATE_RERUNS,
        extra: Json | None = None,
        **context: Unpack[Context],
    ) -> Outcome:
        """Make a graph of new nodes. Raises ImportRefused naming every rule that they break.

        ``predicate_reruns`` is the graph's budget of re-runs after failed predicates, over all its nodes.
        """
        command = cmd.Create.make(
            graph=graph_id,
            goal=goal,
            nodes=listed(nodes, "nodes"),
            default_failure_strategy=default_failure_strategy,
            default_max_retries=default_max_retries,
            max_tasks=max_tasks,
            predicate_reruns=predicate_reruns,
            extra={} if extra is None else extra,
        )
        return self._submit(command, **context)

    def import_graph(
        self,
        record: TaskGraph | Json,
        max_tasks: int = GRAPH_TASKS_MAX,
        predicate_reruns: int = cmd.PREDICATE_RERUNS,
        **context: Unpack[Context],
    ) -> Outcome:
        """Take over a whole graph record under its own id, with the life it has lived elsewhere. Raises ImportRefused
        naming every rule that it breaks."""
        plain = cmd.plain(record)
        graph = plain.get("id") if type(plain) is dict else None
        command = cmd.ImportGraph.make(
            graph=graph, record=plain, max_tasks=max_tasks, predicate_reruns=predicate_reruns
        )
        return self._submit(command, **context)

    def inject(self, graph: str, nodes: Sequence[TaskNode | Json], **context: Unpack[Context]) -> Outcome:
        """Add new nodes, whose ids go on from the last one. Raises ImportRefused and leaves the graph as it was."""
        return self._submit(cmd.Inject.make(graph=graph, nodes=listed(nodes, "nodes")), **context)

    # -- the graph --------------------------------------------------------------------------------------------------

    def start(self, graph: str, **context: Unpack[Context]) -> Outcome:
        """Let nodes be dispatched; those that wait for nothing become ready."""
        return self._submit(cmd.Start.make(graph=graph), **context)

    def pause(self, graph: str, **context: Unpack[Context]) -> Outcome:
        """Hold the graph: nothing new is dispatched; what runs goes on and is recorded."""
        return self._submit(cmd.Pause.make(graph=graph), **context)

    def resume(self, graph: str, **context: Unpack[Context]) -> Outcome:
        """Let the graph go on; nothing is run again by itself. The event names the failed nodes that still wait for an
        answer. Refused, naming them, when nothing can go on without one."""
        return self._submit(cmd.Resume.make(graph=graph), **context)

    def cancel_graph(self, graph: str, **context: Unpack[Context]) -> Outcome:
        """End the graph and every node that is not terminal."""
        return self._submit(cmd.CancelGraph.make(graph=graph), **context)

    def retry_graph(self, graph: str, **context: Unpack[Context]) -> Outcome:
        """Take a graph up again: what failed is ready, what was canceled or skipped pending, what completed stays."""
        return self._submit(cmd.RetryGraph.make(graph=graph), **context)

    def recover(self, graph: str, policy: RecoveryPolicy = "keep", **context: Unpack[Context]) -> Outcome:
        """Say after a crash what becomes of the running nodes: ``keep`` them (attach again by handle), ``requeue``
        them (their attempts end as unknown, no retry is consumed) or ``fail`` them (their strategies apply)."""
        return self._submit(cmd.Recover.make(graph=graph, policy=policy), **context)

    # -- attempts ---------------------------------------------------------------------------------------------------

    def dispatch(
        self,
        graph: str,
        node: int,
        handle: Handle | None = None,
        agent: str | None = None,
        *,
        task: str | None = None,
        **context: Unpack[Context],
    ) -> Outcome:
        """Begin an attempt on a ready node under the host's own handle, or following a task of this run."""
        command = cmd.Dispatch.make(graph=graph, node=node, handle=_handle(handle, task), agent=agent)
        return self._submit(command, **context)

    def defer(
        self,
        graph: str,
        node: int,
        reason: str | None = None,
        *,
        attempt: int | None = None,
        handle: Handle | None = None,
        task: str | None = None,
        **context: Unpack[Context],
    ) -> Outcome:
        """Give the live attempt back (for want of a place, say); no retry is consumed."""
        command = cmd.Defer.make(graph=graph, node=node, attempt=attempt, handle=_handle(handle, task), reason=reason)
        return self._submit(command, **context)

    def complete(
        self,
        graph: str,
        node: int,
        result: TaskResult | Json | str = "",
        *,
        attempt: int | None = None,
        handle: Handle | None = None,
        task: str | None = None,
        **context: Unpack[Context],
    ) -> Outcome:
        """End the live attempt well, naming it. Text is an output whose duration is worked out."""
        command = cmd.Complete.make(
            graph=graph, node=node, attempt=attempt, handle=_handle(handle, task), result=result
        )
        return self._submit(command, **context)

    def fail(
        self,
        graph: str,
        node: int,
        why: FailCause = "error",
        error: str | None = None,
        *,
        attempt: int | None = None,
        handle: Handle | None = None,
        task: str | None = None,
        **context: Unpack[Context],
    ) -> Outcome:
        """End the live attempt badly, naming it; retries, recovery and strategy follow in the same commit."""
        command = cmd.Fail.make(
            graph=graph, node=node, attempt=attempt, handle=_handle(handle, task), why=why, error=error
        )
        return self._submit(command, **context)

    def record_predicate(
        self,
        graph: str,
        node: int,
        outcome: PredicateOutcome | Json,
        *,
        attempt: int | None = None,
        **context: Unpack[Context],
    ) -> Outcome:
        """Record the verdict on a completed node's output; name the attempt to be safe from late verdicts."""
        return self._submit(cmd.Judge.make(graph=graph, node=node, outcome=outcome, attempt=attempt), **context)

    # -- what a person does -----------------------------------------------------------------------------------------

    def retry(self, graph: str, node: int, **context: Unpack[Context]) -> Outcome:
        """Re-arm a failed node; its count of retries is 0 again. A graph paused only to ask about it goes on."""
        return self._submit(cmd.Retry.make(graph=graph, node=node), **context)

    def skip(self, graph: str, node: int, **context: Unpack[Context]) -> Outcome:
        """Skip a node that is not running, with everything that waits for it; the graph goes on without them."""
        return self._submit(cmd.Skip.make(graph=graph, node=node), **context)

    def cancel(self, graph: str, node: int, **context: Unpack[Context]) -> Outcome:
        """Stop one node. Whatever depends on it can never run and ends the graph as a deadlock; see :meth:`skip`."""
        return self._submit(cmd.Cancel.make(graph=graph, node=node), **context)

    def correct(self, graph: str, node: int, reason: str, **context: Unpack[Context]) -> Outcome:
        """Fail a completed node afterwards; every node that used its output is marked tainted."""
        return self._submit(cmd.Correct.make(graph=graph, node=node, reason=reason), **context)


def _handle(handle: Handle | None, task: str | None) -> Handle | None:
    """Return the one name of an attempt that was given."""
    if handle is not None and task is not None:
        raise InvalidValue("task", "an attempt has a handle or follows a task, not both", hint="give one of the two")
    return handle if task is None else {"task": task}
