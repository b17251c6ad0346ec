"""Verify: is the record intact? Reads everything, changes nothing, and names every fault with its position."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from engine.core.errors import (
    BackendUnavailable,
    CorruptJournal,
    EngineError,
    NotAStore,
)
from engine.core.model import Model
from engine.divergence import off_the_fold
from engine.restore import restore
from engine.store import Checkpoints, Head, Journal, Outdated, Rejected
from engine.verify_rows import FROM_COPY, Fault, RowWalk

__all__ = ["Fault", "Verdict", "verify"]

_CHECKPOINT = "harmless: restore does not use it; 'refold checkpoint RUN --prune' removes it"


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
    walk = RowWalk(run_id, model, frozenset(positions))
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
        walk.faults.append(Fault(walk.last + 1, "unreadable", error.expected, error.found, FROM_COPY))
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


def _pass_by_if_outdated(checkpoints: Checkpoints, model: Model, run_id: str, position: int) -> None:
    """Raise Outdated when that is all that keeps a checkpoint from being used."""
    try:
        checkpoints.chain(run_id, position, model.fingerprint)
    except Outdated:
        raise
    except Rejected:
        return


def _check_checkpoint(
    journal: Journal, checkpoints: Checkpoints, model: Model, run_id: str, position: int, walk: RowWalk
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
