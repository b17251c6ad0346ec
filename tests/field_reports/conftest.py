"""The stores that the reports are tested on: the toy's and refold's own, on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.core.envelope import EVENTS, Group
from engine.open_store import Store, open_store
from engine.store import cut
from tests.engine.kit import BACKENDS, NEVER, Ticks, toy_store, url_of
from tests.field_reports.whole_run import TAKE_OVER, live


@pytest.fixture(params=BACKENDS)
def toy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of the toy model on every backend: what holds on one holds on all."""
    with toy_store(url_of(request.param, tmp_path), clock=Ticks()) as opened:
        yield opened


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of refold's own model on every backend."""
    with open_store(url_of(request.param, tmp_path), checkpoints=NEVER, clock=Ticks()) as opened:
        yield opened


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    """An empty store of refold's own model in a file, ``tmp_path / "refold.db"``."""
    with open_store(tmp_path / "refold.db", checkpoints=NEVER, clock=Ticks()) as opened:
        yield opened


@pytest.fixture(scope="session")
def whole() -> Store:
    """A store in memory with the run ``r`` in which everything happened, but for what ``taken over`` holds. For
    reading only."""
    opened = open_store("memory:", checkpoints=NEVER, clock=Ticks())
    for _ in live(opened.run("r", actor="host")):
        pass
    TAKE_OVER(opened.run("taken over"))
    return opened


@pytest.fixture(scope="session")
def lines(whole: Store) -> list[str]:
    """The export of the run in which everything happened."""
    return list(whole.export_lines("r"))


@pytest.fixture(scope="session")
def states(whole: Store) -> list[bytes]:
    """The bytes of the state at every position of the run in which everything happened, folded event by event."""
    state = whole.model.initial()
    found = [state.bytes()]
    for commit in whole.journal.commits("r"):
        for position in range(commit.first, commit.last + 1):
            before = [] if position == commit.first else cut(commit, position - 1)
            done = sum(len(group[EVENTS]) for group in before)
            state.apply(_rest(cut(commit, position), done))
            found.append(state.bytes())
    return found


def _rest(groups: list[Group], done: int) -> list[Group]:
    """Return groups without their first ``done`` events."""
    left = []
    for group in groups:
        events = group[EVENTS][done:]
        done = max(0, done - len(group[EVENTS]))
        if events:
            left.append([*group[:EVENTS], events])
    return left
