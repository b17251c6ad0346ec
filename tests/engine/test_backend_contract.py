"""What every backend owes the engine, one body for all of them: a new backend is finished when it passes this."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import IntegrityError
from hypothesis import given
from hypothesis import strategies as st

from engine.store import Backend, Head, Origin, connect
from tests.engine.kit import BACKENDS, url_of

TOPIC = "refold.commit/1"


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    opened = connect(url_of(request.param, tmp_path))
    yield opened
    opened.close()


def link(number: int) -> bytes:
    return number.to_bytes(32, "big")


def commit(backend: Backend, first: int, count: int = 1, run_id: str = "r", after: int | None = None) -> None:
    """Record a commit whose link is its last position, after the one whose link is ``after``."""
    last = first + count - 1
    before = None if after is None else link(after)
    backend.commits.record(run_id, first, TOPIC, b"state of %d" % first, Head(run_id, last, link(last)), before)


def test_what_is_recorded_is_there_with_its_head(backend: Backend) -> None:
    """A commit and the head it moves are recorded together, run by run."""
    assert backend.commits.head("r") is None
    commit(backend, 1, 3)
    commit(backend, 4, after=3)
    commit(backend, 1, run_id="a")
    assert backend.commits.head("r") == Head("r", 4, link(4))
    assert [head.run_id for head in backend.commits.heads()] == ["a", "r"]
    assert list(backend.commits.rows("r")) == [(1, TOPIC, b"state of 1"), (4, TOPIC, b"state of 4")]
    assert list(backend.commits.rows("nobody")) == []


@pytest.mark.parametrize(
    ("first", "after"),
    [(1, None), (1, 3), (4, 2), (4, None), (5, 3), (6, 5), (3, 2), (4, 999)],
)
def test_a_writer_that_is_not_at_the_head_is_refused(backend: Backend, first: int, after: int | None) -> None:
    """Unless position and link are those of the head, nothing is written: neither the commit nor the head."""
    commit(backend, 1, 3)
    rows, head = list(backend.commits.rows("r")), backend.commits.head("r")
    with pytest.raises(IntegrityError):
        commit(backend, first, after=after)
    assert (list(backend.commits.rows("r")), backend.commits.head("r")) == (rows, head)
    commit(backend, 4, after=3)


def test_one_of_many_threads_gets_a_position(backend: Backend) -> None:
    """Of writers that come at once exactly one is recorded."""
    results: list[str] = []
    gate = threading.Barrier(6)

    def write(number: int) -> None:
        gate.wait()
        try:
            commit(backend, 1, number + 1)
            results.append("won")
        except IntegrityError:
            results.append("lost")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["lost"] * 5 + ["won"]
    assert len(backend.commits.rows("r")) == 1


@given(
    firsts=st.sets(st.integers(1, 30), min_size=1, max_size=12),
    gt=st.none() | st.integers(0, 32),
    lte=st.none() | st.integers(0, 32),
    desc=st.booleans(),
    limit=st.none() | st.integers(1, 15),
)
@pytest.mark.parametrize("name", BACKENDS)
def test_rows_are_a_slice_in_order(
    name: str, tmp_path_factory: Any, firsts: set[int], gt: int | None, lte: int | None, desc: bool, limit: int | None
) -> None:
    """Whatever slice is asked for, it is what a list of all rows gives, in order or from the end."""
    backend = connect(url_of(name, tmp_path_factory.mktemp("rows")))
    ordered = sorted(firsts)
    ends = [following - 1 for following in ordered[1:]] + [ordered[-1]]
    commit(backend, 1, run_id="o")
    low = ordered[0] - 1
    backend.commits.create(Head("r", low, link(low), Origin("o", low, link(0))), None)
    for first, last, before in zip(ordered, ends, [ordered[0] - 1, *ends], strict=False):
        commit(backend, first, last - first + 1, after=before)
    expected = [first for first in ordered if (gt is None or first > gt) and (lte is None or first <= lte)]
    if desc:
        expected.reverse()
    found = backend.commits.rows("r", gt=gt, lte=lte, desc=desc, limit=limit)
    assert [first for first, _, _ in found] == expected[:limit]
    stored = backend.commits.select_events("r", gt=gt, lte=lte, desc=desc, limit=limit)  # type: ignore[attr-defined]
    assert [(event.originator_version, event.topic, event.state) for event in stored] == list(found)
    backend.close()


def test_a_head_of_its_own(backend: Backend) -> None:
    """A run without commits of its own has a head with its origin; it cannot be made twice, and its first commit
    keeps the origin."""
    commit(backend, 1, 5)
    forked = Head("fork", 5, link(77), Origin("r", 5, link(5)))
    backend.commits.create(forked, (1, b"state"))
    assert backend.commits.head("fork") == forked
    with pytest.raises(IntegrityError):
        backend.commits.create(forked, (1, b"state"))
    commit(backend, 6, run_id="fork", after=77)
    assert backend.commits.head("fork") == Head("fork", 6, link(6), Origin("r", 5, link(5)))


@pytest.mark.parametrize("holding", [(2, b"state of 1"), (1, b"state of 2"), (3, b"")])
def test_a_fork_of_what_is_not_there_any_more_is_not_made(backend: Backend, holding: tuple[int, bytes]) -> None:
    """Its origin may be deleted, or deleted and made anew, while it is made: no such row, another row, no such run."""
    commit(backend, 1, 5)
    with pytest.raises(IntegrityError):
        backend.commits.create(Head("fork", 5, link(77), Origin("r", 5, link(5))), holding)
    with pytest.raises(IntegrityError):
        backend.commits.create(Head("fork", 0, link(77), Origin("nobody", 0, link(0))), None)
    assert backend.commits.head("fork") is None
    backend.commits.create(Head("fork", 0, link(77), Origin("r", 0, link(0))), None)


def test_nothing_is_erased_that_a_fork_needs(backend: Backend) -> None:
    """A fork may be made while its origin is being deleted: what it needs stays, and so does all the rest."""
    commit(backend, 1, 2)
    commit(backend, 3, after=2)
    backend.commits.create(Head("fork", 3, link(77), Origin("r", 3, link(3))), (3, b"state of 3"))
    for needed in (None, 0, 2):
        with pytest.raises(IntegrityError):
            backend.commits.erase("r", needed=needed)
    with pytest.raises(IntegrityError):
        backend.commits.erase("nobody", needed=None)
    assert backend.commits.head("r") == Head("r", 3, link(3))
    assert [first for first, _, _ in backend.commits.rows("r")] == [1, 3]
    backend.commits.erase("r", needed=3)
    assert [first for first, _, _ in backend.commits.rows("r")] == [1, 3]


def test_what_is_erased_is_gone_or_out_of_sight(backend: Backend) -> None:
    """Erased whole, a run can begin anew; hidden, it keeps what was asked for and takes no commit."""
    for run_id in ("gone", "hidden"):
        commit(backend, 1, 2, run_id=run_id)
        commit(backend, 3, run_id=run_id, after=2)
    backend.commits.erase("gone", needed=None)
    assert (backend.commits.head("gone"), list(backend.commits.rows("gone"))) == (None, [])
    commit(backend, 1, run_id="gone")
    backend.commits.erase("hidden", needed=2)
    head = backend.commits.head("hidden")
    assert head is not None
    assert head.hidden
    assert [first for first, _, _ in backend.commits.rows("hidden")] == [1]
    for first, after in ((1, None), (3, 2), (4, 3)):
        with pytest.raises(IntegrityError):
            commit(backend, first, run_id="hidden", after=after)


def test_checkpoints_are_put_replaced_listed_and_deleted(backend: Backend) -> None:
    """They are kept by run and position, newest first; putting one replaces what it is told to, and no other."""
    recorder = backend.checkpoints
    for run_id in ("r", "other"):
        commit(backend, 1, 20, run_id=run_id)
    for position in (5, 10, 15):
        recorder.put("r", position, "t", b"%d" % position, ())
    recorder.put("other", 10, "t", b"other", ())
    assert list(recorder.positions("r")) == [15, 10, 5]
    assert list(recorder.positions("r", lte=14)) == [10, 5]
    assert recorder.read("r", 10) == ("t", b"10")
    assert recorder.read("r", 11) is None
    recorder.put("r", 10, "u", b"again", (10,))
    assert recorder.read("r", 10) == ("u", b"again")
    recorder.put("r", 20, "t", b"20", (5, 15, 99))
    assert list(recorder.positions("r")) == [20, 10]
    assert recorder.delete("r", gte=15) == 1
    assert recorder.delete("r") == 1
    assert recorder.delete("r") == 0
    assert recorder.read("other", 10) == ("t", b"other")


def test_checkpoints_go_with_what_they_are_of(backend: Backend) -> None:
    """Erased with the commits after what is needed; none can be put for a run that is not there, or not to be seen: it
    would stay for ever."""
    recorder = backend.checkpoints
    for run_id in ("gone", "hidden", "other"):
        commit(backend, 1, 5, run_id=run_id)
        for position in (2, 3, 5):
            recorder.put(run_id, position, "t", b"", ())
    backend.commits.erase("gone", needed=None)
    backend.commits.erase("hidden", needed=3)
    kept = {"gone": [], "hidden": [3, 2], "other": [5, 3, 2], "nobody": []}
    for run_id in ("gone", "hidden", "nobody"):
        with pytest.raises(IntegrityError):
            recorder.put(run_id, 4, "t", b"", (2,))
    assert {run_id: list(recorder.positions(run_id)) for run_id in kept} == kept


def test_bytes_are_kept_to_the_last_bit(backend: Backend) -> None:
    """Any bytes, none and many, come back as they were, under any name of a run."""
    for run_id, state in {"é\u0301": b"", "日本": bytes(range(256)) * 4000, "'; --": b"\0'"}.items():
        backend.commits.record(run_id, 1, TOPIC, state, Head(run_id, 1, link(1)), None)
        assert list(backend.commits.rows(run_id)) == [(1, TOPIC, state)]
        backend.checkpoints.put(run_id, 1, "t", state, ())
        assert backend.checkpoints.read(run_id, 1) == ("t", state)
    assert {head.run_id for head in backend.commits.heads()} == {"é\u0301", "日本", "'; --"}
