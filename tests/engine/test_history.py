"""History: what is shown is exactly what a plain filter over all events gives, forwards and backwards, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import NotFound
from engine.open_store import Store
from tests.engine.kit import toy_store
from tests.toy import Close, Open, Pay, Write


def busy(store: Store) -> None:
    """Runs ``r`` and a fork of it from the middle of a commit, with actors, ids, causes and times to filter by."""
    run = store.run("r")
    for number in range(12):
        actor = ("x", "y", None)[number % 3]
        with run.batch():
            run.submit(Open(account=f"a{number}"), actor=actor, at_ms=100 + number, command_id=f"open-{number}")
            run.submit(Pay(account=f"a{number}", amount=number + 20), actor=actor, at_ms=100 + number, cause="why")
            run.submit(Write(account=f"a{number}", letter=number), at_ms=99, cause=1)
        if number % 4 == 3:
            run.submit(Close(account=f"a{number - 1}"), actor=actor, at_ms=50)
    store.fork("r", "fork", at=20)
    fork = store.run("fork")
    fork.submit(Open(account="mine"), actor="y", at_ms=150)


STORE = toy_store("memory:")
busy(STORE)
ALL = {name: list(STORE.history(name)) for name in ("r", "fork")}

filters = st.fixed_dictionaries(
    {},
    optional={
        "types": st.sets(
            st.sampled_from(["account.paid", "account.paid/2", "account.paid/1", "account", "opened", "x"])
        ),
        "actor": st.sampled_from(["x", "y", "z"]),
        "command_id": st.sampled_from(["open-3", "open-99"]),
        "cause": st.sampled_from(["why", 1, 2, "open-3"]),
        "after": st.integers(-1, 45),
        "until": st.integers(-1, 60),
        "since_ms": st.integers(40, 120),
        "until_ms": st.integers(40, 120),
    },
)


def shown(event: Any, wanted: dict[str, Any]) -> bool:
    """Return whether an event is wanted, by the words of the documentation."""
    name = event.type.split("/")[0]
    checks = {
        "types": lambda types: bool(types & {event.type, name, name.split(".")[0]}),
        "actor": lambda actor: event.actor == actor,
        "command_id": lambda command_id: event.command_id == command_id,
        "cause": lambda cause: event.cause == cause,
        "after": lambda after: event.seq > after,
        "until": lambda until: event.seq <= until,
        "since_ms": lambda since: event.recorded_at_ms >= since,
        "until_ms": lambda until: event.recorded_at_ms <= until,
    }
    return all(checks[key](value) for key, value in wanted.items())


@given(st.sampled_from(["r", "fork"]), filters, st.booleans(), st.none() | st.integers(0, 7))
def test_history_is_a_plain_filter(name: str, wanted: dict[str, Any], newest_first: bool, limit: int | None) -> None:
    """Every combination of filters gives exactly the events that match, in the order asked for, up to the limit."""
    expected = [event for event in ALL[name] if shown(event, wanted)]
    if newest_first:
        expected.reverse()
    found = list(STORE.history(name, **wanted, newest_first=newest_first, limit=limit))
    assert found == expected[: len(expected) if limit is None else limit]


@pytest.mark.parametrize("page", [1, 2, 7, 100])
def test_pages_put_together_are_the_whole(page: int) -> None:
    """Going on after the last seq forwards, or before it backwards, misses nothing and shows nothing twice."""
    forwards: list[Any] = []
    while found := list(STORE.history("fork", after=forwards[-1].seq if forwards else 0, limit=page)):
        forwards += found
    backwards: list[Any] = []
    until = None
    while found := list(STORE.history("fork", until=until, newest_first=True, limit=page)):
        backwards += found
        until = found[-1].seq - 1
    assert forwards == ALL["fork"] == backwards[::-1]


def test_what_is_shown_is_a_copy() -> None:
    """Changing what history gave changes nothing that it will give."""
    for event in STORE.history("r", limit=3):
        event.data.clear()
    assert list(STORE.history("r")) == ALL["r"]


def test_a_run_that_is_not_there_has_no_history(store: Store) -> None:
    """It is NotFound, not an empty list."""
    with pytest.raises(NotFound):
        list(store.history("nobody"))
