"""Checkpoints as a verb: when to take one, and taking it. Must never fail a command: a checkpoint that cannot be
written costs time later, no more."""

from __future__ import annotations

from dataclasses import dataclass

from engine.restore import Restored
from engine.store import Checkpoints, capture

__all__ = ["CheckpointPolicy", "CheckpointTaken", "take_checkpoint"]


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """When a run checkpoints by itself: after so many events, or journal bytes, or when it is closed. None means never
    for that reason."""

    every_events: int | None = 10_000
    every_bytes: int | None = None
    on_close: bool = False

    def due(self, events: int, size_bytes: int) -> bool:
        """Return whether a checkpoint is due, ``events`` and ``size_bytes`` after the last one."""
        return (self.every_events is not None and events >= self.every_events) or (
            self.every_bytes is not None and size_bytes >= self.every_bytes
        )


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """A checkpoint that was written: its position, whether it is ``full`` or a delta, how many records and bytes it
    holds."""

    position: int
    full: bool
    records: int
    size_bytes: int


def take_checkpoint(
    checkpoints: Checkpoints, run_id: str, at: Restored, *, full: bool = False
) -> CheckpointTaken | None:
    """Write a checkpoint of ``at`` and make it the base of the next; return None when nothing happened since the last
    one.

    A delta, unless ``full`` is asked for, there is no base, or the deltas since the last full one have grown past its
    size: then reading
    a chain would cost more than a full one.
    """
    state = at.state
    if state.seq == 0 or (at.base is not None and at.base[0] == state.seq and not full):
        return None
    delta = at.base is not None and at.base[0] < state.seq and not full and at.chain_bytes <= at.full_bytes
    base = at.base if delta else None
    records = sum(len(table.changed if delta else table.rows) for table in state.tables.values())
    stored = capture(state, run_id, at.link, base)
    digest = checkpoints.put(run_id, state.seq, stored)
    for table in state.tables.values():
        table.changed.clear()
    at.base = (state.seq, digest)
    if delta:
        at.chain_bytes += len(stored)
    else:
        at.chain_bytes, at.full_bytes = 0, len(stored)
    return CheckpointTaken(state.seq, not delta, records, len(stored))
