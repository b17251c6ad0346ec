"""The slider: a view that moves along a run. A step forward folds one event; a step back takes one back. It must never
append, and never show a state that a restore at its position would not show.

Each event that is folded notes what its records were before, as a commit in the making does; going back puts them back
and folds nothing. Only beyond what was noted is the state restored, from the nearest checkpoint, a stretch further
back, so that the steps that follow find their notes. Memory is bounded: the notes of the last :data:`NOTED` events,
and one commit.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeAlias

from engine.core.believed import IMPOSSIBLE, impossible
from engine.core.envelope import EVENTS, Group
from engine.core.errors import CorruptJournal, NotFound
from engine.core.model import Model
from engine.core.table import Key, Table
from engine.restore import Restored, fold, restore
from engine.store import Checkpoints, Journal
from engine.view import RunView

__all__ = ["Slider"]

NOTED: Final = 1_000
"""Events that can be taken back without restoring."""

BACK: Final = 100
"""Events noted beforehand when a step back had to restore."""

FAR: Final = 1_000
"""Events ahead from which on they are folded by commits, from a checkpoint if there is one in between."""

_Noted: TypeAlias = tuple[Group, list[tuple[Table[Any], dict[Key, list[Any] | None]]]]
"""An event as a group of its own, and the records it touched as they were before (None: not there)."""


class Slider(RunView):
    """The state of a run at a position that can be moved. Made by ``run.slider(n)`` and ``store.slider(run, at=n)``.

    Everything that a view answers, it answers for where it stands; what it handed out before stays as it was. A move
    that fails leaves it where it was. One thread at a time.
    """

    def __init__(self, journal: Journal, checkpoints: Checkpoints, model: Model, run_id: str, position: int) -> None:
        super().__init__(journal, checkpoints, model, run_id, restore(journal, checkpoints, model, run_id, until=0))
        self._behind: deque[_Noted] = deque(maxlen=NOTED)
        self._ahead: deque[Group] = deque()
        self._read_until = 0
        self._torn: int | None = None  # where it stood when a move began that did not come to its end
        self.to(position)

    @property
    def _restored(self) -> Restored:
        if self._torn is not None:
            self._place(self._torn)
            self._torn = None
        return self._at

    # -- moving -------------------------------------------------------------------------------------------------------

    def forward(self, events: int = 1) -> int:
        """Go on by so many events, folding these alone; return the new position. Raises as :meth:`to`."""
        return self.to(self.position + events)

    def back(self, events: int = 1) -> int:
        """Go back by so many events; return the new position. Raises as :meth:`to`."""
        return self.to(self.position - events)

    def to(self, position: int) -> int:
        """Go to a position, also one that was appended since, the cheapest way; return it.

        Raises NotFound when there is none such, CorruptJournal.
        """
        stands = self.position
        if not 0 <= position <= self._read_until:
            self._check(position)
        self._torn = stands
        distance = position - stands
        if distance < -len(self._behind):
            self._place(position, BACK)
        elif distance < 0:
            self._take_back(-distance)
        elif distance <= FAR:
            self._fold_to(position)
        elif self._checkpoint_before(position) > stands:
            self._place(position)
        else:
            self._fold_far(position)
        self._torn = None
        return position

    def _check(self, position: int) -> None:
        head = self._journal.head(self.id)
        end = 0 if head is None else head.position
        if not 0 <= position <= end:
            raise NotFound(
                f"run {self.id!r} has no position {position}; it ends at {end}",
                hint=f"choose 0..{end}",
                run=self.id,
                position=position,
            )

    def _checkpoint_before(self, position: int) -> int:
        return next(iter(self._checkpoints.positions(self.id, until=position)), 0)

    # -- by commits ---------------------------------------------------------------------------------------------------

    def _place(self, position: int, noted: int = 0) -> None:
        """Restore before the commit that lies ``noted`` events before ``position``, and go on from there by events."""
        before = self._boundary(max(0, position - noted))
        self._stand(restore(self._journal, self._checkpoints, self._model, self.id, until=before))
        self._fold_to(position)

    def _fold_far(self, position: int) -> None:
        """Fold whole commits up to the one that holds ``position``, and go on from there by events."""
        self._fold_to(min(position, self._read_until))
        before = self._boundary(position)
        if before > self._read_until:
            fold(self._journal, self.id, self._at, until=before)
            self._stand(self._at)
        self._fold_to(position)

    def _boundary(self, position: int) -> int:
        """Return the end of the commit before the one that holds ``position``: from there the chain can be followed."""
        return next(
            (commit.first - 1 for commit in self._journal.containing(self.id, [position] if position else [])), 0
        )

    def _stand(self, at: Restored) -> None:
        """Stand at the end of a commit, with nothing noted and nothing read ahead."""
        self._at, self._read_until = at, at.state.seq
        self._behind.clear()
        self._ahead.clear()
        for table in at.state.tables.values():
            table.changed.clear()  # what a checkpoint would hold: a view takes none

    # -- by events ----------------------------------------------------------------------------------------------------

    def _fold_to(self, position: int) -> None:
        while self._at.state.seq < position:
            if not self._ahead:
                self._read_on()
            self._fold(self._ahead.popleft())

    def _read_on(self) -> None:
        """Read the next commit, and take it apart."""
        commit = next(self._journal.commits(self.id, after=self._read_until, link=self._at.link), None)
        if commit is None:
            expected = f"a commit at position {self._read_until + 1}"
            raise CorruptJournal(self.id, self._read_until + 1, expected, "none")
        for group in commit.groups:
            self._ahead.extend([*group[:EVENTS], [wire]] for wire in group[EVENTS])
        self._read_until, self._at.link = commit.last, commit.link

    def _fold(self, step: Group) -> None:
        """Fold one event, and note what it touches."""
        state = self._at.state
        before = state.begin()
        try:
            state.apply([step])
        except IMPOSSIBLE as error:
            raise impossible(self.id, before + 1, error) from error
        touched = [(table, dict(table.touched)) for table in state.tables.values() if table.touched]
        state.keep()
        for table, _ in touched:
            table.changed.clear()
        self._behind.append((step, touched))

    def _take_back(self, events: int) -> None:
        """Put back what the last events touched; what is derived is rebuilt once."""
        state = self._at.state
        for _ in range(events):
            step, touched = self._behind.pop()
            for table, records in touched:
                for key in reversed(records):
                    before = records[key]
                    if before is None:
                        table.rows.pop(key, None)
                    else:
                        table.rows[key] = table.load(before)
            state.seq -= 1
            self._ahead.appendleft(step)
        state.reindex()
