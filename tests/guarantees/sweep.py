"""How long a sweep goes on: ``SWEEP_MINUTES`` for each test that loops, with every seed printed so that it can be run
again alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

__all__ = ["seeds"]


def seeds(first: int = 0) -> Iterator[int]:
    """Yield seeds until the time is up; ``SWEEP_SEED`` yields that one alone."""
    only = os.environ.get("SWEEP_SEED")
    if only is not None:
        yield int(only)
        return
    end = time.monotonic() + 60 * float(os.environ.get("SWEEP_MINUTES", "1"))
    seed = first
    while time.monotonic() < end:
        print(f"SWEEP_SEED={seed}", flush=True)
        yield seed
        seed += 1
