"""The tables of what happened: runs, events, and which tasks an event names. A run's row holds the position up to which
every other row is true; it must never be written apart from them."""

from __future__ import annotations

from typing import Any, Final

from engine.core.envelope import Event
from engine.history import subjects
from engine.readmodel.rows import Rows
from engine.readmodel.shape import Column, Foreign, Index, SqlTable
from engine.readmodel.values import data_as_json

__all__ = ["EVENTS", "EVENT_TASKS", "RUNS", "EventCollector"]

RUNS: Final = SqlTable(
    "runs",
    "Every run of the store, and how far this file has followed it. All rows of a run are as of its position.",
    (
        Column("run", "text", "the run's id"),
        Column("position", "whole", "the last event that the rows of this file hold"),
        Column("link", "text", "the journal's hash chain at that position (hex): a run with another past is noticed"),
        Column("origin_run", "text", "for a fork, the run that holds the events before it", null=True),
        Column("origin_position", "whole", "for a fork, the last event it shares with its origin", null=True),
        Column("fault", "text", "why the events after the position cannot be read, if so", null=True),
    ),
    ("run",),
)

EVENTS: Final = SqlTable(
    "events",
    "Every event, lifted to the current version of its type. A fork has the events it shares under its own name too.",
    (
        Column("run", "text", "the run"),
        Column("seq", "whole", "the position, from 1"),
        Column("type", "text", "name and version, such as task.finished/1"),
        Column("name", "text", "the type without its version"),
        Column("prefix", "text", "the name up to the first dot: task, context, graph, node, swarm, run"),
        Column("recorded_at_ms", "whole", "when it was recorded, by the writer's clock, Unix milliseconds"),
        Column("actor", "text", "who gave the command", null=True),
        Column("command_id", "text", "the id of the command", null=True),
        Column("cause_seq", "whole", "the event that led to it", null=True),
        Column("cause", "text", "what led to it, when that is no event: a command id or a text", null=True),
        Column("context", "text", "the conversation, of context.* events", null=True),
        Column("graph", "text", "the graph, of graph.* and node.* events", null=True),
        Column("node", "whole", "the node, of events about one", null=True),
        Column("worker", "whole", "the worker, of swarm.* events about one", null=True),
        Column("data", "json", 'the fields of the event, bytes as in exports: {"$bytes": base64}'),
    ),
    ("run", "seq"),
    (Foreign(("run",), "runs"),),
    (
        Index(("run", "name")),
        Index(("run", "recorded_at_ms")),
        Index(("run", "command_id"), sparse=True),
        Index(("run", "cause_seq"), sparse=True),
        Index(("run", "context"), sparse=True),
        Index(("run", "graph", "node"), sparse=True),
        Index(("run", "worker"), sparse=True),
    ),
)

EVENT_TASKS: Final = SqlTable(
    "event_tasks",
    "Which tasks an event names, in any role: itself, its parent, whom it waits on, whom it wakes, because of whom.",
    (
        Column("run", "text", "the run"),
        Column("seq", "whole", "the event"),
        Column("task_id", "text", "a task it names; a context may name one that is in no table"),
    ),
    ("run", "seq", "task_id"),
    (Foreign(("run", "seq"), "events"),),
    (Index(("run", "task_id", "seq")),),
)


class EventCollector:
    """Gathers the rows of events."""

    def __init__(self, run_id: str) -> None:
        self._run = run_id
        self._events: list[tuple[Any, ...]] = []
        self._tasks: list[tuple[Any, ...]] = []
        self.characters = 0
        """How much JSON text is waiting to be written."""

    def add(self, event: Event) -> None:
        """Take in one event."""
        run, seq, data = self._run, event.seq, event.data
        name = event.type.partition("/")[0]
        prefix = name.partition(".")[0]
        of_graph = prefix in ("graph", "node")
        cause = event.cause
        text = data_as_json(data)
        self.characters += len(text)
        self._events.append(
            (
                run,
                seq,
                event.type,
                name,
                prefix,
                event.recorded_at_ms,
                event.actor,
                event.command_id,
                cause if type(cause) is int else None,
                cause if type(cause) is str else None,
                _if(str, data.get("context")) if prefix == "context" else None,
                _if(str, data.get("graph")) if of_graph else None,
                _if(int, data.get("node")) if of_graph else None,
                _if(int, data.get("worker")) if prefix == "swarm" else None,
                text,
            )
        )
        self._tasks.extend((run, seq, task_id) for task_id in sorted(subjects(event)))

    def write(self, rows: Rows) -> None:
        """Write what was gathered, and forget it."""
        rows.insert(EVENTS, self._events)
        rows.insert(EVENT_TASKS, self._tasks)
        self._events, self._tasks, self.characters = [], [], 0


def _if(kind: type, value: Any) -> Any:
    """Return a value that is of this type, else None: a projection of somebody else's may use the same words."""
    return value if type(value) is kind else None
