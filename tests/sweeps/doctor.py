"""The doctor, of a store with runs of every kind: each bit of its header turned, and a bit in each column of each
commit. It must never let the doctor miss what was turned, nor lose a commit that its link still proves.

The sweep ``damage`` asks every reader about every bit of a small store; here one reader is asked what it names, saves
and tells, which takes a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.engine.test_doctor_files import turn_in_the_header
from tests.engine.test_doctor_rows import COLUMNS, look_at_a_turned_bit
from tests.engine.wreck import make_wreck
from tests.sweeps.harness import Tally, chosen, seed_of, told

__all__ = ["SWEEP"]

HEADER_BYTES: Final = 100
PARTS: Final = 20
"""Into how many chunks the commits of the store are dealt, for each column."""
_ROUND: Final = (
    *(("header", byte) for byte in range(HEADER_BYTES)),
    *((column, part) for part in range(PARTS) for column in COLUMNS),
)


class DoctorSweep:
    """A chunk is the bits of one byte of the header, or every twentieth commit with a bit turned in one column; in
    later rounds other bits."""

    name = "doctor"
    weight = 0.08
    round_size = len(_ROUND)

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        turn, place = divmod(number, len(_ROUND))
        what, which = _ROUND[place]
        dice = seed_of("doctor", turn, what, which)
        tally = Tally()
        if what == "header":
            todo = [(which, bit) for bit in range(8)]
        else:
            commits = sorted(make_wreck(folder / "store").truth.numbers)[which::PARTS]
            todo = [(row, dice.randrange(1 << 20)) for row in commits]
        for at, bit in (todo[index] for index in chosen(len(todo), at_most, dice)):
            wreck = make_wreck(folder / "store")
            tally.points += 1
            tally.notes["in the header" if what == "header" else "in commits"] += 1
            try:
                if what == "header":
                    turn_in_the_header(wreck, at, bit)
                else:
                    look_at_a_turned_bit(wreck, at, what, bit)
            except AssertionError as error:
                tally.violations.append(f"doctor chunk {number}: {what} {at}, bit {bit}: {told(error)}")
        return tally


SWEEP = DoctorSweep()
