"""Updating a plan: insert, then reorder, then edit, as one step. A refused part must never leave an earlier one done:
the plan that comes back is new, or nothing comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from engine.core.errors import InvalidValue, Refused
from engine.core.fields import TEXT
from engine.core.limits import PLAN_ITEMS_DEFAULT
from projections.contexts.plan import Binding, Plan, PlanItem, item_fields
from projections.contexts.transitions import BIND_STATUS, ITEM_STATUSES

__all__ = ["CHANGES", "binding_of", "update_plan"]

CHANGES: Final = ("insert", "reorder", "item", "status", "note", "title", "detail", "bind")
"""What an update may say. Every key but insert and reorder is about the item that ``item`` names."""

_MAY_BE_NULL: Final = frozenset({"reorder", "note", "title", "detail"})
"""Keys for which null says the same as leaving them out."""


def update_plan(plan: Plan, changes: Mapping[str, Any], *, max_items: int = PLAN_ITEMS_DEFAULT, at_ms: int = 0) -> Plan:
    """Return the plan after all of ``changes``, in the order insert, reorder, edit.

    ``insert`` is ``{title, detail?, after?: id}``; ``reorder`` a list of ids that come first, the others behind them;
    ``item`` an id, a numeric string or an exact title. Raises Refused with rule max_items, empty_title, no_such_item,
    bad_status, bad_binding or nothing_to_do; InvalidValue with the path for a value of another type.
    """
    changes = {key: value for key, value in changes.items() if value is not None or key not in _MAY_BE_NULL}
    if not any(key in changes for key in ("insert", "reorder", "item")):
        raise Refused(
            "the update says nothing", hint="give insert, reorder, or item with what to change", rule="nothing_to_do"
        )
    if "insert" in changes:
        plan = _insert(plan, changes["insert"], max_items, at_ms)
    if "reorder" in changes:
        plan = _reorder(plan, changes["reorder"])
    if "item" in changes:
        plan = _edit(plan, changes, at_ms)
    return replace(plan, updated=at_ms)


def _insert(plan: Plan, insert: Any, max_items: int, at_ms: int) -> Plan:
    if len(plan.items) >= max_items:
        raise Refused(f"the plan has its {max_items} items", rule="max_items", max_items=max_items)
    try:
        fields = item_fields(insert)
    except InvalidValue as error:
        raise error.at("insert") from None
    after = insert.get("after") if isinstance(insert, Mapping) else None
    if after is not None and type(after) is not int:
        raise InvalidValue("insert.after", f"expected an item's id, found {type(after).__name__}")
    item = PlanItem(plan.free_id(), *fields, updated=at_ms)
    place = None if after is None else plan.position(after)
    cut = len(plan.items) if place is None else place + 1
    return replace(plan, items=(*plan.items[:cut], item, *plan.items[cut:]), next_id=item.id + 1)


def _reorder(plan: Plan, order: Any) -> Plan:
    if type(order) is not list and type(order) is not tuple:
        raise InvalidValue("reorder", f"expected a list of ids, found {type(order).__name__}")
    for index, item_id in enumerate(order):
        if type(item_id) is not int:
            raise InvalidValue(f"reorder[{index}]", f"expected an item's id, found {type(item_id).__name__}")
    left = {item.id: item for item in plan.items}
    first = [left.pop(item_id) for item_id in order if item_id in left]
    return replace(plan, items=(*first, *left.values()))


def _edit(plan: Plan, changes: Mapping[str, Any], at_ms: int) -> Plan:
    place = _find(plan, changes["item"])
    item = replace(plan.items[place], updated=at_ms)
    if "status" in changes:
        item = replace(item, status=_status(changes["status"]))
    if "note" in changes:
        item = replace(item, note=_text(changes, "note") or None)
    if "title" in changes:
        item = replace(item, title=_text(changes, "title").strip() or item.title)
    if "detail" in changes:
        item = replace(item, detail=_text(changes, "detail") or None)
    if "bind" in changes:
        item = replace(item, bound=binding_of(changes["bind"]), status=BIND_STATUS.get(item.status, item.status))
    return replace(plan, items=(*plan.items[:place], item, *plan.items[place + 1 :]))


def _find(plan: Plan, key: Any) -> int:
    place = None
    if type(key) is int:
        place = plan.position(key)
    elif type(key) is str:
        digits = key.removeprefix("+")
        if digits.isascii() and digits.isdigit():
            place = plan.position(int(digits))
        if place is None:
            place = next((index for index, item in enumerate(plan.items) if item.title == key), None)
    if place is None:
        raise Refused(
            f"the plan has no item {key!r:.80}", hint="name it by id or by its exact title", rule="no_such_item"
        )
    return place


def _status(value: Any) -> str:
    if type(value) is not str or value not in ITEM_STATUSES:
        raise Refused(f"{value!r:.40} is not a status", hint=f"one of: {', '.join(ITEM_STATUSES)}", rule="bad_status")
    return value


def _text(changes: Mapping[str, Any], key: str) -> str:
    try:
        checked: str = TEXT.check(changes[key])
    except InvalidValue as error:
        raise error.at(key) from None
    return checked


def binding_of(value: Any) -> Binding:
    """Return the binding as callers write it: ``{run: id}``, ``{subagent: handle}``, ``{task: id}`` or a Binding.
    Raises Refused with rule bad_binding."""
    if isinstance(value, Binding):
        return value
    if isinstance(value, Mapping):
        for kind in ("run", "subagent", "task"):
            if isinstance(value.get(kind), str):
                return Binding(kind, TEXT.check(value[kind]))
    raise Refused(
        "an item is bound to a run, a subagent or a task",
        hint="one of: {run: id}, {subagent: handle}, {task: id}",
        rule="bad_binding",
    )
