"""Content of commands that nobody has checked: it can be encoded, and is what it says, or is refused by its place."""

from __future__ import annotations

import collections
import functools
import threading
from typing import Any

import pytest

from engine.core.codec import decode, encode_exactly
from engine.core.errors import InvalidValue, LimitExceeded
from tests.engine.kit import toy_store
from tests.field_reports.awkward import (
    Hostile,
    Liar,
    Listing,
    Mapping,
    Number,
    Pair,
    Rank,
    Real,
    Shouted,
    Text,
    Word,
    circle,
    circle_of_maps,
    deep,
    deep_maps,
)
from tests.toy import Open

CONTENTS: dict[str, Any] = {
    "20,000 levels": (lambda: deep(20_000), "[0][0][0]"),
    "20,000 levels of maps": (lambda: deep_maps(20_000), ".k.k.k"),
    "a circle": (circle, "[0][0][0]"),
    "a circle of maps": (circle_of_maps, ".again[0].and"),
    "an endless range": (lambda: [{"a": range(10**12)}], "[0].a"),
    "a text met a million times": (lambda: [["x" * 100_000] * 1_000] * 1_000, "COMMIT_"),
    "lists in lists in lists": (lambda: functools.reduce(lambda inner, _: [inner, inner], range(60), []), "COMMIT_"),
    "a mapping of one's own": (lambda: [collections.UserDict(a=1)], "[0]"),
    "a set": (lambda: {"a": [{1, 2}]}, ".a[0]"),
    "a long number": (lambda: {"a": [1, 10**5_000]}, ".a[1]"),
    "a lone surrogate": (lambda: {"a": [{"b": "\ud800"}]}, ".a[0].b"),
    "a key of bytes": (lambda: [{b"k": 1}], "[0].<key bytes>"),
    "a key that is a surrogate": (lambda: [{"\ud800": 1}], "[0].<key"),
    "an object that lets nobody look": (lambda: [[Hostile()]], "[0][0]"),
    "an object that says it is a dict": (lambda: [Liar()], "[0]"),
}


@pytest.mark.parametrize("what", CONTENTS)
def test_content_that_no_encoder_survives_is_refused_by_its_place(what: str) -> None:
    """The encoder follows nesting until the process dies, and writes what has no end; it is never given such a value,
    also in a thread, whose stack is small."""
    make, place = CONTENTS[what]
    raised: list[BaseException] = []

    def give() -> None:
        try:
            with toy_store("memory:") as store:
                store.run("r").submit(Open(account="a", note=make()), command_id="c")
        except BaseException as error:
            raised.append(error)

    threading.stack_size(256 * 1024)
    thread = threading.Thread(target=give)
    thread.start()
    thread.join()
    threading.stack_size(0)
    assert isinstance(raised[0], InvalidValue | LimitExceeded)
    assert place in str(raised[0]) or place in repr(raised[0].details)


OWN = (Text("x"), Shouted("x"), Word.YES, Number(1), Rank.FIRST, Real(1.5), Mapping(a=1), Listing([1]), Pair(1))


@pytest.mark.parametrize("value", OWN, ids=repr)
def test_content_of_types_of_ones_own_is_what_it_holds(value: Any) -> None:
    """A text of a class of its own is that text, a named tuple is that list: two commands that say so are the same."""
    assert decode(encode_exactly([value], "here"))[0] == (list(value) if isinstance(value, tuple) else value)
