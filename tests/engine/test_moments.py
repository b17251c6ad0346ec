"""Moments: a time names the last event that is not later, at a cost that does not grow with the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import moments
from engine.core.errors import CorruptJournal, InvalidValue, NotFound
from engine.moments import position_at
from engine.open_store import Store, open_store
from tests.app.conftest import flip
from tests.engine.kit import NEVER, toy_store
from tests.toy import Open, Pay


def filled(store: Store, commits: Sequence[Sequence[int]]) -> list[int]:
    """Give run ``r`` commits whose commands have these times; return the time of every event."""
    run = store.run("r")
    run.submit(Open(account="a"), at_ms=0)
    for times in commits:
        with run.batch():
            for at_ms in times:
                run.submit(Pay(account="a", amount=1), at_ms=at_ms)
    return [event.recorded_at_ms for event in store.history("r")]


def last_until(times: Sequence[int], moment: int) -> int:
    """Return the last position that is not later, by looking at all of them."""
    return max((seq for seq, at_ms in enumerate(times, start=1) if at_ms <= moment), default=0)


_commits = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=25)


@given(_commits, st.integers(0, 31))
def test_a_time_is_the_last_event_that_is_not_later(commits: list[list[int]], moment: int) -> None:
    """Whatever the clock did, in commits of one time and of several."""
    with toy_store("memory:") as store:
        times = filled(store, commits)
        assert position_at(store.journal, "r", moment) == last_until(times, moment)


@given(_commits, st.integers(0, 31), st.integers(1, 6))
def test_what_lies_behind_the_window_is_not_looked_at(commits: list[list[int]], moment: int, window: int) -> None:
    """Where a clock was put back by more events than the window, the answer is a crossing all the same: in time, and
    none in time within the window after it."""
    with toy_store("memory:") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "WINDOW_EVENTS", window)
        times = filled(store, commits)
        found = position_at(store.journal, "r", moment)
        assert found == 0 or times[found - 1] <= moment
        assert all(at_ms > moment for at_ms in times[found : found + window])


@given(_commits, st.data())
def test_a_fork_has_the_times_of_what_it_shares(commits: list[list[int]], data: st.DataObject) -> None:
    """Also where it left in the middle of a commit: what its origin did from there on is none of its own."""
    with toy_store("memory:") as store:
        times = filled(store, commits)
        at = data.draw(st.integers(0, len(times)))
        fork = store.run("r").fork("fork", at=at)
        own = data.draw(st.lists(st.integers(0, 30), max_size=4)) if at else []
        for at_ms in own:
            fork.submit(Pay(account="a", amount=2), at_ms=at_ms)
        for moment in (0, 7, 15, 30):
            assert position_at(store.journal, "fork", moment) == last_until(times[:at] + own, moment)


def test_a_long_run_is_not_read_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand commits a hundred are read, wherever the moment lies."""
    monkeypatch.setattr(moments, "WINDOW_EVENTS", 50)
    ticks = iter(range(0, 10**6, 10))
    with open_store("memory:", clock=lambda: next(ticks), checkpoints=NEVER) as store:
        run = store.run("r")
        run.tasks.open_root("root")
        for _ in range(9_999):
            run.tasks.report_usage("root", tokens=1)
        read = 0
        rows = store.journal._commits.rows

        def counting(*args: object, **span: object) -> Sequence[tuple[int, str, bytes]]:
            nonlocal read
            found = rows(*args, **span)  # type: ignore[arg-type]
            read += len(found)
            return found

        monkeypatch.setattr(store.journal._commits, "rows", counting)
        for moment in (0, 5, 12_345, 50_000, 99_989, 10**6):
            read = 0
            assert run.at(time_ms=moment).position == min(10_000, moment // 10 + 1)
            looked_up = read
            read = 0
            assert position_at(store.journal, "r", moment) == min(10_000, moment // 10 + 1)
            assert read <= 300 < 10_000 and looked_up >= read


def test_damage_is_named_where_it_is_met_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged commit that is looked at raises; times whose surroundings are whole are answered."""
    monkeypatch.setattr(moments, "WINDOW_EVENTS", 5)
    path = tmp_path / "s.db"
    with toy_store(path) as store:
        filled(store, [[at_ms] for at_ms in range(1, 200)])
    flip(path, "stored_events", 60)
    with toy_store(path) as store:
        assert position_at(store.journal, "r", 120) == 121
        assert position_at(store.journal, "r", 40) == 41
        with pytest.raises(CorruptJournal):
            position_at(store.journal, "r", 57)


@pytest.fixture
def store() -> Iterator[Store]:
    with toy_store("memory:") as opened:
        yield opened


def test_there_is_no_time_of_what_is_not_there(store: Store) -> None:
    """An unknown run is NotFound, a value that is no time InvalidValue."""
    filled(store, [[5]])
    with pytest.raises(NotFound):
        position_at(store.journal, "nobody", 5)
    for moment in (-1, 2**53, 1.5, True, None):
        with pytest.raises(InvalidValue):
            position_at(store.journal, "r", moment)  # type: ignore[arg-type]
