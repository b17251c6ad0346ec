"""Everything that can be asked of a store and a run in it, as functions that consume the whole answer. It must never
leave out a verb that reads; those that write come last, and by themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from engine.changes import with_changes
from engine.documents import document
from engine.moments import position_at
from engine.open_store import Store
from engine.prune import list_checkpoints

__all__ = ["ABOUT_DOMAIN", "ABOUT_RUN", "WRITING", "Question"]

Question: TypeAlias = Callable[[Store, str], Any]


def _all(items: Iterable[Any]) -> None:
    deque(items, maxlen=0)


def _history(store: Store, run: str) -> None:
    _all(event.to_json() for event in store.history(run))


def _filtered(store: Store, run: str) -> None:
    _all(store.history(run, task="fetch", newest_first=True, limit=5, since_ms=3, until_ms=10, cause=2, actor="host"))


def _changes(store: Store, run: str) -> None:
    events = store.history(run, newest_first=True)
    _all(with_changes(store.journal, store.checkpoints, store.model, run, events))


def _handle(store: Store, run: str) -> Any:
    handle = store.run(run)
    return handle.position, handle.link(), handle.digest(), handle.refresh()


def _halves(store: Store, run: str) -> Any:
    end = store.journal.existing_head(run).position
    return [store.view(run, at=at).state_bytes() for at in {0, end // 3, end // 2, max(0, end - 1)}]


def _each_checkpoint(store: Store, run: str) -> None:
    for position in store.checkpoints.positions(run)[:3]:
        store.view(run, start=position).digest()


def _read_model(store: Store, run: str) -> None:
    with store.readmodel("memory:") as model:
        for table in ("runs", "tasks", "events"):
            _all(model.find(table))


ABOUT_RUN: Final[dict[str, Question]] = {
    "runs": lambda store, run: list(store.runs()),
    "view": lambda store, run: store.view(run).digest(),
    "view from genesis": lambda store, run: store.view(run, start="genesis").digest(),
    "views": _halves,
    "each checkpoint": _each_checkpoint,
    "handle": _handle,
    "history": _history,
    "history backwards": lambda store, run: _all(store.history(run, newest_first=True)),
    "history filtered": _filtered,
    "changes": _changes,
    "position at": lambda store, run: position_at(store.journal, run, 1_050),
    "export": lambda store, run: _all(store.export_lines(run)),
    "verify": lambda store, run: store.verify(run).to_json(),
    "divergence": lambda store, run: store.divergence(run, store.model),
    "checkpoints": lambda store, run: list_checkpoints(store.journal, store.checkpoints, store.model, run),
}
"""What can be asked of a run of any model."""

ABOUT_DOMAIN: Final[dict[str, Question]] = {
    "document": lambda store, run: document(store.view(run)),
    "diff": lambda store, run: store.run(run).diff(1, 5),
    "why": lambda store, run: store.run(run).why("root"),
    "rows": lambda store, run: (store.view(run).tasks.rows().to_json(), store.run(run).tasks.due(10_000)),
    "read model": _read_model,
}
"""What can be asked of a run of refold's own projections."""

WRITING: Final[dict[str, Question]] = {
    "fork": lambda store, run: store.fork(run, "forked", at=2).digest(),
    "checkpoint": lambda store, run: store.run(run).checkpoint(full=True),
    "delete": lambda store, run: store.delete(run),
}
"""What writes; a store that was asked for these is another one."""
