"""Seeded walks of the testing kit's restore machine: some thousand steps a second over all its rules, each beside an
undisturbed twin. It must never say of a walk that failed more than its seed can show again.

One walk of eight is thorough: it looks at everything after every step, watches the fold, simulates the memory of
processes, and verifies and replays in another process in the end. The others look at what a step has touched, and at
everything after each restore.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from engine.testing import Walker, restore_machine
from projections.model import MODEL
from tests.guarantees.domain import bank_command
from tests.sweeps.harness import Tally
from tests.testing import planted, planted_more
from tests.toy import BANK

__all__ = ["SWEEP"]

STEPS: Final = 80
WALKS_A_CHUNK: Final = 48
THOROUGH_EVERY: Final = 8

_KINDS: Final[tuple[tuple[str, Any, dict[str, Any]], ...]] = (
    ("all four", MODEL, {}),
    ("bank", BANK, {"propose": bank_command}),
    ("all four", MODEL, {}),
    *((projection.name, projection, {}) for projection in MODEL.projections),
    ("bank", BANK, {"propose": bank_command}),
    ("all four", MODEL, {}),
    ("bags", planted.SOUND, {}),
    ("plain", planted_more.GREETER, {}),
    ("bank in a file", BANK, {"propose": bank_command, "backend": "sqlite"}),
)
"""What walks: a name, the model, and how its machine is made."""


@cache
def _walker(which: int) -> Walker:
    _, model, options = _KINDS[which]
    return Walker(restore_machine(model, **options), thorough_every=THOROUGH_EVERY)


class WalkSweep:
    """A chunk is some dozens of walks of one machine, with seeds of their own. A point is a step."""

    name = "walk"
    weight = 0.25
    round_size = None

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        which = number % len(_KINDS)
        name, walker = _KINDS[which][0], _walker(which)
        tally = Tally()
        walks = WALKS_A_CHUNK if at_most is None else max(1, min(WALKS_A_CHUNK, at_most // STEPS))
        for place in range(walks):
            seed = number * WALKS_A_CHUNK + place * WALKS_A_CHUNK // walks
            tally.points += STEPS
            tally.notes[name] += STEPS
            if tally.violations:  # the first one is made short, which takes a while; the others are only counted
                found = f"walk {seed} fails too" if walker.fails(seed, STEPS) else None
            else:
                failed = walker.walk(seed, STEPS)
                found = None if failed is None else " ; ".join(str(failed).splitlines())
            if found is not None:
                tally.violations.append(f"walk chunk {number} ({name}): {found}")
        return tally


SWEEP = WalkSweep()
