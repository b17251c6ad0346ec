"""Acts on a run that are interrupted at one place after another, and what must hold after each. Nothing here may know
where the places are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from engine.open_store import Store
from engine.runs import LiveRun
from tests.engine.kit import fill
from tests.guarantees.interrupt import Strike
from tests.toy import Close, Open, Pay, Write

__all__ = ["ACTS", "READS", "places", "same_from_now_on", "struck"]

_NEVER: Final = 10**9


def batch(run: LiveRun) -> None:
    with run.batch():
        run.submit(Pay(account="a", amount=21), command_id="in-batch")
        run.submit(Close(account="b"))
        run.submit(Open(account="b"))


ACTS: dict[str, Callable[[LiveRun], Any]] = {
    "command": lambda run: run.submit(Pay(account="a", amount=20)),
    "command with id": lambda run: run.submit(Close(account="b"), command_id="close-b"),
    "no-op with id": lambda run: run.submit(Open(account="a"), command_id="again"),
    "facts": lambda run: run.ingest([("account.opened", {"account": "z"}), ("account.closed", {"account": "z"})]),
    "batch": batch,
}


def same_from_now_on(store: Store, run: LiveRun, name: str) -> None:
    """The run is what the journal says, and it and others can go on."""
    fresh = store.run(name, start="genesis")
    assert run.state_bytes() == fresh.state_bytes()
    assert (run.position, run.link()) == (fresh.position, fresh.link())
    assert run.ask(lambda state: state.parts["bank"].total) == fresh.ask(lambda state: state.parts["bank"].total)
    free = threading.Event()
    helper = threading.Thread(target=lambda: (run.digest(), free.set()))
    helper.start()
    helper.join(5)
    assert free.is_set(), "the run's lock is still held"
    before = run.position
    assert run.submit(Pay(account="a", amount=31)).position == before + 1
    with run.batch():
        run.submit(Write(account="a", letter="l"))
    fresh.refresh()
    assert fresh.submit(Pay(account="a", amount=32)).position == before + 3
    run.refresh()
    assert run.state_bytes() == fresh.state_bytes() == store.run(name).state_bytes()
    assert store.verify(name).ok


READS: dict[str, Callable[[LiveRun], Any]] = {
    "checkpoint": lambda run: run.checkpoint(),
    "refresh": lambda run: run.refresh(),
    "digest": lambda run: run.digest(),
}


def struck(store: Store, name: str, act: Callable[[LiveRun], Any], place: int) -> bool:
    """Interrupt an act at a place; the run must be wholly before it or wholly after it. Return whether there was such a
    place."""
    run = store.run(name)
    fill(run)
    run.checkpoint()
    run.submit(Open(account="c"))
    before = run.state_bytes()
    strike = Strike(place)
    try:
        with strike:
            act(run)
    except KeyboardInterrupt:
        assert strike.fired
    else:
        assert not strike.fired, f"an interrupt was swallowed in {strike.where}"
        return False
    store_says = store.run(name, start="genesis")
    assert run.state_bytes() == store_says.state_bytes(), strike.where
    assert run.position == store_says.position, strike.where
    if run.state_bytes() != before:
        assert run.position in (13, 14, 15), strike.where  # all of the act's events, whichever act it was
    if "b" not in run.ask(lambda state: dict(state.parts["bank"].accounts.rows)):
        run.submit(Open(account="b"))
    run.checkpoint()
    assert store.run(name).state_bytes() == run.state_bytes(), strike.where
    same_from_now_on(store, run, name)
    return True


def places(store: Store, name: str, act: Callable[[LiveRun], Any]) -> int:
    """Return how many places there are in an act."""
    run = store.run(name)
    fill(run)
    run.checkpoint()
    run.submit(Open(account="c"))
    strike = Strike(_NEVER)
    with strike:
        act(run)
    return _NEVER - strike.place
