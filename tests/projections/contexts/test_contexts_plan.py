"""The plan: what an update does, in which order, and that it is all or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import IllegalTransition, InvalidValue, LimitExceeded, Refused
from engine.core.limits import U32_MAX
from projections.contexts import Binding, Plan, PlanItem
from projections.contexts.plan_update import binding_of, update_plan
from projections.contexts.transitions import BIND_STATUS, ITEM_STATUSES, ITEM_STEPS, SETTLED

from .contexts_shell import Shell

PLAN = Plan.create("goal", ["a", "b", {"title": "c", "detail": "d"}])


def ids(plan: Plan) -> list[int]:
    return [item.id for item in plan.items]


def rule(changes: dict[str, Any], plan: Plan = PLAN, max_items: int = 9) -> str:
    with pytest.raises(Refused) as caught:
        update_plan(plan, changes, max_items=max_items)
    named: str = caught.value.details["rule"]
    return named


def test_insert_reorder_and_edit_happen_in_that_order() -> None:
    """An update may reorder what it inserts, and edit what it inserts and reorders."""
    changed = update_plan(PLAN, {"insert": {"title": "new", "after": 1}, "reorder": [4], "item": 4, "status": "done"})
    assert ids(changed) == [4, 1, 2, 3]
    assert changed.items[0].status == "done"
    assert changed.next_id == 5


@pytest.mark.parametrize(
    ("insert", "expected"),
    [
        ("new", [1, 2, 3, 4]),
        ({"title": "new", "after": 1}, [1, 4, 2, 3]),
        ({"title": "new", "after": 99}, [1, 2, 3, 4]),
        ({"title": "new", "after": None, "detail": ""}, [1, 2, 3, 4]),
    ],
)
def test_where_an_inserted_item_stands(insert: Any, expected: list[int]) -> None:
    """Behind the item it names, at the end when it names none that is there; an empty detail is none."""
    changed = update_plan(PLAN, {"insert": insert})
    assert ids(changed) == expected
    assert next(item for item in changed.items if item.id == 4) == PlanItem(4, "new")


def test_an_inserted_item_never_takes_an_id_that_is_taken() -> None:
    """A record without a next_id counts from what is free, and ids stop at their limit."""
    plan = Plan("g", (PlanItem(0, "zero"), PlanItem(1, "one")), next_id=0)
    assert ids(update_plan(plan, {"insert": "two"})) == [0, 1, 2]
    with pytest.raises(LimitExceeded):
        update_plan(Plan("g", next_id=U32_MAX), {"insert": "x"})


@pytest.mark.parametrize(("key", "place"), [(2, 1), ("2", 1), ("+2", 1), ("02", 1), ("b", 1), ("c", 2)])
def test_an_item_is_named_by_id_numeric_text_or_title(key: Any, place: int) -> None:
    """Any of the three finds it; a number in text is an id before it is a title."""
    assert update_plan(PLAN, {"item": key, "note": "n"}).items[place].note == "n"
    titled = Plan.create("g", ["2", "x"])
    assert update_plan(titled, {"item": "2", "note": "n"}).items[1].note == "n"


@pytest.mark.parametrize("key", [99, "99", "B", " b", 1.0, True, [1], {"id": 1}])
def test_an_item_that_is_not_there_is_refused(key: Any) -> None:
    """Nothing is guessed: case, blanks and other types name no item."""
    assert rule({"item": key, "status": "done"}) == "no_such_item"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "nothing_to_do"),
        ({"status": "done"}, "nothing_to_do"),
        ({"reorder": None}, "nothing_to_do"),
        ({"insert": {}}, "empty_title"),
        ({"insert": {"title": " "}}, "empty_title"),
        ({"insert": 5}, "empty_title"),
        ({"item": 1, "status": None}, "bad_status"),
        ({"item": 1, "status": "Done"}, "bad_status"),
        ({"item": 1, "bind": {}}, "bad_binding"),
        ({"item": 1, "bind": {"run": 5}}, "bad_binding"),
        ({"item": 1, "bind": {"run": {"id": "r"}}}, "bad_binding"),
    ],
)
def test_what_an_update_refuses(changes: dict[str, Any], expected: str) -> None:
    """Each refusal names its rule."""
    assert rule(changes) == expected
    assert rule({"insert": "x"}, max_items=3) == "max_items"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"item": 1, "note": 5}, "note"),
        ({"item": 1, "title": ["x"]}, "title"),
        ({"item": 1, "detail": {}}, "detail"),
        ({"reorder": "12"}, "reorder"),
        ({"reorder": [1, "2"]}, "reorder[1]"),
        ({"reorder": [True]}, "reorder[0]"),
        ({"insert": {"title": "x", "detail": 5}}, "insert.detail"),
        ({"insert": {"title": "x", "after": "1"}}, "insert.after"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_path(changes: dict[str, Any], path: str) -> None:
    """No value is coerced and none is ignored."""
    with pytest.raises(InvalidValue) as caught:
        update_plan(PLAN, changes)
    assert caught.value.path == path


def test_empty_texts_take_away_and_blank_titles_say_nothing() -> None:
    """An empty note or detail is no note and no detail; a blank title leaves the title; others are trimmed."""
    plan = update_plan(PLAN, {"item": 3, "note": "n", "title": " new "})
    assert (plan.items[2].title, plan.items[2].note, plan.items[2].detail) == ("new", "n", "d")
    plan = update_plan(plan, {"item": 3, "note": "", "detail": "", "title": "  "})
    assert (plan.items[2].title, plan.items[2].note, plan.items[2].detail) == ("new", None, None)


@pytest.mark.parametrize("source", ITEM_STATUSES)
@pytest.mark.parametrize("target", ITEM_STATUSES)
def test_a_caller_moves_an_item_from_any_status_to_any(source: str, target: str) -> None:
    """Status moves freely; the table says so."""
    plan = update_plan(PLAN, {"item": 1, "status": source})
    assert update_plan(plan, {"item": 1, "status": target}).items[0].status == target
    assert any(s.source == source and s.target == target and s.event == "context.plan_updated" for s in ITEM_STEPS)


@pytest.mark.parametrize("status", ITEM_STATUSES)
@pytest.mark.parametrize("ok", [True, False])
def test_settling_moves_exactly_the_unsettled_items_of_the_binding(status: str, ok: bool) -> None:
    """Pending and in progress become done or blocked, as the table says; settled ones and other bindings stay."""
    bound = Binding("run", "r")
    items = tuple(PlanItem(n, "t", status=status, bound=b) for n, b in enumerate([bound, Binding("task", "r"), None]))
    settled, moved = Plan("g", items).settle(bound, ok, "note", at_ms=7)
    legal = {s.target for s in ITEM_STEPS if s.source == status and s.event == "context.plan_items_settled"}
    target = "done" if ok else "blocked"
    assert moved == ((0,) if target in legal else ())
    assert (target in legal) == (status not in SETTLED)
    assert settled.items[1:] == items[1:]
    assert settled.items[0].status == (target if moved else status)
    assert settled.items[0].note == ("note" if moved else None)


def test_binding_starts_a_pending_item_and_no_other() -> None:
    """Bind turns pending into in_progress; the status given in the same update comes first."""
    for status in ITEM_STATUSES:
        item = update_plan(PLAN, {"item": 1, "status": status, "bind": {"task": "t"}}).items[0]
        assert item.status == BIND_STATUS.get(status, status)
        assert item.bound == Binding("task", "t")
    assert binding_of({"subagent": "h", "task": "t"}) == Binding("subagent", "h")


@given(st.lists(st.integers(0, 6), max_size=8))
def test_reordering_keeps_every_item(order: list[int]) -> None:
    """Named items come first in the order named, each once; the others follow in the order they had."""
    changed = update_plan(PLAN, {"reorder": order})
    named = [item_id for item_id in dict.fromkeys(order) if item_id in ids(PLAN)]
    assert ids(changed) == named + [item_id for item_id in ids(PLAN) if item_id not in named]
    assert sorted(changed.items, key=lambda item: item.id) == list(PLAN.items)


def test_a_plan_event_says_only_what_changed() -> None:
    """An edit carries the one item, an insert at the end no order, a reorder every id and no item."""
    shell = Shell()
    shell.contexts.create("c")
    shell.contexts.create_plan("c", "goal", ["a", "b", "c"])
    edit = shell.contexts.update_plan("c", item=2, status="done").events[0].data
    assert ([item[0] for item in edit["items"]], edit["order"], edit["next_id"]) == ([2], None, 4)
    grow = shell.contexts.update_plan("c", insert="d").events[0].data
    assert ([item[0] for item in grow["items"]], grow["order"], grow["next_id"]) == ([4], None, 5)
    turn = shell.contexts.update_plan("c", reorder=[4, 3]).events[0].data
    assert (turn["items"], turn["order"]) == ([], [4, 3, 1, 2])
    assert ids(shell.contexts.get("c").plan or PLAN) == [4, 3, 1, 2]


def test_updating_a_plan_that_is_not_there_says_what_is_allowed() -> None:
    """The refusal names the event and what may happen first."""
    shell = Shell()
    shell.contexts.create("c")
    with pytest.raises(IllegalTransition) as caught:
        shell.contexts.update_plan("c", item=1, status="done")
    assert "context.plan_created" in caught.value.details["allowed"]
    assert not shell.contexts.settle_plan("c", {"run": {"id": "r"}}, True).changed
    assert not shell.contexts.clear_plan("c").changed


def test_a_binding_is_settled_in_either_spelling() -> None:
    """``{run: id}``, ``{run: {id}}`` and a Binding name the same thing."""
    for spelled in ({"subagent": "h"}, {"subagent": {"handle": "h"}}, Binding("subagent", "h")):
        shell = Shell()
        shell.contexts.create("c")
        shell.contexts.create_plan("c", "goal", ["a"])
        shell.contexts.update_plan("c", item=1, bind=Binding("subagent", "h"))
        assert shell.contexts.settle_plan("c", spelled, False).changed
        assert shell.contexts.get("c").plan == shell.contexts.plan("c")
        assert (shell.contexts.plan("c") or PLAN).items[0].status == "blocked"
    with pytest.raises(InvalidValue):
        shell.contexts.settle_plan("c", {"subagent": {"id": "h"}}, True)
