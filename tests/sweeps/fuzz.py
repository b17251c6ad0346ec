"""Fuzzing: hostile bytes and changed structures into everything that reads from outside: the codec, stored rows, the
store file, the importers, the command line, the read model. It must never count a case that the engine was not given.

What reads must end with a typed error or an answer, in bounded time and memory; it must import, construct and write
nothing; what was refused must have changed nothing; and what was taken must go out as it came in.
"""

from __future__ import annotations

import faulthandler
from pathlib import Path
from typing import Final

from tests.sweeps.fuzz_files import fuzz_read_model, fuzz_schema, fuzz_store_file
from tests.sweeps.fuzz_imports import fuzz_archive, fuzz_record, fuzz_recording
from tests.sweeps.fuzz_stored import fuzz_bombs, fuzz_codec, fuzz_stored
from tests.sweeps.fuzz_words import fuzz_words
from tests.sweeps.harness import Tally, chosen, seed_of

__all__ = ["SWEEP", "TARGETS"]

TARGETS: Final = {
    "codec": (fuzz_codec, 2_000),
    "bombs": (fuzz_bombs, 3),
    "stored": (fuzz_stored, 60),
    "store file": (fuzz_store_file, 40),
    "schema": (fuzz_schema, 40),
    "read model": (fuzz_read_model, 60),
    "archive": (fuzz_archive, 600),
    "record": (fuzz_record, 600),
    "recording": (fuzz_recording, 200),
    "words": (fuzz_words, 200),
}
"""Target -> what prepares it in an empty folder and returns how one case is tried, and how many cases make a chunk."""


HANGS_S: Final = 500


class FuzzSweep:
    """A chunk is one target with so many cases; each has dice of its own, so that it can be seen again alone."""

    name = "fuzz"
    weight = 0.1
    round_size = None

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        names = list(TARGETS)
        name = names[number % len(names)]
        prepare, count = TARGETS[name]
        faulthandler.dump_traceback_later(HANGS_S, exit=True)  # SQLite may compute without end, and no alarm ends it
        attempt = prepare(folder)
        tally = Tally()
        for case in chosen(count, at_most, seed_of("fuzz", number)):
            outcome, problems = attempt(seed_of("fuzz", number, case))
            tally.points += 1
            tally.notes[f"{name}: {outcome}"] += 1
            tally.violations += [f"fuzz chunk {number} ({name}) case {case}: {problem}" for problem in problems]
        faulthandler.cancel_dump_traceback_later()
        return tally


SWEEP = FuzzSweep()
