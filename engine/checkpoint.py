"""Checkpoints as a verb: when to take one, and taking it. Must never fail a command: a checkpoint that cannot be
written costs time later, no more."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from engine.core.errors import EngineError
from engine.restore import Restored
from engine.store import Checkpoints, Rejected, capture, merged

__all__ = ["CheckpointPolicy", "CheckpointTaken", "take_checkpoint"]

_CHAIN_BYTES_MIN: Final = 64 * 1024  # bytes of deltas that are no reason for a full checkpoint, however small that is
_DELTAS_MAX: Final = 64  # small deltas kept one by one before the older half is merged
_MERGED_BYTES_MAX: Final = 256 * 1024  # large deltas are kept: their surroundings weigh nothing
_log = logging.getLogger("refold")


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
    size, and past what is read in no time: then reading a chain would cost more than a full one.
    """
    state = at.state
    if state.seq == 0 or (at.base is not None and at.base[0] == state.seq and not full):
        return None
    delta = (
        at.base is not None
        and at.base[0] < state.seq
        and not full
        and at.chain_bytes <= max(at.full_bytes, _CHAIN_BYTES_MIN)
    )
    records = sum(len(table.changed if delta else table.rows) for table in state.tables.values())
    stored = capture(state, run_id, at.link, at.base if delta else None)
    checkpoints.put(run_id, state.seq, stored)
    at.base = None  # an interrupt from here on makes the next one full: half of what changed is noted no more
    for table in state.tables.values():
        table.changed.clear()
    at.base = (state.seq, at.link)
    if delta:
        at.chain_bytes += len(stored)
        at.deltas.append(state.seq)
        _merge_oldest(checkpoints, run_id, at)
    else:
        at.chain_bytes, at.full_bytes, at.deltas = 0, len(stored), []
    return CheckpointTaken(state.seq, not delta, records, len(stored))


def _merge_oldest(checkpoints: Checkpoints, run_id: str, at: Restored) -> None:
    """Put the older half of many small deltas into one: what a checkpoint costs on disk is mostly what surrounds it.

    The newest stay as they are, to be restored from one by one. That a merge did not happen loses nothing.
    """
    if len(at.deltas) < _DELTAS_MAX:
        return
    older = at.deltas[: _DELTAS_MAX // 2]
    at.deltas = at.deltas[_DELTAS_MAX // 2 :]
    try:
        read = [checkpoints.read(run_id, position, at.state.model.fingerprint) for position in older]
        # Another handle may have put one of its own in the place of one of ours: only what follows on can be joined.
        follows = all(after.base == (before.position, before.link) for before, after in pairwise(read))
        if follows and sum(checkpoint.size_bytes for checkpoint in read) <= _MERGED_BYTES_MAX:
            together = merged(read)
            checkpoints.put(run_id, older[-1], together, instead_of=older[:-1])
            at.chain_bytes -= sum(checkpoint.size_bytes for checkpoint in read) - len(together)
    except (Rejected, EngineError) as error:
        _log.info("run %s: checkpoints %s..%s not merged: %s", run_id, older[0], older[-1], error)
