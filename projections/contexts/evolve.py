"""The fold of contexts: event name -> function that changes the state in place. It must never refuse, read a clock, or
look at more than the event touches.

The estimate is kept as it goes: every function leaves ``est_tokens`` equal to a recount.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from engine.core.catalog import Wire
from engine.core.decider import Evolve
from engine.core.table import Table
from projections.contexts.context_state import block_tokens
from projections.contexts.message import ASSISTANT, TOOL, body_tokens
from projections.contexts.plan import Plan, PlanItem
from projections.contexts.state import (
    ContextRecord,
    ContextsState,
    JsonRecord,
    MessageRecord,
    PlanRecord,
    SkillsRecord,
    SummaryRecord,
    waiting_tasks,
)
from projections.contexts.summary import SkillRef, Summary
from projections.contexts.values import copy_json

__all__ = ["EVOLVE", "own_body"]


def own_body(message: list[Any], at_ms: int) -> list[Any]:
    """Return a message's array as the state holds it: a copy, with the event's time where the message has none."""
    body = copy_json(message) if message[0] in (ASSISTANT, TOOL) or type(message[-1]) is dict else list(message)
    if body[1] is None:
        body[1] = at_ms
    result: list[Any] = body
    return result


def _open(state: ContextsState, wire: Wire) -> ContextRecord:
    """Return the header for changing, updated at the event's time."""
    header = state.contexts.edit(wire[2])
    header.updated = wire[3]
    return header


def _put(table: Table[Any], kind: type[Any], context: str, value: Any, *, empty: bool) -> None:
    """Store what a context has, or take it away when it is empty."""
    if empty:
        if context in table:
            table.remove(context)
    elif context in table:
        table.edit(context).value = value
    else:
        table.add(context, kind(value))


def _set_plan(state: ContextsState, header: ContextRecord, context: str, plan: Plan | None) -> None:
    """Put another plan in place, and keep the estimate and the index of bound tasks right."""
    old = state.plan(context)
    header.est_tokens += block_tokens(_NO_SUMMARY, plan) - block_tokens(_NO_SUMMARY, old)
    before, after = waiting_tasks(old), waiting_tasks(plan)
    for task in before - after:
        state.bound[task].discard(context)
        if not state.bound[task]:
            del state.bound[task]
    for task in after - before:
        state.bound.setdefault(task, set()).add(context)
    _put(state.plans, PlanRecord, context, plan, empty=plan is None)


def _set_summary(state: ContextsState, header: ContextRecord, context: str, summary: Summary) -> None:
    header.est_tokens += block_tokens(summary, None) - block_tokens(state.summary(context), None)
    _put(state.summaries, SummaryRecord, context, summary, empty=summary == _NO_SUMMARY)


def _set_skills(state: ContextsState, context: str, skills: tuple[SkillRef, ...]) -> None:
    _put(state.skills, SkillsRecord, context, skills, empty=not skills)


def _add_messages(state: ContextsState, header: ContextRecord, messages: list[list[Any]], seq: int, at_ms: int) -> None:
    context, place, tokens = header.number, header.next, 0
    add = state.messages.add
    for index, message in enumerate(messages):
        body = own_body(message, at_ms)
        tokens += body_tokens(body)
        add((context, place), MessageRecord(seq, index, body))
        place += 1
    header.next = place
    header.est_tokens += tokens


_NO_SUMMARY: Final = Summary()

# -- one function an event ------------------------------------------------------------------------------------------


def _created(state: ContextsState, wire: Wire, seq: int) -> None:
    _, _, context, at_ms, kind, window, principal = wire
    number = len(state.contexts)
    state.contexts.add(context, ContextRecord(number, kind, 1, 0, 0, 0, window, principal, None, 0, at_ms, at_ms))


def _messages_appended(state: ContextsState, wire: Wire, seq: int) -> None:
    _add_messages(state, _open(state, wire), wire[4], seq, wire[3])


def _touched(state: ContextsState, wire: Wire, seq: int) -> None:
    _open(state, wire)


def _skill_loaded(state: ContextsState, wire: Wire, seq: int) -> None:
    _, _, context, _, name, hash_ = wire
    _open(state, wire)
    skills = state.loaded(context)
    place = next((index for index, skill in enumerate(skills) if skill.name == name), len(skills))
    loaded = replace(skills[place], hash=hash_) if place < len(skills) else SkillRef(name, hash_)
    _set_skills(state, context, (*skills[:place], loaded, *skills[place + 1 :]))


def _skill_unloaded(state: ContextsState, wire: Wire, seq: int) -> None:
    _open(state, wire)
    _set_skills(state, wire[2], tuple(skill for skill in state.loaded(wire[2]) if skill.name != wire[4]))


def _plan_created(state: ContextsState, wire: Wire, seq: int) -> None:
    _set_plan(state, _open(state, wire), wire[2], Plan.load(wire[4]))


def _plan_updated(state: ContextsState, wire: Wire, seq: int) -> None:
    _, _, context, at_ms, stored, order, next_id = wire
    header = _open(state, wire)
    plan = state.plans.rows[context].value
    items = {item.id: item for item in plan.items}
    for item in map(PlanItem.load, stored):
        items[item.id] = item
    placed = items.values() if order is None else (items[item_id] for item_id in order)
    _set_plan(state, header, context, replace(plan, items=tuple(placed), next_id=next_id, updated=at_ms))


def _plan_cleared(state: ContextsState, wire: Wire, seq: int) -> None:
    _set_plan(state, _open(state, wire), wire[2], None)


def _plan_items_settled(state: ContextsState, wire: Wire, seq: int) -> None:
    _, _, context, at_ms, ids, ok, note = wire
    plan = state.plans.rows[context].value
    _set_plan(state, _open(state, wire), context, plan.settled(ids, ok, note, at_ms))


def _preflight_set(state: ContextsState, wire: Wire, seq: int) -> None:
    _open(state, wire)
    _put(state.preflights, JsonRecord, wire[2], copy_json(wire[4]), empty=wire[4] is None)


def _principal_set(state: ContextsState, wire: Wire, seq: int) -> None:
    _open(state, wire).principal = wire[4]


def _task_attached(state: ContextsState, wire: Wire, seq: int) -> None:
    _open(state, wire).task = wire[4]


def _task_detached(state: ContextsState, wire: Wire, seq: int) -> None:
    _open(state, wire).task = None


def _turn_begun(state: ContextsState, wire: Wire, seq: int) -> None:
    _open(state, wire).turns += 1


def _window_changed(state: ContextsState, wire: Wire, seq: int) -> None:
    _open(state, wire).model_window = wire[4]


def _compacted(state: ContextsState, wire: Wire, seq: int) -> None:
    _, _, context, at_ms, fold, verdict, _ = wire
    header = _open(state, wire)
    rows = state.messages.rows
    for place in range(header.first, header.first + fold):
        key = header.number, place
        header.est_tokens -= body_tokens(rows[key].body)
        state.messages.remove(key)
    header.first += fold
    header.version += 1
    said = replace(Summary.load(verdict), covers_messages=fold, updated=at_ms, extra=None)
    _set_summary(state, header, context, state.summary(context).absorb(said))


def _imported(state: ContextsState, wire: Wire, seq: int) -> None:
    _, _, context, at_ms, kind, version, summary, messages, skills, plan, preflight, *rest = wire
    window, principal, task, turns, created, updated, extra, _ = rest
    number = len(state.contexts)
    header = ContextRecord(number, kind, version, 0, 0, 0, window, principal, task, turns, created, updated)
    state.contexts.add(context, header)
    _set_summary(state, header, context, Summary.load(summary))
    _add_messages(state, header, messages, seq, at_ms)
    _set_skills(state, context, tuple(map(SkillRef.load, skills)))
    _set_plan(state, header, context, None if plan is None else Plan.load(plan))
    _put(state.preflights, JsonRecord, context, copy_json(preflight), empty=preflight is None)
    _put(state.extras, JsonRecord, context, copy_json(extra), empty=not extra)


EVOLVE: Final[Mapping[str, Evolve]] = {
    "context.created": _created,
    "context.messages_appended": _messages_appended,
    "context.touched": _touched,
    "context.skill_loaded": _skill_loaded,
    "context.skill_unloaded": _skill_unloaded,
    "context.plan_created": _plan_created,
    "context.plan_updated": _plan_updated,
    "context.plan_cleared": _plan_cleared,
    "context.plan_items_settled": _plan_items_settled,
    "context.preflight_set": _preflight_set,
    "context.principal_set": _principal_set,
    "context.task_attached": _task_attached,
    "context.task_detached": _task_detached,
    "context.turn_begun": _turn_begun,
    "context.window_changed": _window_changed,
    "context.compacted": _compacted,
    "context.imported": _imported,
}
