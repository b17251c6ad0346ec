"""Pruning: which checkpoints a restore would use, and removing those that it would not. It must never touch the
journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.core.model import Model
from engine.store import Checkpoints, Journal, Rejected
from engine.verify import verify

__all__ = ["CheckpointState", "list_checkpoints", "prune_checkpoints"]

_CODES: Final = frozenset(("bad_checkpoint", "checkpoint_ahead", "checkpoint_differs"))
"""The faults of verification that are about a checkpoint."""


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """A stored checkpoint: its position, what it holds, its size, and why a restore would not use it (None: it
    would)."""

    position: int
    kind: str
    size_bytes: int | None
    problem: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the checkpoint for ``--json``."""
        return {
            "position": self.position,
            "kind": self.kind,
            "size_bytes": self.size_bytes,
            "problem": self.problem,
        }


def list_checkpoints(journal: Journal, checkpoints: Checkpoints, model: Model, run_id: str) -> list[CheckpointState]:
    """Return the checkpoints of a run, newest first, by the checks that a restore makes before it folds. Raises
    NotFound."""
    journal.existing_head(run_id)
    found = []
    for position in checkpoints.positions(run_id):
        try:
            last = checkpoints.chain(run_id, position, model.fingerprint)[-1]
        except Rejected as error:
            found.append(CheckpointState(position, "unusable", None, str(error)))
            continue
        kind = "full" if last.base is None else f"changes since {last.base[0]}"
        fits = last.is_at(journal.link_at(run_id, position))
        problem = None if fits else "its link is not the journal's link there"
        found.append(CheckpointState(position, kind, last.size_bytes, problem))
    return found


def prune_checkpoints(journal: Journal, checkpoints: Checkpoints, model: Model, run_id: str) -> Sequence[int]:
    """Remove the checkpoints that verification faults, all after the first of them, which may rest on it, and those of
    code of another version; return the positions.

    Costs time at the next restore, no more. Raises NotFound, BackendUnavailable.
    """
    verdict = verify(journal, checkpoints, model, run_id)
    removed = set(verdict.outdated)
    for position in verdict.outdated:
        checkpoints.delete(run_id, gte=position, lte=position)
    bad = [fault.seq for fault in verdict.faults if fault.code in _CODES]
    if bad:
        removed.update(position for position in checkpoints.positions(run_id) if position >= min(bad))
        checkpoints.delete(run_id, gte=min(bad))
    return sorted(removed)
