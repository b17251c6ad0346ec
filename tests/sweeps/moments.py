"""Kills at random moments: a writer that never stops is killed by a timer, wherever it is, and the same store goes on
with the next writer. It must never count a kill before which nothing could have been written.

Where the kill strikes differs from run to run; what the writer does is given by the chunk. Kills at every system call,
one by one, are the sweep ``kill``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.guarantees.domain import DOMAINS
from tests.guarantees.killed import killed
from tests.sweeps.harness import Tally

__all__ = ["SWEEP"]

KILLS_A_CHUNK: Final = 8


class MomentsSweep:
    """A chunk is one store, killed eight times."""

    name = "moments"
    weight = 0.02
    round_size = None

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        domain = DOMAINS[number % len(DOMAINS)]
        kills = KILLS_A_CHUNK if at_most is None else min(at_most, KILLS_A_CHUNK)
        killed(domain, folder / "refold.db", number * 1_000_000, kills)
        tally = Tally(points=kills)
        tally.notes[domain.name] += kills
        return tally


SWEEP = MomentsSweep()
