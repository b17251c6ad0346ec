"""Divergence: where two folds of one journal part, named: the first event after which they differ, and the field. It
must never say that two states differ and leave it at that.

States may come together again later, so nothing here bisects: both folds go event by event, and after each only the
records that it touched are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from engine.core.believed import IMPOSSIBLE, impossible
from engine.core.catalog import Wire
from engine.core.codec import decode, encode
from engine.core.envelope import COMMAND_ID, EVENTS, FINGERPRINT, Group
from engine.core.errors import EngineError
from engine.core.model import Model
from engine.core.state import ModelState
from engine.core.table import Key
from engine.difference import Difference, difference, shown, touched
from engine.store import Journal, cut

__all__ = ["Divergence", "divergence", "last_touch", "off_the_fold", "wires_apart"]

_WHOLE_EVERY: Final = 512  # events between two comparisons of everything, which see what no table has noted
_WORK_MAX: Final = 200_000  # records compared, up to which everything is compared after every event
_FOLD_ERRORS: Final = (EngineError, *IMPOSSIBLE)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first event after which two folds differ (``seq`` 0: before any), and how."""

    seq: int
    event: str | None
    difference: Difference

    @property
    def path(self) -> str:
        """The path of the first field that differs, e.g. ``tasks.fetch.waiting_on[1]``."""
        return self.difference.path

    def __str__(self) -> str:
        where = "before the first event" if self.event is None else f"after event {self.seq} ({self.event})"
        return f"{where}: {self.difference}"

    def to_json(self) -> dict[str, Any]:
        """Return the divergence for ``--json``; values as text, for they may be anything."""
        left, right = shown(self.difference.left), shown(self.difference.right)
        return {"seq": self.seq, "event": self.event, "path": self.path, "left": left, "right": right}


def divergence(
    journal: Journal, run_id: str, model: Model, other: Model, *, until: int | None = None
) -> Divergence | None:
    """Fold a run under two models (two versions of the code) and return where they part first, None when they never do.

    A fold that fails where the other does not is a difference too. Raises what both raise, NotFound, CorruptJournal.
    """
    journal.existing_head(run_id)
    left, right = model.initial(), other.initial()
    try:
        found = wires_apart(_groups(journal, run_id, until), left, right)
    except IMPOSSIBLE as error:
        raise impossible(run_id, left.seq + 1, error) from error
    if found is None or found.event is None:
        return found
    # A record may have changed without a note of its table, and been compared only when a later event touched it. Fold
    # once more: comparing everything after every event when that is not too much, else the record that was found.
    work = left.seq * sum(len(table) for table in left.tables.values())
    if found.difference.key is None or work <= _WORK_MAX:
        again = wires_apart(_groups(journal, run_id, left.seq), model.initial(), other.initial(), whole_every=1)
    else:
        watched = found.difference.table, found.difference.key
        again = wires_apart(_groups(journal, run_id, left.seq), model.initial(), other.initial(), watched=watched)
    return again or found


def wires_apart(
    groups: Iterable[Group],
    left: ModelState,
    right: ModelState,
    *,
    whole_every: int = _WHOLE_EVERY,
    watched: tuple[str, Key] | None = None,
) -> Divergence | None:
    """Fold groups into two states, in place, and return where they part first.

    Compared are the records that an event touched and the one that is ``watched``, and everything now and then: what a
    fold changes without a note of its table is found late unless ``whole_every`` is 1. Each side gets events of its
    own, so that one which keeps or changes them cannot mislead.
    """
    if (at_once := difference(left, right)) is not None:
        return Divergence(left.seq, None, at_once)
    label, since = None, 0
    for group in groups:
        _note(group, left, right)
        for wire in group[EVENTS]:
            label, since = _label(left.model, wire), since + 1
            found = _step_both(wire, left, right, watched)
            if found is None and since >= whole_every:
                since, found = 0, difference(left, right)
            if found is not None:
                return Divergence(left.seq, label, found)
    rest = difference(left, right)
    return None if rest is None else Divergence(left.seq, label, rest)


def _groups(journal: Journal, run_id: str, until: int | None) -> Iterator[Group]:
    for commit in journal.commits(run_id, until=until):
        yield from cut(commit, until)


def _note(group: Group, *states: ModelState) -> None:
    if group[COMMAND_ID] is not None:
        for state in states:
            state.note(group[COMMAND_ID], group[FINGERPRINT], state.seq + 1, len(group[EVENTS]))


def _step_both(wire: Wire, left: ModelState, right: ModelState, watched: tuple[str, Key] | None) -> Difference | None:
    """Fold one event into both states and compare what it touched."""
    errors: list[Exception | None] = []
    for state in (left, right):
        for table in state.tables.values():
            table.changed.clear()
        try:
            _fold_one(state, wire)
            errors.append(None)
        except _FOLD_ERRORS as error:
            errors.append(error)
    one, other = errors
    if one is not None and other is not None:
        raise one
    if one is not None or other is not None:
        left_says = "folds" if one is None else f"{type(one).__name__}: {one}"
        right_says = "folds" if other is None else f"{type(other).__name__}: {other}"
        return Difference("the fold", _Said(left_says), _Said(right_says), "", None)
    if watched is not None:
        for state in (left, right):
            if watched[0] in state.tables:
                state.tables[watched[0]].changed[watched[1]] = None
    return touched(left, right)


def _fold_one(state: ModelState, wire: Wire) -> None:
    """Fold one event, as a copy: a fold that keeps or changes it must not reach the other side."""
    state.apply([[0, None, None, None, None, [decode(encode(wire))]]])


class _Said(str):
    """Text that is shown as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _label(model: Model, wire: Wire) -> str:
    try:
        current = model.catalog.type_of(wire)
        step = model.catalog.older.get(wire[0])
        return current.label if step is None else step.old.label
    except EngineError as error:
        return error.message


def last_touch(groups: Iterable[Group], state: ModelState, table: str, key: Key | None) -> tuple[int, str | None]:
    """Fold groups into ``state`` and return the last event (seq, type) that touched a record; (0, None) for none.

    What a state lacks that is otherwise right, this event brought.
    """
    seen: tuple[int, str | None] = (0, None)
    for group in groups:
        _note(group, state)
        for wire in group[EVENTS]:
            for each in state.tables.values():
                each.changed.clear()
            _fold_one(state, wire)
            if key in state.tables[table].changed:
                seen = (state.seq, _label(state.model, wire))
    return seen


def off_the_fold(journal: Journal, run_id: str, model: Model, state: ModelState) -> Divergence | None:
    """Return how a state that did not come from genesis (a checkpoint's, a live run's) differs from the fold up to its
    position, and since which event: the last one that touched the first record that differs."""
    fold = model.initial()
    fold.apply(_groups(journal, run_id, state.seq))
    found = difference(fold, state)
    if found is None:
        return None
    if found.table not in fold.tables:
        return Divergence(state.seq, None, found)
    seq, label = last_touch(_groups(journal, run_id, state.seq), model.initial(), found.table, found.key)
    return Divergence(seq, label, found)
