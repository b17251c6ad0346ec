"""Verify: is the record intact? Reads everything, changes nothing, and names every fault with its position."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from engine.core.believed import IMPOSSIBLE
from engine.core.codec import NotCanonical, decode_canonical
from engine.core.envelope import EVENTS, LINK_BYTES, Commit, body_of, genesis
from engine.core.errors import (
    BackendUnavailable,
    CorruptJournal,
    EngineError,
    InvalidValue,
    LimitExceeded,
    NotAStore,
    SchemaError,
)
from engine.core.model import Model
from engine.core.state import ModelState
from engine.divergence import off_the_fold
from engine.doubt import Doubt
from engine.restore import restore
from engine.store import Checkpoints, Head, Journal, Outdated, RawCommit, Rejected, Segment, cut
from engine.store.journal import open_row
from engine.store.lineage import truncated

__all__ = ["Fault", "Verdict", "verify"]

_FROM_COPY = "what is before this position is intact; get the rest from a copy or an export"
_FOREIGN = "these bytes verify but refold would not have written them: another program did"
_HEAD = "the head record was changed by hand; the events themselves are intact"
_CHECKPOINT = "harmless: restore does not use it; 'refold checkpoint RUN --prune' removes it"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is not as it was written. ``seq`` is the first position it concerns."""

    seq: int
    code: str
    expected: str
    found: str
    hint: str

    def to_json(self) -> dict[str, Any]:
        """Return the fault for ``--json``."""
        return {"seq": self.seq, "code": self.code, "expected": self.expected, "found": self.found, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification found: ``position`` is the last position up to which everything holds, ``events`` how many
    were read."""

    run: str
    position: int
    events: int
    checkpoints: int
    faults: tuple[Fault, ...]
    outdated: tuple[int, ...] = ()
    """Positions of checkpoints that code of another version wrote. Restores pass them by; that is no fault."""

    @property
    def ok(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for ``--json``."""
        return {
            "run": self.run,
            "ok": self.ok,
            "position": self.position,
            "faults": [fault.to_json() for fault in self.faults],
        }


def verify(
    journal: Journal,
    checkpoints: Checkpoints,
    model: Model,
    run_id: str,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Verdict:
    """Check the chain, the order, the canonical bytes, the fields of every event, that every event folds, the head
    record, and every checkpoint against the fold.

    After a fault the chain is followed on from what is stored, so that a second fault is named too; the fold stops at
    the first. Raises NotFound and BackendUnavailable only.
    """
    head = known = _head(journal, run_id)
    before = 0 if head is None else head.position
    positions, unreadable = _positions(checkpoints, run_id)
    walk = _Walk(run_id, model, frozenset(positions))
    walk.faults.extend(unreadable)
    try:
        for segment in journal.lineage(run_id):
            walk.enter(segment)
            for row in journal.raw(segment.run_id, after=segment.low):
                if segment.high is not None and walk.last >= segment.high:
                    break
                walk.row(row, segment.high)
                if progress is not None:
                    progress(walk.last, walk.last if head is None else head.position)
            walk.leave(segment)
        if head is not None and head.position < walk.last:
            head = _head(journal, run_id)  # a commit comes with its head: one that is still behind was not left by us
        if head is None or not head.position > walk.last > before:
            walk.end(head)  # else a writer has gone on since the last row was read
    except CorruptJournal as error:  # not even the rows can be listed to their end
        walk.faults.append(Fault(walk.last + 1, "unreadable", error.expected, error.found, _FROM_COPY))
    if walk.unfoldable is not None:
        with suppress(EngineError):  # what stands in front of it cannot be had any more: its commit is named
            until = walk.unfoldable[0].first - 1
            walk.name_exactly(restore(journal, checkpoints, model, run_id, until=until, start="genesis").state)
    outdated = []
    for position in positions:
        try:
            walk.faults.extend(_check_checkpoint(journal, checkpoints, model, run_id, position, walk))
        except Outdated:
            outdated.append(position)
    if walk.faults:
        journal.check_there(run_id, known)
    faults = tuple(sorted(walk.faults, key=lambda fault: (fault.seq, fault.code)))
    return Verdict(run_id, walk.intact_until, walk.last, len(positions), faults, tuple(outdated))


def _head(journal: Journal, run_id: str) -> Head | None:
    """Return the end of a run, be it a damaged one; None when only the record of it is missing. Raises NotFound."""
    try:
        return journal.existing_head(run_id)
    except CorruptJournal:
        return journal.head(run_id)


def _positions(checkpoints: Checkpoints, run_id: str) -> tuple[list[int], list[Fault]]:
    """Return the positions of the checkpoints, none and a fault when they cannot be listed."""
    try:
        return sorted(checkpoints.positions(run_id)), []
    except NotAStore as error:
        return [], [Fault(0, "bad_checkpoint", "checkpoints that can be read", error.message, _CHECKPOINT)]


class _Walk:
    """One pass over the stored rows of a run."""

    def __init__(self, run_id: str, model: Model, checkpoint_positions: frozenset[int]) -> None:
        self.run_id = run_id
        self.faults: list[Fault] = []
        self.last = 0
        self.intact_until = 0
        self.digests: dict[int, str] = {}
        """State digests of the fold where there is a checkpoint."""
        self._lost = False  # the row before is damaged: how many events it held is not known for sure
        self._wanted = checkpoint_positions
        self._link: bytes | None = genesis(
            run_id
        )  # None: the row before is gone, so the next cannot be checked against it
        self._state: ModelState | None = model.initial()  # None: after the first fault nothing can be folded
        self._doubt = Doubt(model.catalog)
        self.unfoldable: tuple[Commit, Fault] | None = None
        """The commit at which the fold stopped."""

    def enter(self, segment: Segment) -> None:
        """Go on in another stream: the run's own, or one that a fork shares."""
        self._link = segment.start

    def leave(self, segment: Segment) -> None:
        """Check that a shared stretch reaches the fork, and is the one that the fork left."""
        if segment.high is None:
            return
        if self.last < segment.high:
            expected = f"events of origin {segment.run_id!r} up to {segment.high}"
            self.faults.append(
                Fault(self.last + 1, "missing_origin", expected, f"the last one at {self.last}", _FROM_COPY)
            )
            self._state, self.last = None, segment.high
        elif self._link != segment.joint and segment.joint is not None:
            found = "none" if self._link is None else f"link {self._link.hex()}"
            expected = f"link {segment.joint.hex()} where it left {segment.run_id!r}"
            self.faults.append(Fault(segment.high, "broken_joint", expected, found, _FROM_COPY))
            self._state = None

    def row(self, row: RawCommit, high: int | None = None) -> None:
        """Check one row, of a shared stretch up to ``high``, and go on after it, whatever it holds."""
        faults: list[Fault] = []
        if self._lost and row.first > self.last:
            self.last = row.first - 1
        if row.first != self.last + 1:
            faults.append(
                Fault(
                    self.last + 1,
                    "missing_commit",
                    f"a commit at {self.last + 1}",
                    f"the next one at {row.first}",
                    _FROM_COPY,
                )
            )
            self._link = None
        before = self._link
        commit = self._open(row, faults)
        if commit is not None and high is not None and before is not None:
            commit = truncated(commit, high, before)
        if commit is not None and not faults:
            faults += [_doubted(seq, error) for seq, error in self._doubt.faults(commit)]
            self._fold_until(commit, min((fault.seq for fault in faults), default=None), faults)
        if faults:
            self._state = None
        last = commit.last if commit is not None else _last_of(row)
        self._lost = last is None
        self.last = row.first if last is None else last
        self._link = commit.link if commit is not None else _stored_link(row)
        self.faults.extend(faults)
        if self._state is not None:
            self.intact_until = self.last
            if self.last in self._wanted:
                self.digests[self.last] = self._state.digest()

    def _open(self, row: RawCommit, faults: list[Fault]) -> Commit | None:
        if self._link is None:
            return None
        try:
            commit = open_row(self.run_id, row, self._link)
            decode_canonical(body_of(row.stored))
        except CorruptJournal as error:
            faults.append(Fault(row.first, "broken_link", error.expected, error.found, _FROM_COPY))
        except SchemaError as error:
            faults.append(Fault(row.first, error.code, "a row of this format", error.message, error.hint))
        except NotCanonical as error:
            faults.append(Fault(row.first, "not_canonical", "the one canonical form", str(error), _FOREIGN))
        else:
            return commit
        return None

    def _fold_until(self, commit: Commit, bad: int | None, faults: list[Fault]) -> None:
        """Fold a commit, or what stands in it before its first bad event; add the fault of what does not fold."""
        if self._state is None:
            return
        try:
            self._state.apply(commit.groups if bad is None else cut(commit, bad - 1))
        except (EngineError, *IMPOSSIBLE) as error:
            faults.insert(0, _unfoldable(commit.first, error))
            self.unfoldable = commit, faults[0]
        else:
            if bad is not None:
                self.intact_until = bad - 1

    def name_exactly(self, state: ModelState) -> None:
        """Say which event of a commit did not fold, with the state before that commit."""
        assert self.unfoldable is not None
        commit, fault = self.unfoldable
        seq = commit.first - 1
        for group in commit.groups:
            for wire in group[EVENTS]:
                seq += 1
                try:
                    state.apply([[*group[:EVENTS], [wire]]])
                except (EngineError, *IMPOSSIBLE) as error:
                    self.faults[self.faults.index(fault)] = _unfoldable(seq, error)
                    self.intact_until = seq - 1
                    return

    def end(self, head: Head | None) -> None:
        """Compare the last row with the head record."""
        if head is None:
            expected = f"a head record at {self.last}"
            self.faults.append(Fault(self.last, "missing_head", expected, "none", _HEAD))
        elif self._lost and self.last < head.position:
            self.last = head.position  # the damaged row was the last one
        elif self.last < head.position:
            found = f"the last one at {self.last}"
            self.faults.append(
                Fault(self.last + 1, "missing_tail", f"commits up to {head.position}", found, _FROM_COPY)
            )
        elif self.last > head.position:
            found = f"one at {head.position}"
            self.faults.append(Fault(head.position + 1, "head_behind", f"a head record at {self.last}", found, _HEAD))
        elif self._link is not None and self._link != head.link:
            expected, found = f"link {self._link.hex()}", f"link {head.link.hex()}"
            self.faults.append(Fault(self.last, "head_link", expected, found, _HEAD))


def _doubted(seq: int, error: InvalidValue | LimitExceeded | SchemaError) -> Fault:
    """Return the fault of an event that refold would not have written, or that its own upcasts spoil."""
    if isinstance(error, SchemaError):
        return Fault(seq, error.code, "events that this refold can fold", error.message, error.hint)
    return Fault(seq, "impossible_event", "what refold would have written", error.message, _FOREIGN)


def _unfoldable(seq: int, error: BaseException) -> Fault:
    if isinstance(error, EngineError):
        return Fault(seq, error.code, "events that this refold can fold", error.message, error.hint)
    found = f"{type(error).__name__}: {error}"
    return Fault(seq, "impossible_event", "events that follow from those before", found, _FOREIGN)


def _stored_link(row: RawCommit) -> bytes | None:
    """Return the link that a damaged row states; what follows is checked against it, so that a second fault is named
    too."""
    return row.stored[:LINK_BYTES] if type(row.stored) is bytes else None


def _last_of(row: RawCommit) -> int | None:
    """Return the last position of a damaged row, None when its bytes do not tell."""
    try:
        groups = decode_canonical(body_of(row.stored))
        return max(row.first, row.first + sum(len(group[EVENTS]) for group in groups) - 1)
    except (NotCanonical, TypeError, IndexError, KeyError):
        return None


def _pass_by_if_outdated(checkpoints: Checkpoints, model: Model, run_id: str, position: int) -> None:
    """Raise Outdated when that is all that keeps a checkpoint from being used."""
    try:
        checkpoints.chain(run_id, position, model.fingerprint)
    except Outdated:
        raise
    except Rejected:
        return


def _check_checkpoint(
    journal: Journal, checkpoints: Checkpoints, model: Model, run_id: str, position: int, walk: _Walk
) -> list[Fault]:
    if position > walk.last:
        found = f"one that ends at {walk.last}"
        hint = "the journal was cut, or restored from an older copy than the checkpoints"
        return [Fault(position, "checkpoint_ahead", f"a journal that reaches {position}", found, hint)]
    try:
        restored = restore(journal, checkpoints, model, run_id, until=position, start=position)
    except BackendUnavailable:  # nothing is known about the checkpoint
        raise
    except EngineError as error:
        if position not in _positions(checkpoints, run_id)[0]:
            return []  # a writer has merged it into another since
        if isinstance(error, CorruptJournal) and any(fault.seq <= position for fault in walk.faults):
            return []  # it refers to what stands in the journal, and it is there that something is wrong
        _pass_by_if_outdated(checkpoints, model, run_id, position)
        return [Fault(position, "bad_checkpoint", "a checkpoint that verifies", error.message, _CHECKPOINT)]
    fold = walk.digests.get(position)
    if fold is not None and restored.state.digest() != fold:
        hint = "report it: the code folds differently now; 'refold checkpoint RUN --prune' removes it"
        apart = off_the_fold(journal, run_id, model, restored.state)
        found = f"state {restored.state.digest()}" + (f"; {apart}" if apart is not None else "")
        return [Fault(position, "checkpoint_differs", f"state {fold}", found, hint)]
    return []
