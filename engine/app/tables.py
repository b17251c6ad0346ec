"""Tables of what a run holds and of what has changed in it. It must never read a run; it lays out what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from engine.app.output import print_table, when

if TYPE_CHECKING:
    from engine.changes import FieldChange
    from engine.core.envelope import Event
    from engine.diff import Change
    from engine.why import Step
    from projections.contexts import ContextState
    from projections.graph import TaskGraph
    from projections.swarm import TaskContext

__all__ = [
    "print_changes",
    "print_context",
    "print_contexts",
    "print_differences",
    "print_graph",
    "print_graphs",
    "print_steps",
    "print_swarm",
]

_CHARS_MAX = 100
_EMPTY: tuple[Any, ...] = (None, [], {}, 0, "", False)


def shown(value: Any) -> str:
    """Return a value on one short line: words as they are, everything else as JSON."""
    plain = isinstance(value, str) and value != ""
    text: str = value if plain else json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text if len(text) <= _CHARS_MAX else text[: _CHARS_MAX - 1] + "…"


def cause_of(row: Event | Step) -> str | None:
    """Return what led to an event: ``#12`` for an event, a command's id or a text as it is."""
    return f"#{row.cause}" if isinstance(row.cause, int) else row.cause


# -- what happened ----------------------------------------------------------------------------------------------------


def print_changes(rows: Iterable[tuple[Event, Sequence[FieldChange]]]) -> None:
    """Print events, a row an event, with what each changed in place of its data."""
    cells = []
    for event, changes in rows:
        by = (event.actor, event.command_id, cause_of(event))
        cells.append((event.seq, when(event.recorded_at_ms), event.type, *by, in_words(changes)))
    columns = ("seq", "time (UTC)", "event", "actor", "command", "cause", "changes")
    print_table(columns, cells, right=("seq",))


def in_words(changes: Sequence[FieldChange]) -> str:
    """Return changes as ``root.lifecycle: running -> suspended``; a record that came as ``fetch is new: ...``."""
    by_record: dict[tuple[str, str], list[FieldChange]] = {}
    for change in changes:
        by_record.setdefault((change.kind, change.id), []).append(change)
    words = []
    for of_one in by_record.values():
        if all(change.before is None for change in of_one) and len(of_one) > 3:
            says = [c for c in of_one if c.after not in _EMPTY and c.after != c.id]
            told = ", ".join(f"{c.field} {shown(_told(c.after))}" for c in says)
            words.append(f"{of_one[0].subject} is new: {told}")
        else:
            words += [f"{c.subject}.{c.field}: {shown(c.before)} -> {shown(c.after)}" for c in of_one]
    return "; ".join(words)


def print_steps(steps: Iterable[Step]) -> None:
    """Print the steps that led to a state, oldest first."""
    cells = [(step.seq, step.actor, cause_of(step), step.type, step.text) for step in steps]
    print_table(("seq", "actor", "cause", "event", "what"), cells, right=("seq",))


def print_differences(changes: Iterable[Change]) -> None:
    """Print the differences of two states, a row a field."""
    cells = [
        (
            f"{change.kind} {change.id}" if change.kind != change.id else change.kind,
            change.what,
            change.path,
            None if change.what == "added" else shown(change.before if change.path else _told(change.before)),
            None if change.what == "removed" else shown(change.after if change.path else _told(change.after)),
        )
        for change in changes
    ]
    print_table(("record", "what", "field", "before", "after"), cells)


def _told(record: Any) -> Any:
    """Return a record without the fields that say nothing."""
    return {name: value for name, value in record.items() if value not in _EMPTY} if type(record) is dict else record


# -- what there is ----------------------------------------------------------------------------------------------------


def print_contexts(contexts: Mapping[str, ContextState]) -> None:
    """Print conversations, a row each."""
    cells = [
        (
            context,
            state.kind,
            state.version,
            len(state.messages),
            state.est_tokens,
            state.model_window or None,
            state.turns,
            state.task,
            None if state.plan is None else state.plan.goal,
            when(state.updated),
        )
        for context, state in contexts.items()
    ]
    columns = ("context", "kind", "version", "messages", "tokens", "window", "turns", "task", "plan", "updated (UTC)")
    print_table(columns, cells, right=("version", "messages", "tokens", "window", "turns"))


def print_context(context: str, state: ContextState) -> None:
    """Print one conversation: its line, and its messages."""
    print_contexts({context: state})
    click.echo()
    cells = [
        (index, message.role, None if message.ts is None else when(message.ts), _said(message.to_json()))
        for index, message in enumerate(state.messages)
    ]
    print_table(("message", "role", "time (UTC)", "content"), cells, right=("message",))


def _said(message: Mapping[str, Any]) -> str:
    parts = [message.get("text"), message.get("content"), message.get("tool_calls")]
    return " ".join(shown(part) for part in parts if part is not None)


def print_graphs(graphs: Iterable[TaskGraph]) -> None:
    """Print task graphs, a row each."""
    cells = []
    for graph in graphs:
        counts: dict[str, int] = {}
        for node in graph.nodes:
            counts[node.status] = counts.get(node.status, 0) + 1
        by_status = ", ".join(f"{count} {status}" for status, count in counts.items())
        created = when(graph.created_at)
        cells.append((graph.id, graph.goal, graph.status, graph.outcome, len(graph.nodes), by_status, created))
    print_table(("graph", "goal", "status", "outcome", "nodes", "of them", "created (UTC)"), cells, right=("nodes",))


def print_graph(graph: TaskGraph) -> None:
    """Print one task graph: its line, and its nodes."""
    print_graphs((graph,))
    click.echo()
    cells = [
        (
            node.id,
            node.title,
            node.status if node.cause is None else f"{node.status} ({node.cause})",
            ", ".join(map(str, node.depends_on)),
            node.execution_mode,
            node.assigned_agent,
            len(node.attempts),
            node.retry_count,
        )
        for node in graph.nodes
    ]
    columns = ("node", "title", "status", "depends on", "mode", "agent", "attempts", "retries")
    print_table(columns, cells, right=("node", "attempts", "retries"))


def print_swarm(swarm: TaskContext) -> None:
    """Print a swarm: its line, and its workers."""
    done = f"{len(swarm.done_workers)} of {len(swarm.workers)} workers done"
    rates = f"success rate {swarm.success_rate:.4g}, progress {swarm.progress:.4g}"
    click.echo(f"swarm at tick {swarm.tick}: {rates}, {done}, {len(swarm.escalations)} escalations open\n")
    reasons = {worker: escalation.to_record()["reason"] for worker, escalation in swarm.escalations}
    cells = [
        (
            worker,
            summary.phase,
            summary.last_action,
            {True: "yes", False: "no", None: None}[summary.last_success],
            summary.consecutive_failures,
            summary.history_len,
            shown(reasons[worker]) if worker in reasons else None,
        )
        for worker, summary in swarm.workers.items()
    ]
    columns = ("worker", "phase", "last action", "succeeded", "failures", "actions", "escalation")
    print_table(columns, cells, right=("worker", "failures", "actions"))
