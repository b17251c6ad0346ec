"""A replica: a run's state as far as this process has folded it, and how it keeps up with the journal. It must never
answer from a state that the journal might not give back.

:class:`engine.run.Run` adds the commands. All of it works under one lock, so a run may be shared by threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from engine.asking import asked
from engine.core.envelope import Group, genesis
from engine.core.errors import Conflict, CorruptJournal, InvalidValue, NotFound, Refused
from engine.core.fields import check_id
from engine.core.model import Model
from engine.core.state import ModelState
from engine.restore import Restored, RestoreReport, StartAt, fold, restore
from engine.store import Checkpoints, Journal

__all__ = ["Draft", "Replica", "named"]

T = TypeVar("T")


class Draft:
    """A commit in the making: its groups, and what to go back to."""

    __slots__ = ("broken", "groups", "seq", "writing", "written")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.groups: list[Group] = []
        self.broken = False
        self.writing = self.written = False


class Replica:
    """The state of a run at ``position``, restored when it was opened and folded on from there."""

    def __init__(
        self, journal: Journal, checkpoints: Checkpoints, model: Model, run_id: str, *, start: StartAt = "best"
    ) -> None:
        self.id = named("run id", run_id)
        self._journal = journal
        self._checkpoints = checkpoints
        self._model = model
        self._lock = threading.RLock()
        self._folding = threading.Lock()  # held, under the other, while events are decided and folded
        self._draft: Draft | None = None  # the batch that is open: the state is the batch's
        self._behind = False  # a write may or may not have happened: look at the journal before the next step
        self._lost = False  # an interrupt left the state half-way: only the journal can give it back
        head = journal.head(self.id)
        if head is not None and head.hidden:
            raise Conflict(
                f"run {self.id!r} was deleted; forks still need its history", hint="use another id", run=self.id
            )
        self._at: Restored = restore(journal, checkpoints, model, self.id, start=start)
        self.restored: RestoreReport = self._at.report
        """How the run was restored when it was opened."""

    @property
    def position(self) -> int:
        """The seq of the last event this handle knows, 0 for none. Never one that may still be taken back by another
        thread."""
        with self._lock:
            self._not_from_within()
            if self._lost and self._draft is None:
                self._catch_up()
            return self._at.state.seq

    @property
    def model(self) -> Model:
        """The projections this run is folded into."""
        return self._model

    def ask(self, question: Callable[[ModelState], T]) -> T:
        """Return ``question(state)`` under the run's lock. The answer must share nothing mutable with the state."""
        with self._lock:
            self._ready()
            return asked(self.id, self._at.state, question)

    def ask_projection(self, name: str) -> Callable[[Callable[[Any], Any]], Any]:
        """Return the ``ask`` of one projection, as its Queries class takes it. Asking raises NotFound when the model
        has none of that name."""
        return lambda question: self.ask(lambda state: question(state.part(name)))

    def digest(self) -> str:
        """Return the state digest: SHA-256 over the deterministic encoding of everything the run is, 64 hex digits."""
        return self.ask(ModelState.digest)

    def state_bytes(self) -> bytes:
        """Return the deterministic encoding itself, for comparisons that want to see the difference."""
        return self.ask(ModelState.bytes)

    def link(self) -> str:
        """Return the hash chain's link at ``position``, 64 hex digits."""
        with self._lock:
            self._ready()
            return self._at.link.hex()

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def refresh(self) -> int:
        """Fold what other writers have appended since; return the new position. Raises CorruptJournal,
        BackendUnavailable."""
        with self._lock:
            self._not_from_within()
            if self._draft is not None:
                raise Refused("a batch is open on this run", hint="end it first, then refresh")
            self._catch_up()
            return self._at.state.seq

    def _ready(self) -> None:
        """Make sure that the state is what the journal gives, before anything is read or decided. Inside a batch it is
        the batch's."""
        self._not_from_within()
        if self._draft is None and (self._lost or self._behind):
            self._catch_up()

    def _catch_up(self) -> None:
        """Fold what is new; start over from the journal when the state cannot be trusted, or when folding fails
        half-way."""
        with self._folding:
            lost, self._lost = self._lost, True
            try:
                if lost:
                    self._at = self._restored_again()
                else:
                    fold(self._journal, self.id, self._at)
            except NotFound as error:
                raise self._another() from error
            except CorruptJournal as error:
                if not lost:
                    self._not_another(error)
                raise
            self._lost = self._behind = False

    def _restored_again(self) -> Restored:
        """Return what the journal gives. Raises NotFound when this handle knew events, and there are none any more."""
        again = restore(self._journal, self._checkpoints, self._model, self.id)
        if again.state.seq == 0 and self._at.link != genesis(self.id):
            self._journal.existing_head(self.id)
        return again

    def _not_another(self, error: CorruptJournal) -> None:
        """Raise Conflict when the journal is whole, only not ours: the run was deleted, and perhaps made anew."""
        try:
            head = self._journal.existing_head(self.id)
        except NotFound:
            pass
        else:
            if head.position < self._at.state.seq:
                return
            restore(self._journal, self._checkpoints, self._model, self.id)
        raise self._another() from error

    def _another(self) -> Conflict:
        return Conflict(
            f"run {self.id!r} was deleted, or made anew, since it was opened",
            hint="open it again with store.run(); nothing was written",
            run=self.id,
        )

    def _not_from_within(self) -> None:
        """Refuse what a projection asks of its own run while it decides or folds: the state is half-way there."""
        if self._folding.locked():  # we hold the other lock, so it is this very thread that holds this one
            raise Refused(
                f"run {self.id!r} was used while it decides or folds a command",
                hint="decide and evolve read nothing but their arguments; return the further events from decide",
            )


def named(what: str, value: Any) -> str:
    """Return a checked id. Raises InvalidValue naming the argument."""
    try:
        return check_id(value)
    except InvalidValue as error:
        raise error.at(what) from None
