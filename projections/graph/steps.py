"""The steps of a graph's life: one function for each thing that can be done to a graph or a node, with everything that
follows from it. It must never read a command: ``decider`` and ``admit`` turn commands and facts into calls of these.

Each function asks the life cycle first, then its own guards, then emits its event and settles the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.catalog import EventType
from engine.core.errors import IllegalTransition, InvalidValue, Refused
from engine.core.transition import allowed
from projections.graph import events as ev
from projections.graph.cascade import answer_failure, cancel_open, resume_if_answered, settle, skip_tree, taint
from projections.graph.fields import OVER
from projections.graph.scratch import Scratch
from projections.graph.state import GraphRow, ProgressRow
from projections.graph.transitions import GRAPH, GRAPH_STEPS, NODE, NODE_STEPS

__all__ = [
    "attempt_started", "cancel", "cancel_graph", "complete", "correct", "defer", "dispatch", "fail", "judge", "opened",
    "pause", "recover", "require_graph", "requeue", "require_node", "resume", "retry", "retry_graph", "skip", "start",
]  # fmt: skip


# -- guards -----------------------------------------------------------------------------------------------------------


def whole(plan: Scratch, graph: str) -> GraphRow:
    """Return a graph that has all its nodes. Raises NotFound, and Refused for a run cut inside the graph's creation."""
    row = plan.graph(graph)
    if row.missing:
        raise Refused(
            f"graph {graph!r} is incomplete: {row.missing} of its nodes are still to come",
            hint="this run was cut inside the commit that made the graph; take a later position",
            graph=graph,
        )
    return row


def require_graph(plan: Scratch, graph: str, event_type: EventType) -> GraphRow:
    """Return a graph whose life cycle allows the event. Raises NotFound, IllegalTransition."""
    row = whole(plan, graph)
    if (row.status, event_type.name) not in GRAPH_STEPS:
        raise IllegalTransition(f"graph {graph!r}", row.status, event_type.name, allowed(GRAPH, row.status))
    return row


def opened(plan: Scratch, graph: str, event_type: EventType, *statuses: str) -> GraphRow:
    """Return a graph in one of the statuses (running or paused, if none is given) in which a node's event may
    happen."""
    row = whole(plan, graph)
    if row.status not in (statuses or ("running", "paused")):
        hint = {
            "created": f"start graph {graph!r} first",
            "paused": f"resume graph {graph!r} first",
        }.get(row.status, f"graph {graph!r} is over; graphs.retry_graph takes it up again")
        raise IllegalTransition(f"graph {graph!r}", row.status, event_type.name, allowed(GRAPH, row.status), hint=hint)
    return row


def require_node(plan: Scratch, graph: str, number: int, event_type: EventType) -> ProgressRow:
    """Return the progress of a node whose life cycle allows the event. Raises NotFound, IllegalTransition."""
    row = plan.at(graph, number)
    if (row.status, event_type.name) not in NODE_STEPS:
        raise IllegalTransition(
            f"node {number} of graph {graph!r}", row.status, event_type.name, allowed(NODE, row.status)
        )
    return row


def require_live(plan: Scratch, graph: str, number: int, attempt: int, event_type: EventType) -> ProgressRow:
    """Return the progress of a running node whose live attempt is the one named: a late one must not end another."""
    row = require_node(plan, graph, number, event_type)
    if attempt != row.attempts:
        raise Refused(
            f"attempt {attempt} of node {number} in graph {graph!r} is not live; attempt {row.attempts} is",
            hint="a late report of an attempt that has ended is dropped; only the live attempt can end itself",
            graph=graph,
            node=number,
            attempt=attempt,
            live=row.attempts,
        )
    return row


def require_free(plan: Scratch, task: str | None) -> None:
    """Raise Refused for a task that already carries a live attempt."""
    if task is not None and task in plan.by_task:
        graph, number, _ = plan.by_task[task]
        hint = "one task, one live attempt"
        raise Refused(f"task {task!r} already carries node {number} of graph {graph!r}", hint=hint, task=task)


def require_free_tasks(plan: Scratch, attempts: Sequence[Mapping[str, Any]]) -> None:
    """Raise Refused if a live one of the attempt records follows a task that already carries another."""
    for attempt in attempts:
        if attempt["outcome"] is None and isinstance(attempt["handle"], dict):
            require_free(plan, attempt["handle"]["task"])


# -- the graph --------------------------------------------------------------------------------------------------------


def start(plan: Scratch, graph: str) -> None:
    """Begin: fallbacks go to sleep, what waits for nothing becomes ready."""
    require_graph(plan, graph, ev.GRAPH_STARTED)
    settle(plan, graph, plan.emit(ev.GRAPH_STARTED, graph, plan.at_ms))


def pause(plan: Scratch, graph: str) -> None:
    """Hold the graph: nothing is dispatched until it is resumed; what runs goes on."""
    require_graph(plan, graph, ev.GRAPH_PAUSED)
    plan.emit(ev.GRAPH_PAUSED, graph, "person", None, plan.at_ms)


def resume(plan: Scratch, graph: str) -> None:
    """Let the graph go on, naming the failed nodes that still wait for an answer. Nothing is run again by itself.

    Refused when nothing at all can go on before they have one.
    """
    require_graph(plan, graph, ev.GRAPH_RESUMED)
    blocked = sorted(plan.index(graph).asking)
    settle(plan, graph, plan.emit(ev.GRAPH_RESUMED, graph, blocked, plan.at_ms))
    if plan.graph(graph).status == "paused":
        named = ", ".join(str(number) for number in blocked)
        raise Refused(
            f"graph {graph!r} cannot go on before failed node {named} has an answer",
            hint="answer with graphs.retry or graphs.skip, or end it with graphs.cancel_graph",
            graph=graph,
            blocked_by=blocked,
        )


def cancel_graph(plan: Scratch, graph: str) -> None:
    """End the graph and every node of it that is not terminal."""
    require_graph(plan, graph, ev.GRAPH_CANCELED)
    cancel_open(plan, graph, "person", plan.emit(ev.GRAPH_CANCELED, graph, plan.at_ms))


def retry_graph(plan: Scratch, graph: str) -> None:
    """Take the graph up again: failed nodes are ready, canceled and skipped ones pending; what completed stays.

    A failed node whose fallback completed has its answer and stays too; any other fallback goes back to sleep.
    """
    over = require_graph(plan, graph, ev.GRAPH_RETRIED).status in OVER
    index = plan.index(graph)
    cause = plan.emit(ev.GRAPH_RETRIED, graph, plan.at_ms)
    members = index.members
    for number in sorted(members["running"]) if over else ():  # only in a run cut inside the cascade that ended it
        plan.emit(ev.NODE_REQUEUED, graph, number, plan.at(graph, number).attempts, plan.at_ms, cause=cause)
    failed = [number for number in sorted(members["failed"]) if not _answered(plan, graph, number)]
    again = [number for number in failed if number not in index.fallback]
    reset = sorted([*members["canceled"], *members["skipped"], *(n for n in failed if n in index.fallback)])
    if not again and all(plan.at(graph, number).cause == "unneeded" for number in reset):
        raise Refused(
            f"nothing in graph {graph!r} can be retried: no node is failed, canceled or skipped",
            hint="a completed node that turned out wrong is corrected with graphs.correct",
            graph=graph,
        )
    for number in reset:
        plan.emit(ev.NODE_RESET, graph, number, cause=cause)
    for number in again:
        plan.emit(ev.NODE_RETRIED, graph, number, 0, "person", cause=cause)
    settle(plan, graph, cause)


def _answered(plan: Scratch, graph: str, number: int) -> bool:
    """Whether a failed node's fallback has completed in its place."""
    target = plan.node(graph, number).route_to
    return target is not None and plan.at(graph, target).status == "completed"


def recover(plan: Scratch, graph: str, policy: str) -> None:
    """After a crash, say what becomes of the running nodes: kept with their attempts, requeued, or failed."""
    require_graph(plan, graph, ev.GRAPH_RECOVERED)
    running = sorted(plan.index(graph).members["running"])
    cause = plan.emit(ev.GRAPH_RECOVERED, graph, policy, plan.at_ms)
    for number in running:
        row = plan.at(graph, number)
        if row.status != "running" or policy == "keep":
            continue  # canceled by the failure of an earlier one
        if policy == "requeue":
            plan.emit(ev.NODE_REQUEUED, graph, number, row.attempts, plan.at_ms, cause=cause)
        else:
            error = "the attempt was lost in a crash"
            failed = plan.emit(ev.NODE_FAILED, graph, number, row.attempts, "crash", error, plan.at_ms, cause=cause)
            answer_failure(plan, graph, number, failed)
    settle(plan, graph, cause)


# -- a node's attempt -------------------------------------------------------------------------------------------------


def dispatch(plan: Scratch, graph: str, number: int, handle: str | None, task: str | None, agent: str | None) -> None:
    """Begin an attempt. Refused for a second sequential node, and while a person holds the graph."""
    row = opened(plan, graph, ev.NODE_DISPATCHED)
    if row.held:
        opened(plan, graph, ev.NODE_DISPATCHED, "running")
    progress = require_node(plan, graph, number, ev.NODE_DISPATCHED)
    index = plan.index(graph)
    if plan.node(graph, number).execution_mode == "sequential" and index.sequential:
        other = min(index.sequential)
        raise Refused(
            f"node {number} of graph {graph!r} is sequential, and sequential node {other} is running",
            hint=f"dispatch it when node {other} has ended",
            graph=graph,
            node=number,
            running=other,
        )
    if handle is not None and task is not None:
        raise InvalidValue("handle", "an attempt has a handle or follows a task, not both")
    require_free(plan, task)
    plan.emit(ev.NODE_DISPATCHED, graph, number, progress.attempts + 1, handle, task, agent, plan.at_ms)


def attempt_started(plan: Scratch, graph: str, number: int, attempt: int) -> None:
    """Note that the task which the live attempt follows began to run; once an attempt."""
    require_live(plan, graph, number, attempt, ev.NODE_ATTEMPT_STARTED)
    record = plan.attempts.get((graph, number, attempt))
    if record is not None and not record.begun:
        plan.emit(ev.NODE_ATTEMPT_STARTED, graph, number, attempt, plan.at_ms)


def defer(plan: Scratch, graph: str, number: int, attempt: int, reason: str | None) -> None:
    """Give the live attempt back: the node is ready again and no retry is consumed."""
    opened(plan, graph, ev.NODE_DEFERRED)
    require_live(plan, graph, number, attempt, ev.NODE_DEFERRED)
    settle(plan, graph, plan.emit(ev.NODE_DEFERRED, graph, number, attempt, reason, plan.at_ms))


def requeue(plan: Scratch, graph: str, number: int, attempt: int) -> None:
    """Give up an attempt of which nothing is known any more."""
    opened(plan, graph, ev.NODE_REQUEUED)
    require_live(plan, graph, number, attempt, ev.NODE_REQUEUED)
    settle(plan, graph, plan.emit(ev.NODE_REQUEUED, graph, number, attempt, plan.at_ms))


def complete(plan: Scratch, graph: str, number: int, attempt: int, result: dict[str, Any]) -> None:
    """End the live attempt well. A node with a predicate then awaits its verdict; its dependents go on waiting."""
    opened(plan, graph, ev.NODE_COMPLETED)
    require_live(plan, graph, number, attempt, ev.NODE_COMPLETED)
    cause = plan.emit(ev.NODE_COMPLETED, graph, number, attempt, result, plan.at_ms)
    settle(plan, graph, cause)


def fail(plan: Scratch, graph: str, number: int, attempt: int, why: str, error: str | None) -> None:
    """End the live attempt badly, and apply what the graph says about that."""
    opened(plan, graph, ev.NODE_FAILED)
    require_live(plan, graph, number, attempt, ev.NODE_FAILED)
    cause = plan.emit(ev.NODE_FAILED, graph, number, attempt, why, error, plan.at_ms)
    answer_failure(plan, graph, number, cause)
    settle(plan, graph, cause)


def judge(plan: Scratch, graph: str, number: int, outcome: dict[str, Any]) -> None:
    """Record the verdict on a node's output: open its gate, run it again within the graph's budget, or fail it."""
    row = opened(plan, graph, ev.NODE_PREDICATE_RECORDED)
    progress = require_node(plan, graph, number, ev.NODE_PREDICATE_RECORDED)
    index = plan.index(graph)
    if number not in index.awaiting:
        gated = plan.node(graph, number).verify_predicate is not None
        problem = "has its verdict already" if gated else "has no verify_predicate"
        raise Refused(
            f"node {number} of graph {graph!r} {problem}", hint="a verdict is recorded once, after each completion"
        )
    cause = plan.emit(ev.NODE_PREDICATE_RECORDED, graph, number, progress.attempts, outcome, plan.at_ms)
    if not outcome["passed"]:
        if index.reruns < row.predicate_reruns:
            count = plan.at(graph, number).predicate_rerun_count + 1
            plan.emit(ev.NODE_RERUN, graph, number, count, cause=cause)
        else:
            failed = plan.emit(ev.NODE_REJECTED, graph, number, progress.attempts, outcome["reason"], cause=cause)
            answer_failure(plan, graph, number, failed)
    settle(plan, graph, cause)


# -- what a person does to a node -------------------------------------------------------------------------------------


def retry(plan: Scratch, graph: str, number: int) -> None:
    """Re-arm a failed node with a fresh count of retries. A graph that was paused only to ask about it goes on."""
    opened(plan, graph, ev.NODE_RETRIED)
    require_node(plan, graph, number, ev.NODE_RETRIED)
    cause = plan.emit(ev.NODE_RETRIED, graph, number, 0, "person")
    resume_if_answered(plan, graph, cause)
    settle(plan, graph, cause)


def skip(plan: Scratch, graph: str, number: int) -> None:
    """Skip a node that does not run, and everything that waits for it; the graph goes on without them."""
    opened(plan, graph, ev.NODE_SKIPPED, "created", "running", "paused")
    require_node(plan, graph, number, ev.NODE_SKIPPED)
    cause = len(plan.events) + 1
    skip_tree(plan, graph, number, "person", 0)
    resume_if_answered(plan, graph, cause)
    settle(plan, graph, cause)


def cancel(plan: Scratch, graph: str, number: int) -> None:
    """Stop one node. What depends on it can never run: skip it instead, if the graph is to go on without it."""
    opened(plan, graph, ev.NODE_CANCELED, "created", "running", "paused")
    require_node(plan, graph, number, ev.NODE_CANCELED)
    settle(plan, graph, plan.emit(ev.NODE_CANCELED, graph, number, "person", plan.at_ms))


def correct(plan: Scratch, graph: str, number: int, reason: str) -> None:
    """Fail a completed node afterwards and mark every node that used its output; in a graph that is not over, the
    node's strategy then applies."""
    row = whole(plan, graph)
    require_node(plan, graph, number, ev.NODE_CORRECTED)
    cause = plan.emit(ev.NODE_CORRECTED, graph, number, reason, plan.at_ms)
    taint(plan, graph, number, cause)
    if row.status in ("running", "paused"):
        answer_failure(plan, graph, number, cause)
        settle(plan, graph, cause)
