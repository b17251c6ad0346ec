"""History over the edges of the pages in which the journal is read (field reports T17 and T21): nothing is missed and
nothing comes twice, forwards and backwards, whatever the caller's own page holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.app.times import parse_time
from engine.store.heads import _PAGE_ROWS
from engine.store.reader import _PAGE_BACK
from tests.engine.kit import toy_store, url_of
from tests.toy import Open, Pay

EDGES = sorted({1, 2, *(page + by for page in (_PAGE_BACK, _PAGE_ROWS, 2 * _PAGE_ROWS) for by in (-1, 0, 1))})


def pages(store: Any, size: int, newest_first: bool) -> list[int]:
    """Return the seqs of a run's history, read page by page."""
    seqs: list[int] = []
    while True:
        left = {} if not seqs else {"until": seqs[-1] - 1} if newest_first else {"after": seqs[-1]}
        found = list(store.history("r", newest_first=newest_first, limit=size, **left))
        assert len(found) <= size
        if not found:
            return seqs
        seqs += [event.seq for event in found]


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.parametrize("count", EDGES)
def test_a_run_of_any_length_is_read_whole(tmp_path: Path, backend: str, count: int) -> None:
    """Runs of one commit, of a page less one, a page, a page and one: all events, in order, both ways."""
    with toy_store(url_of(backend, tmp_path)) as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        for _ in range(count - 1):
            run.submit(Pay(account="a", amount=1))
        whole = list(range(1, count + 1))
        assert [event.seq for event in store.history("r")] == whole
        assert [event.seq for event in store.history("r", newest_first=True)] == whole[::-1]
        assert pages(store, 7, False) == whole and pages(store, 7, True) == whole[::-1]


def test_a_run_of_a_hundred_pages_is_read_whole() -> None:
    """A hundred of the journal's pages: by pages of 1 at its ends, of 2, 7 and all, nothing is missing."""
    with toy_store("memory:") as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        for _ in range(100 * _PAGE_BACK):
            run.submit(Pay(account="a", amount=1))
        whole = list(range(1, run.position + 1))
        for size in (997, run.position, run.position + 1):
            assert pages(store, size, False) == whole and pages(store, size, True) == whole[::-1]
        for size in (1, 2, 7):
            last = whole[-size:]
            assert [event.seq for event in store.history("r", newest_first=True, limit=size)] == last[::-1]
            assert [event.seq for event in store.history("r", after=run.position - size)] == last


def test_times_are_milliseconds_on_both_sides() -> None:
    """Field report D28, where seconds were compared with milliseconds: a bound that is written as a date is in the
    same unit as what is recorded."""
    at_ms = parse_time("2026-05-01T12:00")
    with toy_store("memory:") as store:
        run = store.run("r")
        run.submit(Open(account="a"), at_ms=at_ms - 1)
        run.submit(Open(account="b"), at_ms=at_ms)
        run.submit(Open(account="c"), at_ms=at_ms + 1)
        assert [event.seq for event in run.history(since_ms=at_ms)] == [2, 3]
        assert [event.seq for event in run.history(until_ms=at_ms)] == [1, 2]
        assert run.at(time_ms=at_ms).position == 2
