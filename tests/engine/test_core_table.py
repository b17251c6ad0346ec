"""Tables: what is put back is exactly what was there, and what is noted as changed is exactly what changed."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.table import Table


class Box:
    """A record with something mutable in it."""

    __slots__ = ("items",)

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def dump(self) -> list[Any]:
        return [list(self.items)]

    @classmethod
    def load(cls, dumped: list[Any]) -> Box:
        return cls(list(dumped[0]))


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(["add", "edit", "remove"]), st.integers(0, 5), st.integers(0, 99)), max_size=12
)
orders: st.SearchStrategy[Literal["creation", "key"]] = st.sampled_from(["creation", "key"])


def take(table: Table[Box], step: Step) -> set[int]:
    """Do a step if it is possible; return the keys touched."""
    what, key, value = step
    if what == "add" and key not in table:
        table.add(key, Box([value]))
    elif what == "edit" and key in table:
        table.edit(key).items.append(value)
    elif what == "remove" and key in table and table.order == "key":
        table.remove(key)
    else:
        return set()
    return {key}


def content(table: Table[Box]) -> list[tuple[Any, list[Any]]]:
    return [(key, row.dump()) for key, row in table.ordered()]


@given(orders, steps, steps)
def test_what_is_put_back_is_what_was_there(
    order: Literal["creation", "key"], before: list[Step], tried: list[Step]
) -> None:
    """After a commit that did not happen the records, their order and the notes for the next checkpoint are as
    before."""
    table: Table[Box] = Table("boxes", Box, order=order)
    for step in before:
        take(table, step)
    was, changed = content(table), dict(table.changed)
    table.begin()
    touched = set().union(*[take(table, step) for step in tried])
    assert table.put_back() == bool(touched)
    assert content(table) == was
    assert table.changed == changed


@given(orders, steps, steps)
def test_a_kept_commit_equals_one_made_without_speculation(
    order: Literal["creation", "key"], before: list[Step], kept: list[Step]
) -> None:
    """Keeping gives the same records in the same order, and the same notes, as changing the table directly."""
    tables = [Table("boxes", Box, order=order) for _ in range(2)]
    for table in tables:
        for step in before:
            take(table, step)
        table.changed.clear()
    tables[0].begin()
    for step in kept:
        assert take(tables[0], step) == take(tables[1], step)
    tables[0].keep()
    assert content(tables[0]) == content(tables[1])
    assert list(tables[0].changed) == list(tables[1].changed)


@given(orders, steps)
def test_changed_holds_what_was_touched_since_it_was_cleared(
    order: Literal["creation", "key"], done: list[Step]
) -> None:
    """A checkpoint finds every key that was added, edited or removed, and no other, in order of the first touch."""
    table: Table[Box] = Table("boxes", Box, order=order)
    touched: list[int] = []
    for step in done:
        touched += [key for key in take(table, step) if key not in touched]
    assert list(table.changed) == touched


@given(orders, steps, steps)
def test_two_commits_in_a_row_are_put_back_one_by_one(
    order: Literal["creation", "key"], first: list[Step], second: list[Step]
) -> None:
    """What an earlier commit left is no part of a later one's undoing."""
    table: Table[Box] = Table("boxes", Box, order=order)
    table.begin()
    for step in first:
        take(table, step)
    table.keep()
    was = content(table)
    table.begin()
    for step in second:
        take(table, step)
    table.put_back()
    assert content(table) == was


def test_order_of_creation_and_order_by_key() -> None:
    """One order is that of adding; the other that of the encoded keys: short before long, then by their bytes."""
    made: Table[Box] = Table("boxes", Box)
    keyed: Table[Box] = Table("boxes", Box, order="key")
    keys: list[Any] = ["bb", "a", ("a", 1), 300, 2, "ab", "c"]
    for key in keys:
        made.add(key, Box([]))
        keyed.add(key, Box([]))
    assert [key for key, _ in made.ordered()] == keys
    assert [key for key, _ in keyed.ordered()] == [2, 300, "a", "c", "ab", "bb", ("a", 1)]


def test_misuse_is_a_programming_error() -> None:
    """Adding twice, deleting where the order is that of creation, and ending what was not begun are noticed at once."""
    table: Table[Box] = Table("boxes", Box)
    table.add(1, Box([]))
    with pytest.raises(AssertionError, match="exists"):
        table.add(1, Box([]))
    with pytest.raises(AssertionError, match="never deletes"):
        table.remove(1)
    with pytest.raises(KeyError):
        table.edit(2)
    for call in (table.keep, table.put_back):
        with pytest.raises(AssertionError):
            call()
    table.begin()
    with pytest.raises(AssertionError):
        table.begin()
