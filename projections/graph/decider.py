"""Deciding: each command becomes steps, or is refused. It must never change the state; steps are played out on a
scratch layer, and a command that repeats exactly what already is gives no events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.core.catalog import Wire
from engine.core.decider import Moment
from engine.core.errors import InvalidValue, Refused
from projections.graph import commands as cmd
from projections.graph import growth, steps
from projections.graph.scratch import Scratch
from projections.graph.state import AttemptRow, GraphState

__all__ = ["decide", "result_record"]


def decide(state: GraphState, command: cmd.GraphCommand, moment: Moment) -> list[Wire]:
    """Return the events that follow from a command, [] when it repeats what already is. Raises Refused, NotFound."""
    plan = Scratch(state, moment)
    _DECIDERS[type(command)](plan, command)
    return plan.events


# -- graphs -----------------------------------------------------------------------------------------------------------


def _create(plan: Scratch, c: cmd.Create) -> None:
    head = [c.goal, c.default_failure_strategy, c.default_max_retries, c.max_tasks, c.predicate_reruns]
    growth.create(plan, c.graph, head, c.nodes, c.extra)


def _start(plan: Scratch, c: cmd.Start) -> None:
    if plan.graph(c.graph).status != "running":
        steps.start(plan, c.graph)


def _pause(plan: Scratch, c: cmd.Pause) -> None:
    if not plan.graph(c.graph).held:
        steps.pause(plan, c.graph)


def _resume(plan: Scratch, c: cmd.Resume) -> None:
    if plan.graph(c.graph).status != "running":
        steps.resume(plan, c.graph)


def _cancel_graph(plan: Scratch, c: cmd.CancelGraph) -> None:
    if plan.graph(c.graph).status != "canceled":
        steps.cancel_graph(plan, c.graph)


def _recover(plan: Scratch, c: cmd.Recover) -> None:
    row, index = plan.graph(c.graph), plan.index(c.graph)
    # Only a run cut inside a commit is not at rest: what was cut off follows now.
    at_rest = (row.status == "paused" or index.moving) and not index.due and not index.stale
    over = row.status not in ("running", "paused")
    if over or index.members["running"] or not at_rest:
        steps.recover(plan, c.graph, c.policy)


# -- attempts ---------------------------------------------------------------------------------------------------------


def _split(handle: Any) -> tuple[str | None, str | None]:
    """Return (handle, task) of a handle as callers give it."""
    return (None, handle["task"]) if isinstance(handle, dict) else (handle, None)


def _attempt(plan: Scratch, graph: str, node: int, number: int) -> AttemptRow | None:
    return plan.attempts.get((graph, node, number))


def _named(plan: Scratch, c: cmd.AttemptCommand) -> int:
    """Return the number of the attempt that a command names, by number, handle or task; the latest of that name."""
    count = plan.at(c.graph, c.node).attempts
    if c.attempt is None and c.handle is None:
        raise InvalidValue(
            "attempt", "name the attempt", hint="attempt=<number>, or handle=<what it was dispatched with>"
        )
    number = c.attempt
    if c.handle is not None:
        handle, task = _split(c.handle)
        for number in range(count, 0, -1) if c.attempt is None else (c.attempt,):
            row = _attempt(plan, c.graph, c.node, number)
            if row is not None and (row.handle, row.task) == (handle, task):
                return number
        number = None
    if number is None or not 1 <= number <= count:
        named = c.handle if c.handle is not None else c.attempt
        raise Refused(
            f"node {c.node} of graph {c.graph!r} never had an attempt {named!r}",
            hint=f"it had {count}; graphs.running(graph) lists the live ones",
            graph=c.graph,
            node=c.node,
        )
    return number


def _dispatch(plan: Scratch, c: cmd.Dispatch) -> None:
    handle, task = _split(c.handle)
    progress = plan.at(c.graph, c.node)
    if progress.status == "running" and c.handle is not None:
        live = _attempt(plan, c.graph, c.node, progress.attempts)
        if live is not None and (live.handle, live.task, live.agent) == (handle, task, c.agent):
            return
    steps.dispatch(plan, c.graph, c.node, handle, task, c.agent)


def _defer(plan: Scratch, c: cmd.Defer) -> None:
    number = _named(plan, c)
    if not _ended(plan, c, number, "deferred", c.reason):
        steps.defer(plan, c.graph, c.node, number, c.reason)


def _ended(plan: Scratch, c: cmd.AttemptCommand, number: int, outcome: str, error: str | None) -> bool:
    """Whether the attempt has ended exactly so already."""
    row = _attempt(plan, c.graph, c.node, number)
    return row is not None and row.outcome == outcome and row.error == error


def _complete(plan: Scratch, c: cmd.Complete) -> None:
    number = _named(plan, c)
    row = _attempt(plan, c.graph, c.node, number)
    result = result_record(plan, row, c.result)
    progress = plan.at(c.graph, c.node)
    if (
        progress.status == "completed"
        and progress.attempts == number
        and row is not None
        and row.outcome == "completed"
    ):
        stored = plan.results.get((c.graph, c.node))
        if stored is not None and stored.value == result:
            return
    steps.complete(plan, c.graph, c.node, number, result)


def result_record(plan: Scratch, attempt: AttemptRow | None, given: Any) -> dict[str, Any]:
    """Return the result record that text stands for: its output, the attempt's duration, nothing else."""
    if isinstance(given, dict):
        return given
    began = None if attempt is None else attempt.started_ms
    ended = plan.at_ms if attempt is None or attempt.ended_ms is None else attempt.ended_ms
    duration = 0 if began is None else max(0, ended - began)
    return {"output": given, "agent_id": None, "agent_def": None, "artifacts": [], "duration_ms": duration}


def _fail(plan: Scratch, c: cmd.Fail) -> None:
    number = _named(plan, c)
    if not _ended(plan, c, number, c.why, c.error):
        steps.fail(plan, c.graph, c.node, number, c.why, c.error)


def _judge(plan: Scratch, c: cmd.Judge) -> None:
    progress = plan.at(c.graph, c.node)
    if c.attempt is not None and c.attempt != progress.attempts:
        raise Refused(
            f"the verdict is on attempt {c.attempt} of node {c.node} in graph {c.graph!r}; "
            f"the output there is of attempt {progress.attempts}",
            hint="a verdict on an output that was replaced is dropped",
        )
    if progress.status == "completed" and progress.predicate_outcome == c.outcome:
        return
    row = _attempt(plan, c.graph, c.node, progress.attempts)
    if row is not None and row.outcome == "predicate" and not c.outcome["passed"] and row.error == c.outcome["reason"]:
        return  # it sent the node into another run, or failed it, already
    steps.judge(plan, c.graph, c.node, c.outcome)


# -- people -----------------------------------------------------------------------------------------------------------


def _skip(plan: Scratch, c: cmd.Skip) -> None:
    if plan.at(c.graph, c.node).status != "skipped":
        steps.skip(plan, c.graph, c.node)


def _cancel(plan: Scratch, c: cmd.Cancel) -> None:
    if plan.at(c.graph, c.node).status != "canceled":
        steps.cancel(plan, c.graph, c.node)


def _correct(plan: Scratch, c: cmd.Correct) -> None:
    progress = plan.at(c.graph, c.node)
    row = _attempt(plan, c.graph, c.node, progress.attempts)
    if progress.status == "failed" and progress.cause == "corrected" and row is not None and row.error == c.reason:
        return
    steps.correct(plan, c.graph, c.node, c.reason)


_DECIDERS: Final[dict[type[Any], Callable[[Scratch, Any], None]]] = {
    cmd.Create: _create,
    cmd.ImportGraph: lambda plan, c: growth.import_graph(plan, c.graph, c.record, c.max_tasks, c.predicate_reruns),
    cmd.Inject: lambda plan, c: growth.inject(plan, c.graph, c.nodes),
    cmd.Start: _start,
    cmd.Pause: _pause,
    cmd.Resume: _resume,
    cmd.CancelGraph: _cancel_graph,
    cmd.RetryGraph: lambda plan, c: steps.retry_graph(plan, c.graph),
    cmd.Recover: _recover,
    cmd.Dispatch: _dispatch,
    cmd.Defer: _defer,
    cmd.Complete: _complete,
    cmd.Fail: _fail,
    cmd.Judge: _judge,
    cmd.Retry: lambda plan, c: steps.retry(plan, c.graph, c.node),
    cmd.Skip: _skip,
    cmd.Cancel: _cancel,
    cmd.Correct: _correct,
}
