"""What must hold before an event of a conversation, read from the transition tables; and admitting facts that another
runtime decided. It must never change the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from engine.core.catalog import Wire
from engine.core.decider import Moment
from engine.core.errors import IllegalTransition, InvalidValue, LimitExceeded, NotFound, Refused
from engine.core.limits import U64_MAX
from engine.core.transition import Transition, allowed
from projections.contexts import events as fact
from projections.contexts.compaction import check_fold
from projections.contexts.state import ContextRecord, ContextsState
from projections.contexts.summary import Summary
from projections.contexts.transitions import CONTEXT_STEPS, ITEM_STEPS, PLAN_STEPS, PRINCIPAL_STEPS, TASK_STEPS

__all__ = ["admit", "check_counters", "header_of", "require"]


def header_of(state: ContextsState, context: str) -> ContextRecord:
    """Return the header for reading. Raises NotFound naming the context."""
    header = state.contexts.get(context)
    if header is None:
        raise NotFound(f"there is no context {context!r}", hint="create it first, or look at ids()", context=context)
    return header


# -- the tables -------------------------------------------------------------------------------------------------------


class _Facet:
    """One life cycle of a conversation: its table, and how to tell the state it is in."""

    def __init__(
        self, what: str, steps: Iterable[Transition], source: Callable[[ContextsState, str], str | None]
    ) -> None:
        self.what = what
        self.source = source
        steps = tuple(step for step in steps if step.event not in _FIRST)
        self.legal = {state: allowed(steps, state) for state in {step.source for step in steps}}
        self.events = {step.event for step in steps}

    def require(self, state: ContextsState, event: str, context: str) -> None:
        source = self.source(state, context)
        legal = self.legal.get(source, [])
        if event not in legal:
            raise IllegalTransition(f"the {self.what} of context {context!r}", source or "absent", event, legal)


_FIRST: Final = (fact.CREATED.name, fact.IMPORTED.name)
"""Events that bring the whole conversation: they concern its parts, and need nothing of them."""

_FACETS: Final = (
    _Facet("plan", PLAN_STEPS, lambda state, context: "drawn" if context in state.plans else None),
    _Facet("task", TASK_STEPS, lambda state, context: _if_set("attached", header_of(state, context).task)),
    _Facet("caller", PRINCIPAL_STEPS, lambda state, context: _if_set("known", header_of(state, context).principal)),
)
_LEGAL: Final = {source: frozenset(allowed(CONTEXT_STEPS, source)) for source in (None, "open")}
_ITEM: Final = {step.source: frozenset(allowed(ITEM_STEPS, step.source)) for step in ITEM_STEPS}


def _if_set(source: str, value: str | None) -> str | None:
    return None if value is None else source


def require(state: ContextsState, event: str, context: str) -> None:
    """Refuse an event that the tables do not allow for this conversation as it is now.

    Raises NotFound when it needs a conversation, IllegalTransition when the conversation or a part of it is in another
    state.
    """
    source = "open" if context in state.contexts else None
    if event not in _LEGAL[source]:
        header_of(state, context)
        raise IllegalTransition(f"context {context!r}", "open", event, sorted(_LEGAL["open"]))
    for facet in _FACETS:
        if event in facet.events:
            facet.require(state, event, context)


def check_counters(header: ContextRecord, summary: Summary, fold: int) -> None:
    """Refuse a compaction that would take a counter of an imported record past what can be stored."""
    for value in (header.version + 1, summary.covers_messages + fold):
        if value > U64_MAX:
            raise LimitExceeded("U64_MAX", value, U64_MAX)


# -- facts of other runtimes ------------------------------------------------------------------------------------------


def admit(state: ContextsState, wire: Wire, moment: Moment) -> list[Wire]:
    """Return the fact if the same tables and rules that decide our own events allow it here; raise Refused
    otherwise.

    Items that we have settled ourselves, because their task is done, may come again from the other runtime's log: when
    it says the same of them, it adds nothing.
    """
    event_type = _BY_TAG[wire[0]]
    require(state, event_type.name, wire[2])
    if event_type is fact.PLAN_ITEMS_SETTLED and _are_settled(state, wire):
        return []
    check = _CHECKS.get(event_type.name)
    if check is not None:
        check(state, wire)
    return [wire]


def _messages_appended(state: ContextsState, wire: Wire) -> None:
    if not wire[4]:
        raise InvalidValue("context.messages_appended.messages", "holds no message")


def _skill_unloaded(state: ContextsState, wire: Wire) -> None:
    if all(skill.name != wire[4] for skill in state.loaded(wire[2])):
        raise Refused(f"skill {wire[4]!r} is not loaded in context {wire[2]!r}", rule="not_loaded")


def _plan_updated(state: ContextsState, wire: Wire) -> None:
    _, _, context, _, items, order, _ = wire
    changed = [item[0] for item in items]
    if len(set(changed)) != len(changed):
        raise InvalidValue("context.plan_updated.items", "names an item twice")
    known = {item.id for item in state.plans.rows[context].value.items}
    if order is not None and set(order) != known | set(changed):
        raise InvalidValue("context.plan_updated.order", "does not name every item once")


def _are_settled(state: ContextsState, wire: Wire) -> bool:
    """Whether every item that the fact names is bound to a task and stands where it says already."""
    _, _, context, _, ids, ok, note = wire
    items = {item.id: item for item in state.plans.rows[context].value.items}
    told = [items[item_id] for item_id in ids if item_id in items]
    status = "done" if ok else "blocked"
    return len(told) == len(ids) > 0 and all(
        item.status == status and note in (None, item.note) and item.bound is not None and item.bound.kind == "task"
        for item in told
    )


def _plan_items_settled(state: ContextsState, wire: Wire) -> None:
    statuses = {item.id: item.status for item in state.plans.rows[wire[2]].value.items}
    if not wire[4]:
        raise InvalidValue("context.plan_items_settled.items", "names no item")
    for item_id in wire[4]:
        if item_id not in statuses:
            raise Refused(f"the plan has no item {item_id}", rule="no_such_item")
        legal = _ITEM[statuses[item_id]]
        if fact.PLAN_ITEMS_SETTLED.name not in legal:
            raise IllegalTransition(
                f"plan item {item_id}", statuses[item_id], fact.PLAN_ITEMS_SETTLED.name, sorted(legal)
            )


def _turn_begun(state: ContextsState, wire: Wire) -> None:
    turns = state.contexts.rows[wire[2]].turns
    if turns >= U64_MAX:
        raise LimitExceeded("U64_MAX", turns + 1, U64_MAX)


def _compacted(state: ContextsState, wire: Wire) -> None:
    _, _, context, _, fold, verdict, _ = wire
    if Summary.load(verdict).says_nothing():
        raise Refused("the verdict is empty: folding under it would erase history", rule="empty_verdict")
    check_fold(state.bodies(context), fold)
    check_counters(state.contexts.rows[context], state.summary(context), fold)


_BY_TAG: Final = {event_type.tag: event_type for event_type in fact.EVENTS}
_CHECKS: Final[Mapping[str, Callable[[ContextsState, Wire], None]]] = {
    "context.messages_appended": _messages_appended,
    "context.skill_unloaded": _skill_unloaded,
    "context.plan_updated": _plan_updated,
    "context.plan_items_settled": _plan_items_settled,
    "context.turn_begun": _turn_begun,
    "context.compacted": _compacted,
}
