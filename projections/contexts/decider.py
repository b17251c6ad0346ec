"""Deciding for contexts: command in, events out, or a refusal. It must never change the state, and never look at
another
conversation than the one it was asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from engine.core.catalog import Wire
from engine.core.decider import Decision, Moment
from engine.core.errors import LimitExceeded, Refused
from engine.core.limits import U64_MAX
from projections.contexts import commands as ask
from projections.contexts import events as fact
from projections.contexts.compaction import check_fold, fallback_narrative, open_calls, read_verdict
from projections.contexts.context_state import at_skill_limit, check_version
from projections.contexts.legality import check_counters, header_of, require
from projections.contexts.message import ToolMsg
from projections.contexts.plan import Binding, Plan
from projections.contexts.plan_update import update_plan
from projections.contexts.state import ContextsState
from projections.contexts.summary import Summary

__all__ = ["decide"]


def decide(state: ContextsState, command: Any, moment: Moment) -> list[Wire]:
    """Return the events of a command to one conversation; [] when it repeats exactly what already is."""
    return _DECIDE[command.name](state, command, moment)


def _one(event_type: Any, command: ask.ContextCommand, moment: Moment, *values: Any) -> list[Wire]:
    return [event_type.wire(command.context, moment.at_ms, *values)]


def _create(state: ContextsState, command: ask.CreateContext, moment: Moment) -> list[Wire]:
    header = state.contexts.get(command.context)
    if header is None:
        return _one(fact.CREATED, command, moment, command.kind, command.model_window, command.principal)
    same_caller = command.principal is None or command.principal == header.principal
    if (header.kind, header.model_window) == (command.kind, command.model_window) and same_caller:
        return []
    raise Refused(
        f"context {command.context!r} exists: {header.kind}, window {header.model_window}, "
        f"first caller {header.principal!r}",
        hint="use another id, or set_window and set_principal on this one",
        rule="exists",
    )


def _append(state: ContextsState, command: ask.AppendMessages, moment: Moment) -> list[Wire]:
    header_of(state, command.context)
    return _one(fact.MESSAGES_APPENDED, command, moment, command.messages) if command.messages else []


def _touch(state: ContextsState, command: ask.TouchContext, moment: Moment) -> list[Wire]:
    header = header_of(state, command.context)
    return [] if header.updated == moment.at_ms else _one(fact.TOUCHED, command, moment)


# -- skills -----------------------------------------------------------------------------------------------------------


def _load_skill(state: ContextsState, command: ask.LoadSkill, moment: Moment) -> list[Wire]:
    header_of(state, command.context)
    skills = state.loaded(command.context)
    known = next((skill for skill in skills if skill.name == command.skill), None)
    if known is None and len(skills) >= command.max_loaded:
        raise at_skill_limit(command.max_loaded)
    if known is not None and known.hash == command.hash:
        return []
    return _one(fact.SKILL_LOADED, command, moment, command.skill, command.hash)


def _unload_skill(state: ContextsState, command: ask.UnloadSkill, moment: Moment) -> list[Wire]:
    header_of(state, command.context)
    if all(skill.name != command.skill for skill in state.loaded(command.context)):
        return []
    return _one(fact.SKILL_UNLOADED, command, moment, command.skill)


# -- the plan ---------------------------------------------------------------------------------------------------------


def _create_plan(state: ContextsState, command: ask.CreatePlan, moment: Moment) -> list[Wire]:
    header_of(state, command.context)
    plan = Plan.create(command.goal, command.items, max_items=command.max_items, at_ms=moment.at_ms)
    return _one(fact.PLAN_CREATED, command, moment, plan.dump())


def _update_plan(state: ContextsState, command: ask.UpdatePlan, moment: Moment) -> list[Wire]:
    require(state, fact.PLAN_UPDATED.name, command.context)
    old: Plan = state.plans.rows[command.context].value
    new = update_plan(old, command.changes, max_items=command.max_items, at_ms=moment.at_ms)
    if _timeless(new) == _timeless(old):
        return []
    known = {item.id: item for item in old.items}
    changed = [item for item in new.items if known.get(item.id) != item]
    order = [item.id for item in new.items]
    grown = [*known, *(item.id for item in changed if item.id not in known)]
    return _one(
        fact.PLAN_UPDATED,
        command,
        moment,
        [item.dump() for item in changed],
        None if order == grown else order,
        new.next_id,
    )


def _timeless(plan: Plan) -> Plan:
    return replace(plan, updated=0, items=tuple(replace(item, updated=0) for item in plan.items))


def _clear_plan(state: ContextsState, command: ask.ClearPlan, moment: Moment) -> list[Wire]:
    header_of(state, command.context)
    return [] if state.plan(command.context) is None else _one(fact.PLAN_CLEARED, command, moment)


def _settle_plan(state: ContextsState, command: ask.SettlePlan, moment: Moment) -> list[Wire]:
    header_of(state, command.context)
    plan = state.plan(command.context)
    ids = () if plan is None else plan.unsettled(Binding.load(command.binding))
    return _one(fact.PLAN_ITEMS_SETTLED, command, moment, list(ids), command.ok, command.note) if ids else []


# -- what the conversation is about -----------------------------------------------------------------------------------


def _set_preflight(state: ContextsState, command: ask.SetPreflight, moment: Moment) -> list[Wire]:
    header_of(state, command.context)
    if same_json(state.preflight(command.context), command.value):
        return []
    return _one(fact.PREFLIGHT_SET, command, moment, command.value)


def same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same value of the same type; 1, 1.0 and true are three."""
    if type(one) is not type(other):
        return False
    if type(one) is list:
        return len(one) == len(other) and all(map(same_json, one, other))
    if type(one) is dict:
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    return bool(one == other)


def _set_principal(state: ContextsState, command: ask.SetPrincipal, moment: Moment) -> list[Wire]:
    # A later caller is no error: it simply never takes the first one's place.
    if header_of(state, command.context).principal is not None:
        return []
    return _one(fact.PRINCIPAL_SET, command, moment, command.principal)


def _attach_task(state: ContextsState, command: ask.AttachTask, moment: Moment) -> list[Wire]:
    if header_of(state, command.context).task == command.task:
        return []
    return _one(fact.TASK_ATTACHED, command, moment, command.task)


def _detach_task(state: ContextsState, command: ask.DetachTask, moment: Moment) -> list[Wire]:
    return [] if header_of(state, command.context).task is None else _one(fact.TASK_DETACHED, command, moment)


def _begin_turn(state: ContextsState, command: ask.BeginTurn, moment: Moment) -> list[Wire]:
    turns = header_of(state, command.context).turns
    if turns >= U64_MAX:
        raise LimitExceeded("U64_MAX", turns + 1, U64_MAX)
    return _one(fact.TURN_BEGUN, command, moment)


def _set_window(state: ContextsState, command: ask.SetWindow, moment: Moment) -> list[Wire]:
    if header_of(state, command.context).model_window == command.model_window:
        return []
    return _one(fact.WINDOW_CHANGED, command, moment, command.model_window)


# -- compaction -------------------------------------------------------------------------------------------------------


def _apply_compaction(state: ContextsState, command: ask.ApplyCompaction, moment: Moment) -> list[Wire]:
    header = header_of(state, command.context)
    check_version(header.version, command.version)
    said = replace(read_verdict(command.verdict), covers_messages=0, updated=0, extra=None)
    check_fold(state.bodies(command.context), command.fold)
    check_counters(header, state.summary(command.context), command.fold)
    return _one(fact.COMPACTED, command, moment, command.fold, said.dump(), False)


def _apply_fallback(state: ContextsState, command: ask.ApplyFallback, moment: Moment) -> list[Wire]:
    header = header_of(state, command.context)
    check_version(header.version, command.version)
    check_fold(state.bodies(command.context), command.fold)
    check_counters(header, state.summary(command.context), command.fold)
    folded = state.bodies(command.context, 0, command.fold)
    said = Summary(narrative=fallback_narrative(state.summary(command.context).narrative, folded))
    return _one(fact.COMPACTED, command, moment, command.fold, said.dump(), True)


def _close_calls(state: ContextsState, command: ask.CloseCalls, moment: Moment) -> list[Wire]:
    header_of(state, command.context)
    waiting = open_calls(state.bodies(command.context))
    results = [ToolMsg(call[0], call[1], command.reason, is_error=True).dump() for _, call in waiting]
    return _one(fact.MESSAGES_APPENDED, command, moment, results) if results else []


# -- records of other runtimes ----------------------------------------------------------------------------------------


def _import(state: ContextsState, command: ask.ImportContext, moment: Moment) -> list[Wire]:
    if command.context in state.contexts:
        raise Refused(f"context {command.context!r} exists", hint="import it under another id", rule="exists")
    decision = Decision()
    taken = decision.emit(fact.IMPORTED, command.context, moment.at_ms, *command.parts, command.lost)
    window = command.parts[fact.IMPORTED.names.index("model_window") - 2]
    if command.model_window is not None and command.model_window != window:
        decision.emit(fact.WINDOW_CHANGED, command.context, moment.at_ms, command.model_window, cause=taken)
    return decision.events


_DECIDE: Final[Mapping[str, Callable[[ContextsState, Any, Moment], list[Wire]]]] = {
    "create": _create,
    "append": _append,
    "touch": _touch,
    "load_skill": _load_skill,
    "unload_skill": _unload_skill,
    "create_plan": _create_plan,
    "update_plan": _update_plan,
    "clear_plan": _clear_plan,
    "settle_plan": _settle_plan,
    "set_preflight": _set_preflight,
    "set_principal": _set_principal,
    "attach_task": _attach_task,
    "detach_task": _detach_task,
    "begin_turn": _begin_turn,
    "set_window": _set_window,
    "apply_compaction": _apply_compaction,
    "apply_fallback": _apply_fallback,
    "close_calls": _close_calls,
    "import": _import,
}
