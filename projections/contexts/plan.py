"""The plan of a conversation: a goal and an ordered list of items. A plan must never be changed half: every operation
returns a whole new plan or refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.core.errors import InvalidValue, LimitExceeded, Refused
from engine.core.fields import TEXT, U32, U64, Checked, one_of, optional
from engine.core.limits import PLAN_ITEMS_DEFAULT, U32_MAX
from projections.contexts.transitions import ITEM_MARKS, ITEM_STATUSES, SETTLED
from projections.contexts.values import REQUIRED, JsonObject, ObjectReader, array_of, copy_json, trimmed

__all__ = ["BINDING", "PLAN", "PLAN_ITEM", "Binding", "Plan", "PlanItem", "read_binding", "read_plan"]

STATUS: Final = one_of("status", ITEM_STATUSES)
_REFERENCES: Final = {"run": "id", "subagent": "handle", "task": "id"}


@dataclass(frozen=True, slots=True)
class Binding:
    """What an item is bound to: ``kind`` is run, subagent or task, ``ref`` its id or handle."""

    kind: str
    ref: str
    extra: JsonObject | None = None

    def same_as(self, other: Binding | None) -> bool:
        """Return whether both name the same thing, whatever unknown keys they carry."""
        return other is not None and (self.kind, self.ref) == (other.kind, other.ref)

    def to_json(self) -> JsonObject:
        """Return the binding as the record's JSON, ``{kind: {id or handle: ref}}``."""
        return {self.kind: {_REFERENCES[self.kind]: self.ref, **copy_json(self.extra or {})}}

    def dump(self) -> list[Any]:
        """Return the binding as an array."""
        return trimmed([self.kind, self.ref, copy_json(self.extra)], None)

    @classmethod
    def load(cls, dumped: Sequence[Any]) -> Binding:
        """Return the binding of an array that :meth:`dump` wrote."""
        return cls(*copy_json(dumped))


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One item: its status is one of ITEM_STATUSES, ``updated`` the time of its last change in Unix milliseconds."""

    id: int
    title: str
    detail: str | None = None
    status: str = "pending"
    note: str | None = None
    bound: Binding | None = None
    updated: int = 0
    extra: JsonObject | None = None

    def is_settled(self) -> bool:
        """Return whether the item's status is final for bindings: done, blocked or skipped."""
        return self.status in SETTLED

    def render(self) -> str:
        """Return the item's line of the plan block."""
        detail = "" if self.detail is None else f" — {self.detail}"
        note = "" if self.note is None else f" ({self.note})"
        bound = "" if self.bound is None else f" [{self.bound.kind} {self.bound.ref}]"
        return f"{ITEM_MARKS[self.status]} {self.id}. {self.title}{detail}{note}{bound}\n"

    def to_json(self) -> JsonObject:
        """Return the item as the record's JSON; a missing detail, note or binding is left out."""
        shape: JsonObject = {"id": self.id, "title": self.title, "status": self.status, "updated": self.updated}
        if self.detail is not None:
            shape["detail"] = self.detail
        if self.note is not None:
            shape["note"] = self.note
        if self.bound is not None:
            shape["bound"] = self.bound.to_json()
        return {**shape, **copy_json(self.extra or {})}

    def dump(self) -> list[Any]:
        """Return the item as an array."""
        bound = None if self.bound is None else self.bound.dump()
        shape = [self.id, self.title, self.detail, self.status, self.note, bound, self.updated, copy_json(self.extra)]
        return trimmed(shape, None)

    @classmethod
    def load(cls, dumped: Sequence[Any]) -> PlanItem:
        """Return the item of an array that :meth:`dump` wrote."""
        id_, title, detail, status, note, bound, *rest = dumped
        return cls(id_, title, detail, status, note, None if bound is None else Binding.load(bound), *copy_json(rest))


@dataclass(frozen=True, slots=True)
class Plan:
    """A goal and its items in order; ``next_id`` is the id that the next inserted item gets."""

    goal: str
    items: tuple[PlanItem, ...] = ()
    next_id: int = 1
    created: int = 0
    updated: int = 0
    extra: JsonObject | None = None

    @classmethod
    def create(
        cls, goal: str, items: Sequence[Any] = (), *, max_items: int = PLAN_ITEMS_DEFAULT, at_ms: int = 0
    ) -> Plan:
        """Return a new plan whose items are titles or ``{title, detail?}``, numbered from 1.

        Raises Refused with rule empty_goal, max_items or empty_title; InvalidValue for a detail that is not text.
        """
        try:
            goal = TEXT.check(goal).strip()
        except InvalidValue as error:
            raise error.at("goal") from None
        if not goal:
            raise Refused("a plan needs a goal that is not blank", rule="empty_goal")
        if len(items) > max_items:
            raise Refused(f"{len(items)} items, the plan may have {max_items}", rule="max_items", max_items=max_items)
        made = []
        for index, item in enumerate(items):
            try:
                made.append(PlanItem(index + 1, *item_fields(item), updated=at_ms))
            except InvalidValue as error:
                raise error.at(f"items[{index}]") from None
        return cls(goal, tuple(made), len(made) + 1, at_ms, at_ms)

    def position(self, item_id: int) -> int | None:
        """Return the place of the item with this id, or None."""
        return next((place for place, item in enumerate(self.items) if item.id == item_id), None)

    def free_id(self) -> int:
        """Return the id of the next inserted item: ``next_id``, or the first free one after it. Raises
        LimitExceeded."""
        taken = {item.id for item in self.items}
        free = self.next_id
        while free in taken:
            free += 1
        if free >= U32_MAX:
            raise LimitExceeded("U32_MAX", free, U32_MAX, hint="start a new plan")
        return free

    def settle(
        self, binding: Binding, ok: bool, note: str | None = None, *, at_ms: int = 0
    ) -> tuple[Plan, tuple[int, ...]]:
        """Return the plan with every unsettled item of that binding done (ok) or blocked, and the ids of those
        items."""
        ids = self.unsettled(binding)
        return self.settled(ids, ok, note, at_ms), ids

    def unsettled(self, binding: Binding) -> tuple[int, ...]:
        """Return the ids of the items with that binding whose status is not final, in the plan's order."""
        return tuple(item.id for item in self.items if binding.same_as(item.bound) and not item.is_settled())

    def settled(self, ids: Sequence[int], ok: bool, note: str | None, at_ms: int) -> Plan:
        """Return the plan with exactly these items settled; itself when there is none."""
        if not ids:
            return self
        status = "done" if ok else "blocked"
        items = tuple(
            replace(item, status=status, note=item.note if note is None else note, updated=at_ms)
            if item.id in ids
            else item
            for item in self.items
        )
        return replace(self, items=items, updated=at_ms)

    def progress(self) -> str:
        """Return how far the plan is, ``2/5 done``."""
        return f"{sum(item.status == 'done' for item in self.items)}/{len(self.items)} done"

    def is_complete(self) -> bool:
        """Return whether there are items and every one is settled."""
        return bool(self.items) and all(item.is_settled() for item in self.items)

    def render(self) -> str:
        """Return the block as the model sees it."""
        return f"Plan ({self.progress()}): {self.goal}\n" + "".join(item.render() for item in self.items)

    def to_json(self) -> JsonObject:
        """Return the plan as the record's JSON."""
        return {
            "goal": self.goal,
            "items": [item.to_json() for item in self.items],
            "next_id": self.next_id,
            "created": self.created,
            "updated": self.updated,
            **copy_json(self.extra or {}),
        }

    def dump(self) -> list[Any]:
        """Return the plan as an array."""
        items = [item.dump() for item in self.items]
        return trimmed([self.goal, items, self.next_id, self.created, self.updated, copy_json(self.extra)], None)

    @classmethod
    def load(cls, dumped: Sequence[Any]) -> Plan:
        """Return the plan of an array that :meth:`dump` wrote."""
        goal, items, *rest = dumped
        return cls(goal, tuple(PlanItem.load(item) for item in items), *copy_json(rest))


def item_fields(item: Any) -> tuple[str, str | None]:
    """Return (title, detail) of an item as callers write it: a title, or ``{title, detail?}``.

    Raises Refused with rule empty_title; InvalidValue for a detail that is not text.
    """
    shape = item if isinstance(item, Mapping) else {"title": item}
    title, detail = shape.get("title"), shape.get("detail")
    if not isinstance(title, str) or not title.strip():
        raise Refused("a plan item needs a title that is not blank", rule="empty_title")
    try:
        return TEXT.check(title.strip()), optional(TEXT).check(detail) or None
    except InvalidValue as error:
        raise error.at("detail" if detail is not None else "title") from None


# -- from JSON --------------------------------------------------------------------------------------------------------


def read_binding(value: Any) -> Binding:
    """Return the binding of ``{run: {id}}``, ``{subagent: {handle}}`` or ``{task: {id}}``. Raises InvalidValue."""
    if type(value) is not dict or len(value) != 1 or next(iter(value)) not in _REFERENCES:
        raise InvalidValue("", "expected one of {run: {id}}, {subagent: {handle}}, {task: {id}}")
    ((kind, inner),) = value.items()
    try:
        reader = ObjectReader(inner, f"a {kind} binding")
        return Binding(kind, reader.take(_REFERENCES[kind], TEXT), reader.extra())
    except InvalidValue as error:
        raise error.at(kind) from None


def _read_item(value: Any) -> PlanItem:
    reader = ObjectReader(value, "a plan item")
    return PlanItem(
        reader.take("id", U32),
        reader.take("title", TEXT),
        reader.take("detail", optional(TEXT), None),
        reader.take("status", STATUS, "pending"),
        reader.take("note", optional(TEXT), None),
        reader.take("bound", optional(Checked("binding", read_binding)), None),
        reader.take("updated", U64, 0),
        reader.extra(),
    )


def read_plan(value: Any, faults: list[InvalidValue] | None = None) -> Plan:
    """Return the plan of a JSON object, unknown keys kept. Raises InvalidValue with the path, also for an id given
    twice; with ``faults``, adds what is wrong to them and keeps the rest."""
    reader = ObjectReader(value, "a plan", faults)
    seen: set[int] = set()

    def read(entry: Any) -> PlanItem:
        item = _read_item(entry)
        if item.id in seen:
            raise InvalidValue("id", f"{item.id} is taken by an item before it")
        seen.add(item.id)
        return item

    return Plan(
        items=reader.entries("items", read, REQUIRED),
        goal=reader.take("goal", TEXT),
        next_id=reader.take("next_id", U32, 0),
        created=reader.take("created", U64, 0),
        updated=reader.take("updated", U64, 0),
        extra=reader.extra(),
    )


BINDING: Final = array_of("binding [kind, ref, ...]", Binding.load, read_binding)
PLAN_ITEM: Final = array_of(
    "plan item [id, title, detail, status, note, binding or null, updated, ...]", PlanItem.load, _read_item
)
PLAN: Final = array_of("plan [goal, items, next_id, created, updated, ...]", Plan.load, read_plan)
