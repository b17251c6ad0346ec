"""Contexts: the durable memory of conversations, folded from events. A conversation must never depend on another
one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.core.catalog import EventType, Upcast, Wire
from engine.core.decider import Evolve, Moment
from engine.core.table import Key
from projections.contexts.compaction import CompactionPlan
from projections.contexts.context_state import ContextState
from projections.contexts.decider import decide
from projections.contexts.events import EVENTS, MESSAGES_AT
from projections.contexts.evolve import EVOLVE, own_body
from projections.contexts.handle import ContextCommands, ContextQueries
from projections.contexts.legality import admit
from projections.contexts.message import AssistantMsg, Msg, NoteMsg, SystemMsg, ToolCall, ToolMsg, UserMsg, load_message
from projections.contexts.plan import Binding, Plan, PlanItem
from projections.contexts.reactions import guard_attach, settle_bound_items, settle_on_bind
from projections.contexts.record import RecordRead, from_record, to_record
from projections.contexts.state import ContextsState
from projections.contexts.summary import SkillRef, Summary
from projections.contexts.values import Violation

__all__ = [
    "PROJECTION",
    "AssistantMsg",
    "Binding",
    "CompactionPlan",
    "ContextCommands",
    "ContextQueries",
    "ContextState",
    "Msg",
    "NoteMsg",
    "Plan",
    "PlanItem",
    "RecordRead",
    "SkillRef",
    "Summary",
    "SystemMsg",
    "ToolCall",
    "ToolMsg",
    "UserMsg",
    "Violation",
    "from_record",
    "guard_attach",
    "load_message",
    "settle_bound_items",
    "settle_on_bind",
    "to_record",
]


class ContextsProjection:
    """The projection of conversations; stateless."""

    name: str = "contexts"
    state_version: int = 1
    events: tuple[EventType, ...] = EVENTS
    upcasts: tuple[Upcast, ...] = ()
    evolve: Mapping[str, Evolve] = EVOLVE

    def initial(self) -> ContextsState:
        """Return the state without a conversation."""
        return ContextsState()

    def decide(self, state: ContextsState, command: Any, moment: Moment) -> Sequence[Wire]:
        """Return the events of a command; see the decider."""
        return decide(state, command, moment)

    def admit(self, state: ContextsState, wire: Wire, moment: Moment) -> Sequence[Wire]:
        """Return a fact of another runtime when it is legal here."""
        return admit(state, wire, moment)

    def resolve(self, table_name: str, key: Key, wire: Wire, seq: int, index: int) -> list[Any]:
        """Return what the dump of a message's record is, from the event that brought it: a checkpoint stores only
        where that is."""
        assert table_name == "messages", f"{table_name} stores its records whole"
        return [seq, index, own_body(wire[MESSAGES_AT[wire[0]]][index], wire[3])]


PROJECTION: Final = ContextsProjection()
