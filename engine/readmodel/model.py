"""The read model as a handle: what ``store.readmodel()`` gives. It must never be asked what a run is before a decision:
it shows what its rows were made of, and that may be a moment ago."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from engine.core.model import Model
from engine.readmodel.answer import Answer, Parameters, ask
from engine.readmodel.filters import Where, columns_of, find_rows, find_words
from engine.readmodel.place import Place
from engine.readmodel.schema import version_of
from engine.readmodel.update import CHUNK_EVENTS, Progress, Updated, Updater
from engine.readmodel.values import value_of
from engine.store import Checkpoints, Journal

__all__ = ["ReadModel"]


class ReadModel:
    """SQL over a store: tables of its runs, tasks, conversations, graphs, swarms and events, which SCHEMA.md describes.

    Any other SQLite tool may read ``path`` at the same time, also while it is updated. May be shared by threads. Close
    it, or use it as a context manager. Deleting the file costs a rebuild and nothing else.
    """

    def __init__(
        self,
        journal: Journal,
        checkpoints: Checkpoints,
        model: Model,
        path: Path | None,
        *,
        chunk_events: int = CHUNK_EVENTS,
    ) -> None:
        self._lock = threading.RLock()
        self._place = Place(path, version_of(model))
        self._updater = Updater(journal, checkpoints, model, self._place, chunk_events=chunk_events)
        self.updated = Updated()
        """What the last update did; its ``faults`` name the runs whose rows end before the run does."""

    @property
    def path(self) -> Path | None:
        """Where it lies; None when it is in memory."""
        return self._place.path

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def update(self, progress: Progress | None = None) -> Updated:
        """Take in what is new in the journal, of every run; return what was done.

        Costs what is new. Each event counts exactly once, also when other processes update at the same time or a crash
        strikes. A run that cannot be read to its end is named in ``faults``; the others move on. Raises
        BackendUnavailable, NotAStore.
        """
        with self._lock:
            self.updated = self._updater.update(progress)
            return self.updated

    def rebuild(self, progress: Progress | None = None) -> Updated:
        """Empty it and make every row anew; the content is the same as before. Others see it grow meanwhile."""
        with self._lock:
            self._place.reset()
            return self.update(progress)

    def positions(self) -> dict[str, int]:
        """Return how far each run was followed."""
        return {row["run"]: row["position"] for row in self.find("runs")}

    # -- asking -------------------------------------------------------------------------------------------------------

    def query(self, sql: str, parameters: Parameters = None) -> Answer:
        """Run one SELECT of the caller's, with ``{name: value}`` for ``:name`` or a list for ``?``. Reads only.

        The name of a table, a view or a documented question stands for its rows. Raises InvalidValue for SQL that
        SQLite refuses, ReadOnly for a statement that does more than read.
        """
        with self._lock:
            return ask(self._place, sql, parameters)

    def find(self, table: str, where: Where | None = None, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the rows of a table or view that match all of ``where``, as ``{column: value}``, in order of the key.

        ``where`` is ``{column: value}``, and for JSON ``{(column, step, ...): value}``: ``{("value", "region", 0):
        "eu"}``. Values are compared with their types; None is NULL, and at the end of a path null. JSON comes back as
        values. Raises NotFound for a table, InvalidValue for a column, a path or a value that cannot be.
        """
        columns = columns_of(table)
        with self._lock, ask(self._place, *find_rows(table, where or {}, limit)) as answer:
            try:
                return [
                    {column.name: value_of(stored, column.kind) for column, stored in zip(columns, row, strict=True)}
                    for row in answer
                ]
            except (ValueError, TypeError, AttributeError, RecursionError) as error:  # a cell that we did not write
                raise self._place.damaged(f"{table}: {error}") from error

    def search(self, words: str, *, run: str | None = None, limit: int | None = 20) -> list[dict[str, Any]]:
        """Return the messages that hold every one of these words, the best first: run, context, place, seq, role,
        ts_ms, folded_seq and ``found``, the words in their surroundings. Raises InvalidValue without a word."""
        with self._lock, ask(self._place, *find_words(words, run, limit)) as answer:
            return [dict(zip(answer.columns, row, strict=True)) for row in answer]

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the file. The store stays open; closing twice does nothing."""
        with self._lock:
            self._place.close()

    def __enter__(self) -> ReadModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
