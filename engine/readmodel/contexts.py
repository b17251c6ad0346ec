"""The tables of conversations: their headers, and every message that was ever said. Reading a header's row must never
cost what the conversation's length costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.core.envelope import Event
from engine.readmodel.rows import Rows
from engine.readmodel.shape import Column, Foreign, Index, SqlTable
from engine.readmodel.values import as_json, json_or_null
from projections.contexts import load_message
from projections.contexts.events import COMPACTED, IMPORTED, MESSAGES_APPENDED
from projections.contexts.state import ContextsState

__all__ = ["CONTEXTS", "MESSAGES", "ContextCollector"]

CONTEXTS: Final = SqlTable(
    "contexts",
    "Every conversation's record, without its messages.",
    (
        Column("run", "text", "the run"),
        Column("context", "text", "the conversation"),
        Column("number", "whole", "its place in the order of creation, from 0"),
        Column("kind", "text", "root or conversation"),
        Column("version", "whole", "goes up with every compaction"),
        Column("summary", "json", "what folded messages came to: goals, decisions, open, facts, narrative"),
        Column("message_count", "whole", "its live messages"),
        Column("est_tokens", "whole", "about how many tokens a turn reads"),
        Column("model_window", "whole", "how many tokens the model takes; 0 is unknown"),
        Column("turns", "whole", "turns begun"),
        Column("created_ms", "whole", "when it began, Unix milliseconds"),
        Column("updated_ms", "whole", "when it was last changed"),
        Column("principal", "text", "who called first", null=True),
        Column("task_id", "text", "the task its work is attached to; an imported one may be in no table", null=True),
        Column("skills", "json", "the loaded skills with their hashes, in the order of loading"),
        Column("plan", "json", "the plan: goal, items, ...", null=True),
        Column("preflight", "json", "the preflight verdict", null=True),
        Column("extra", "json", "keys of an imported record that refold does not know", null=True),
        Column("changed_seq", "whole", "the last event of the conversation"),
    ),
    ("run", "context"),
    (Foreign(("run",), "runs"), Foreign(("run", "changed_seq"), "events")),
    (Index(("run", "task_id"), sparse=True),),
)

MESSAGES: Final = SqlTable(
    "messages",
    "Every message, those that a compaction folded too: they keep their text and say which event folded them.",
    (
        Column("id", "whole", "a row number for the full-text index; a rebuild may give another one"),
        Column("run", "text", "the run"),
        Column("context", "text", "the conversation"),
        Column("place", "whole", "its place in the conversation, from 0; folding changes no place"),
        Column("seq", "whole", "the event that brought it"),
        Column("position_in_event", "whole", "its place among the messages of that event, from 0"),
        Column("role", "text", "system, user, assistant, tool or note"),
        Column("ts_ms", "whole", "when it was said, Unix milliseconds"),
        Column("text", "text", "what was said; NULL for tool results", null=True),
        Column("principal", "text", "who said it, for users", null=True),
        Column("tool_calls", "json", "the calls of an assistant: id, name, arguments; NULL for none", null=True),
        Column("call_id", "text", "the call that a tool result answers", null=True),
        Column("tool_name", "text", "the tool that gave a result", null=True),
        Column("content", "json", "a tool result", null=True),
        Column("is_error", "bool", "whether a tool result is an error", null=True),
        Column("extra", "json", "keys that refold does not know", null=True),
        Column("folded_seq", "whole", "the event that folded it; NULL while it is live", null=True),
    ),
    ("run", "context", "place"),
    (Foreign(("run", "context"), "contexts"), Foreign(("run", "seq"), "events")),
    (Index(("run", "seq")),),
    search=("text", "tool_calls", "tool_name", "content"),
)

_KNOWN: Final[Mapping[str, frozenset[str]]] = {
    role: frozenset(("role", "ts", *keys))
    for role, keys in {
        "system": ("text",),
        "note": ("text",),
        "user": ("text", "principal"),
        "assistant": ("text", "tool_calls"),
        "tool": ("id", "name", "content", "is_error"),
    }.items()
}
"""What each role's record holds besides keys that refold does not know."""

_FOLD: Final = "UPDATE messages SET folded_seq = ? WHERE run = ? AND context = ? AND place BETWEEN ? AND ?"


class ContextCollector:
    """Follows the conversations."""

    def __init__(self, run_id: str, state: ContextsState) -> None:
        self._run = run_id
        self._state = state
        self._changed: dict[str, int] = {}
        self._messages: list[tuple[Any, ...]] = []
        self._folds: list[tuple[Any, ...]] = []

    def before(self) -> None:
        """Nothing to remember: a message once said never changes."""

    def after(self, event: Event) -> None:
        for table in self._state.tables:
            table.changed.clear()  # nobody takes checkpoints of this state
        context = event.data["context"]
        self._changed[context] = event.seq
        name = event.type.partition("/")[0]
        header = self._state.contexts.rows[context]
        if name in (MESSAGES_APPENDED.name, IMPORTED.name):
            for place in range(header.next - len(event.data["messages"]), header.next):
                self._messages.append(self._message(context, header.number, place))
        elif name == COMPACTED.name:
            first = header.first - event.data["fold"]
            self._folds.append((event.seq, self._run, context, first, header.first - 1))

    def _message(self, context: str, number: int, place: int) -> tuple[Any, ...]:
        record = self._state.messages.rows[number, place]
        shape = load_message(record.body).to_json()
        role = shape["role"]
        unknown = {key: value for key, value in shape.items() if key not in _KNOWN[role]}
        known = {key: value for key, value in shape.items() if key in _KNOWN[role]}
        return (
            self._run,
            context,
            place,
            record.seq,
            record.index,
            role,
            known["ts"],
            known.get("text"),
            known.get("principal"),
            json_or_null(known.get("tool_calls")),
            known.get("id"),
            known.get("name"),
            as_json(known["content"]) if role == "tool" else None,
            known.get("is_error"),
            json_or_null(unknown or None),
            None,
        )

    def write(self, rows: Rows) -> None:
        rows.upsert(CONTEXTS, (self._row(context, seq) for context, seq in self._changed.items()))
        rows.insert(MESSAGES, self._messages)
        for fold in self._folds:  # after the messages: one may have been said and folded between two writes
            rows.run(_FOLD, fold)
        self._changed, self._messages, self._folds = {}, [], []

    def _row(self, context: str, changed: int) -> tuple[Any, ...]:
        state = self._state
        header, plan = state.contexts.rows[context], state.plan(context)
        return (
            self._run,
            context,
            header.number,
            header.kind,
            header.version,
            as_json(state.summary(context).to_json()),
            header.next - header.first,
            header.est_tokens,
            header.model_window,
            header.turns,
            header.created,
            header.updated,
            header.principal,
            header.task,
            as_json([skill.to_json() for skill in state.loaded(context)]),
            None if plan is None else as_json(plan.to_json()),
            json_or_null(state.preflight(context)),
            json_or_null(state.extra(context)),
            changed,
        )
