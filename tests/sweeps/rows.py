"""Every bit of every journal row and of every checkpoint of a run, flipped one at a time, past SQLite. It must never
accept a flip in the journal that is not named with its position by verify and by restore, nor a flipped checkpoint that
is used.

What such a flip looks like from below, in the file, is the sweep ``damage``; there an error need not know its position.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.engine.kit import raw
from tests.guarantees.domain import DOMAINS, Domain
from tests.guarantees.flipped import (
    Truth,
    flip_checkpoint,
    flip_row,
    make_checkpoints,
    make_journal,
    stored_checkpoints,
    stored_values,
)
from tests.sweeps.harness import Tally, chosen, seed_of

__all__ = ["SWEEP"]

PARTS: Final = 64
"""Into how many chunks the bits of a run are dealt."""
_CHUNKS: Final = tuple((domain, kind, part) for part in range(PARTS) for domain in DOMAINS for kind in "jc")


class RowsSweep:
    """A chunk is every 64th bit of the rows, or of the checkpoints, of one run. Once round there is nothing new."""

    name = "rows"
    weight = 0.12
    round_size = len(_CHUNKS)

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        domain, kind, part = _CHUNKS[number % len(_CHUNKS)]
        tally = Tally()
        (self._journal if kind == "j" else self._checkpoints)(domain, part, folder / "refold.db", at_most, tally)
        tally.violations = [f"rows chunk {number} ({domain.name}): {problem}" for problem in tally.violations]
        return tally

    def _journal(self, domain: Domain, part: int, path: Path, at_most: int | None, tally: Tally) -> None:
        make_journal(domain, path)
        values = stored_values(path)
        bits = [(value, bit) for value in values for bit in range(8 * len(value.stored))][part::PARTS]
        with domain.store(path) as store, raw(path) as connection:
            truth = Truth(store)
            for value, bit in (bits[index] for index in chosen(len(bits), at_most, seed_of("rows", part))):
                tally.points += 1
                tally.notes["in rows"] += 1
                try:
                    flip_row(connection, store, truth, value, bit)
                except AssertionError as error:
                    tally.violations.append(str(error))
            assert store.verify("r").ok, "the last flip was not taken back"

    def _checkpoints(self, domain: Domain, part: int, path: Path, at_most: int | None, tally: Tally) -> None:
        make_checkpoints(domain, path)
        with domain.store(path) as store:
            expected = store.run("r").digest()
            there = stored_checkpoints(store)
            bits = [(one, bit) for one in there for bit in range(8 * len(one.stored))][part::PARTS]
            for one, bit in (bits[index] for index in chosen(len(bits), at_most, seed_of("rows", part))):
                tally.points += 1
                tally.notes["in checkpoints"] += 1
                try:
                    flip_checkpoint(store, expected, one, bit)
                except AssertionError as error:
                    tally.violations.append(str(error))


SWEEP = RowsSweep()
