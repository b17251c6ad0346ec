"""A run that is deleted while it is read: at whatever step of the reading, the answer is the whole one, or that there
is no such run. It is never that the run is damaged, and never a part of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import open_store
from engine.core.errors import Conflict, NotFound
from engine.open_store import Store
from tests.engine.kit import BACKENDS, NEVER, url_of

READS = ("head", "heads", "rows", "positions", "read")
"""What a backend is asked for, a step each."""
EVENTS = 12


def filled(url: str) -> Store:
    """A store of a run ``r`` of single commits, with checkpoints, a fork ``f`` of it that went on, and one of that."""
    store = open_store(url, clock=lambda: 5, checkpoints=NEVER)
    run = store.run("r")
    run.tasks.open_root("root")
    for number in range(1, EVENTS):
        run.tasks.report_usage("root", tokens=number)
        if number in (3, 7):
            run.checkpoint()
    store.run("bystander").tasks.open_root("root")
    fork = store.fork("r", "f", at=9)
    for number in range(5):
        fork.tasks.report_usage("root", tokens=100 + number)
    fork.checkpoint()
    return store


def slid(store: Store, run: str) -> list[str]:
    """Move a view forwards and back."""
    slider = store.slider(run, at=3)
    digests = [slider.digest()]
    for position in (4, EVENTS - 1, 2):
        slider.to(position)
        digests.append(slider.digest())
    return digests


VERBS: dict[str, Callable[[Store, str], Any]] = {
    "view": lambda store, run: store.view(run).digest(),
    "view from genesis": lambda store, run: store.view(run, start="genesis").digest(),
    "view of before": lambda store, run: store.view(run, at=5).digest(),
    "view of the beginning": lambda store, run: store.view(run, at=0).digest(),
    "history": lambda store, run: list(store.history(run)),
    "history from the end": lambda store, run: list(store.history(run, newest_first=True)),
    "history until": lambda store, run: list(store.history(run, until=5)),
    "latest": lambda store, run: list(store.history(run, newest_first=True, limit=2)),
    "changes": lambda store, run: list(store.changes(run)),
    "verify": lambda store, run: store.verify(run),
    "export": lambda store, run: list(store.export_lines(run)),
    "export of before": lambda store, run: list(store.export_lines(run, at=5)),
    "slider": lambda store, run: store.slider(run).digest(),
    "slide": lambda store, run: slid(store, run),
    "divergence": lambda store, run: store.divergence(run, store.model),
    "diff": lambda store, run: store.run(run).diff(3, 10),
    "moment": lambda store, run: store.run(run).at(time_ms=5).position,
    "fork": lambda store, run: store.fork(run, "new", at=8).digest(),
    "damage listed": lambda store, run: [each.damage for each in store.runs() if each.damage is not None],
}
"""What is asked of a run; the answer can be compared."""


def deleting(store: Store, step: int, runs: tuple[str, ...]) -> tuple[list[int], Callable[[], None]]:
    """Delete runs just before the ``step``-th time from now that the backend is asked for something; return the count
    of the times, and what takes this back."""
    asked = [0]
    owners = (store.journal._commits, store.checkpoints._recorder)

    def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            asked[0] += 1
            if asked[0] == step:
                for run in runs:
                    store.delete(run)
            return method(*arguments, **named)

        return called

    found = [(owner, name) for owner in owners for name in READS if hasattr(owner, name)]
    for owner, name in found:
        setattr(owner, name, wrapped(getattr(owner, name)))

    def undo() -> None:
        for owner, name in found:
            delattr(owner, name)

    return asked, undo


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("run", "deleted"), [("r", ("r",)), ("r", ("f", "r")), ("f", ("f",)), ("f", ("r", "f")), ("f", ("r",))]
)
def test_a_run_deleted_at_any_step_of_reading_it(verb: str, run: str, deleted: tuple[str, ...]) -> None:
    """Hidden for a fork that needs it, or gone with its fork or its origin; or its origin is gone, and it is not."""
    read, step, whole = VERBS[verb], 0, None
    late = 0
    while True:
        with filled("memory:") as store:
            asked, undo = deleting(store, step, deleted)
            try:
                answer = read(store, run)
            except (NotFound, Conflict) as error:
                assert run in deleted, error
                assert "deleted" in str(error) or "no run" in str(error) or "no position" in str(error)
                late += 1
            else:
                if step == 0:
                    whole = answer
                assert answer == whole
            finally:
                undo()
            if step > asked[0]:
                break
        step += 1
    assert step > 1
    assert late > 0 or run not in deleted or verb == "damage listed"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("deleted", [("r",), ("f", "r")])
def test_a_handle_of_a_deleted_run_never_begins_it_anew(
    tmp_path: Path, backend: str, interrupted: bool, deleted: tuple[str, ...]
) -> None:
    """Hidden or gone, with its state in memory or to be restored: every command and every look at what is new is a
    conflict, the second like the first; and there is no run of that name afterwards."""
    with filled(url_of(backend, tmp_path)) as store:
        handle = store.run("r")
        for run in deleted:
            store.delete(run)
        for _ in range(3):
            handle._lost = handle._lost or interrupted
            for act in (handle.refresh, lambda: handle.tasks.report_usage("root", tokens=1)):
                with pytest.raises(Conflict):
                    act()
        assert "r" not in [each.run for each in store.runs()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_handle_notices_a_delete_that_took_no_event(tmp_path: Path, backend: str) -> None:
    """A fork at its end needs all of the run: nothing of it is missing, and it is deleted still."""
    with filled(url_of(backend, tmp_path)) as store:
        handle = store.run("r")
        store.fork("r", "whole", at=EVENTS)
        store.delete("r")
        with pytest.raises(Conflict, match="was deleted"):
            handle.refresh()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("deleted", [("r",), ("f", "r")])
def test_a_handle_of_a_deleted_run_leaves_no_checkpoint(tmp_path: Path, backend: str, deleted: tuple[str, ...]) -> None:
    """It would stay for ever: no delete of another run looks for it."""
    with filled(url_of(backend, tmp_path)) as store:
        handle = store.run("r")
        for run in deleted:
            store.delete(run)
        kept = list(store.checkpoints.positions("r"))
        with pytest.raises(NotFound, match="deleted"):
            handle.checkpoint(full=True)
        assert list(store.checkpoints.positions("r")) == kept == ([8, 4] if len(deleted) == 1 else [])


def test_of_two_deletes_at_once_each_takes_what_the_other_left() -> None:
    """While the one looks for what no fork needs any more, forks go that it has seen: it looks again."""
    for step in range(40):
        with filled("memory:") as store:
            store.fork("bystander", "its fork", at=1)
            store.fork("its fork", "the fork of that", at=1)
            store.delete("r")
            _, undo = deleting(store, step, ("its fork",))
            store.delete("f")
            undo()
            left = {head.run_id for head in store.journal._commits.heads()}
            assert left <= {"bystander", "its fork", "the fork of that"}
            assert all(store.verify(each.run).ok for each in store.runs())
