"""The store: opens a database and hands out runs and the verbs on them. It must never hold state of a run; each run
does that for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from engine.archive import export_lines, import_lines
from engine.changes import FieldChange, with_changes
from engine.checkpoint import CheckpointPolicy
from engine.core.envelope import Event
from engine.core.errors import NotAStore
from engine.core.model import Model
from engine.divergence import Divergence, divergence
from engine.fork import Deleted, delete_run, fork_run
from engine.history import HistoryFilter, Wanted, history
from engine.restore import StartAt, restore
from engine.run import Clock, wall_clock_ms
from engine.runs import LiveRun, RunView, Slider
from engine.store import Backend, Checkpoints, Head, Journal, connect
from engine.verify import Verdict, verify
from projections.model import MODEL

if TYPE_CHECKING:
    from engine.readmodel import ReadModel

__all__ = ["RunSummary", "Store", "open_store"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of ``refold runs``: the run, its position, the link there (hex), the positions that have a checkpoint,
    newest first, and for a fork the run and position it left. ``damage`` says what contradicts the line in the run's
    last commit: then nothing in it is certain, and verification says more."""

    run: str
    position: int
    link: str
    checkpoints: tuple[int, ...]
    origin: str | None = None
    origin_position: int | None = None
    damage: str | None = None


def open_store(
    url: str | Path = "refold.db",
    *,
    create: bool = True,
    read_only: bool = False,
    model: Model = MODEL,
    clock: Clock = wall_clock_ms,
    checkpoints: CheckpointPolicy | None = None,
) -> Store:
    """Open a store: a path, ``sqlite:///path`` or ``memory:``. With ``create`` off a missing file is NotFound.

    ``clock`` gives Unix milliseconds for ``recorded_at``; ``checkpoints`` says when runs checkpoint by themselves
    (default: every 10,000
    events). Raises NotAStore, NotFound, SchemaError, BackendUnavailable. The store may be shared by threads; a forked
    child opens its own.
    """
    return Store(connect(url, create=create, read_only=read_only), model, clock, checkpoints or CheckpointPolicy())


class Store:
    """An open store. Close it, or use it as a context manager."""

    def __init__(
        self,
        backend: Backend,
        model: Model = MODEL,
        clock: Clock = wall_clock_ms,
        policy: CheckpointPolicy | None = None,
    ) -> None:
        self._backend = backend
        self.model = model
        self.journal = Journal(backend)
        self.checkpoints = Checkpoints(backend)
        self._clock = clock
        self._policy = policy or CheckpointPolicy()

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._backend.url

    def run(self, run_id: str, *, actor: str | None = None, start: StartAt = "best") -> LiveRun:
        """Return the run, restored from what is there, or new and empty; nothing is written until the first command."""
        return LiveRun(
            self.journal,
            self.checkpoints,
            self.model,
            run_id,
            actor=actor,
            clock=self._clock,
            policy=self._policy,
            start=start,
        )

    def view(
        self, run_id: str, *, at: int | None = None, start: StartAt = "best", progress: Progress | None = None
    ) -> RunView:
        """Return the whole state of an existing run at position ``at`` (default: its head), read-only. Raises
        NotFound, CorruptJournal."""
        known = self.journal.existing_head(run_id)
        restored = restore(self.journal, self.checkpoints, self.model, run_id, until=at, start=start, progress=progress)
        if restored.state.seq == 0 and at is None:
            self.journal.check_there(run_id, known)
        return RunView(self.journal, self.checkpoints, self.model, run_id, restored)

    def slider(self, run_id: str, *, at: int | None = None) -> Slider:
        """Return a view of an existing run that moves, at position ``at`` (default: its head); see
        :mod:`engine.slider`. Raises NotFound, CorruptJournal."""
        end = self.journal.existing_head(run_id).position
        return Slider(self.journal, self.checkpoints, self.model, run_id, end if at is None else at)

    def runs(self) -> Sequence[RunSummary]:
        """Return all runs, in order of id. Reads heads and last commits only, so one damaged run never hides the
        others; what is wrong with one stands in its ``damage``."""
        return [self._summary(head) for head in self.journal.heads()]

    def _summary(self, head: Head) -> RunSummary:
        origin = head.origin
        damage = self.journal.damage_at_end(head)
        try:
            checkpoints = tuple(self.checkpoints.positions(head.run_id))
        except NotAStore:  # they are damaged, and may cost time only
            checkpoints = ()
        return RunSummary(
            head.run_id,
            head.position,
            head.link.hex(),
            checkpoints,
            None if origin is None else origin.run_id,
            None if origin is None else origin.position,
            None if damage is None else damage.message,
        )

    def history(
        self,
        run_id: str,
        *,
        types: Iterable[str] | None = None,
        newest_first: bool = False,
        limit: int | None = None,
        **wanted: Unpack[Wanted],
    ) -> Iterator[Event]:
        """Yield the events of a run that match every filter; see :class:`engine.history.HistoryFilter`."""
        chosen = HistoryFilter(types=None if types is None else frozenset(types), **wanted)
        return history(self.journal, self.model, run_id, chosen, newest_first=newest_first, limit=limit)

    def changes(
        self,
        run_id: str,
        *,
        types: Iterable[str] | None = None,
        newest_first: bool = False,
        limit: int | None = None,
        **wanted: Unpack[Wanted],
    ) -> Iterator[tuple[Event, tuple[FieldChange, ...]]]:
        """Yield the events of :meth:`history`, each with what it changed, field by field; see
        :mod:`engine.changes`."""
        events = self.history(run_id, types=types, newest_first=newest_first, limit=limit, **wanted)
        return with_changes(self.journal, self.checkpoints, self.model, run_id, events)

    def fork(self, run_id: str, new_id: str, *, at: int) -> LiveRun:
        """Return a new run that shares the history of ``run_id`` up to ``at``; see :func:`engine.fork.fork_run`."""
        fork_run(self.journal, run_id, new_id, at)
        return self.run(new_id)

    def delete(self, run_id: str) -> Deleted:
        """Delete a run; what its forks need is kept out of sight. See :func:`engine.fork.delete_run`."""
        return delete_run(self.journal, run_id)

    def verify(self, run_id: str, *, progress: Progress | None = None) -> Verdict:
        """Check a run and its checkpoints; see :func:`engine.verify.verify`."""
        return verify(self.journal, self.checkpoints, self.model, run_id, progress=progress)

    def divergence(self, run_id: str, other: Model, *, until: int | None = None) -> Divergence | None:
        """Return the first event and field at which another model (another version of the code) folds a run otherwise;
        see :func:`engine.divergence.divergence`."""
        return divergence(self.journal, run_id, self.model, other, until=until)

    def export_lines(self, run_id: str, *, at: int | None = None) -> Iterator[str]:
        """Yield a run, or what it was at position ``at``, as JSON Lines; see :mod:`engine.archive`."""
        return export_lines(self.journal, self.model, run_id, until=at)

    def import_lines(self, lines: Iterable[str], *, run_id: str | None = None) -> tuple[str, int]:
        """Bring an exported run in; return (run id, position). See :mod:`engine.archive`."""
        return import_lines(self.journal, self.model, lines, run_id=run_id)

    def readmodel(
        self, path: str | Path | None = None, *, rebuild: bool = False, progress: Progress | None = None
    ) -> ReadModel:
        """Return the SQL read model, brought up to date: the runs as tables, see :mod:`engine.readmodel`.

        It lies in a file beside the store (``refold.read.db`` beside ``refold.db``), or at ``path``; in memory when
        that is ``memory:``, or the store is no file. ``rebuild`` makes every row anew. Raises NotAStore for a file of
        something else, which is left alone, and BackendUnavailable.
        """
        from engine.readmodel import ReadModel, beside  # sqlite-utils is not needed by whoever only runs

        file: Path | None = getattr(self._backend, "path", None)
        place = (None if file is None else beside(file)) if path is None else None if path == "memory:" else Path(path)
        opened = ReadModel(self.journal, self.checkpoints, self.model, place)
        try:
            (opened.rebuild if rebuild else opened.update)(progress)
        except BaseException:
            opened.close()
            raise
        return opened

    def close(self) -> None:
        """Release the database. Runs of this store raise BackendUnavailable from then on."""
        self._backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
