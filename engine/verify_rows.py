"""The walk of verification over the stored rows of a run: chain, order, bytes, fields, fold, head record. It must never
stop at a fault: what comes after is followed from what is stored, so that a second one is named too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.core.believed import IMPOSSIBLE
from engine.core.codec import NotCanonical, decode_canonical
from engine.core.envelope import EVENTS, LINK_BYTES, Commit, body_of, genesis
from engine.core.errors import CorruptJournal, EngineError, InvalidValue, LimitExceeded, SchemaError
from engine.core.model import Model
from engine.core.state import ModelState
from engine.doubt import Doubt
from engine.store import Head, RawCommit, Segment, cut
from engine.store.lineage import truncated
from engine.store.row import open_row

__all__ = ["FROM_COPY", "Fault", "RowWalk"]

FROM_COPY = "what is before this position is intact; get the rest from a copy or an export"
_FOREIGN = "these bytes verify but refold would not have written them: another program did"
_HEAD = "the head record was changed by hand; the events themselves are intact"


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


class RowWalk:
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
                Fault(self.last + 1, "missing_origin", expected, f"the last one at {self.last}", FROM_COPY)
            )
            self._state, self.last = None, segment.high
        elif self._link != segment.joint and segment.joint is not None:
            found = "none" if self._link is None else f"link {self._link.hex()}"
            expected = f"link {segment.joint.hex()} where it left {segment.run_id!r}"
            self.faults.append(Fault(segment.high, "broken_joint", expected, found, FROM_COPY))
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
                    FROM_COPY,
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
            faults.append(Fault(row.first, "broken_link", error.expected, error.found, FROM_COPY))
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
            self.faults.append(Fault(self.last + 1, "missing_tail", f"commits up to {head.position}", found, FROM_COPY))
        elif self.last > head.position:
            found = f"one at {head.position}"
            self.faults.append(Fault(head.position + 1, "head_behind", f"a head record at {self.last}", found, _HEAD))
        elif self._link is not None and self._link != head.link:
            expected, found = f"link {self._link.hex()}", f"link {head.link.hex()}"
            self.faults.append(Fault(self.last, "head_link", expected, found, _HEAD))


def _doubted(seq: int, error: InvalidValue | LimitExceeded | SchemaError) -> Fault:
    """Return the fault of an event that refold would not have written, or that its own upcasts spoil."""
    if isinstance(error, SchemaError):
        return _unfoldable(seq, error)
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
