"""Interrupts at every place: an act is struck by a KeyboardInterrupt at each place in our code where the interpreter
would let one through, on entering a function and on coming back from any call; and runs are struck again and again all
their life. It must never count a place that was not struck.

The sweep ``calls`` strikes more verbs, at calls into C and as functions begin; here every return of our own functions
is a place too.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from engine.core.errors import EngineError
from tests.engine.kit import toy_store
from tests.guarantees.domain import DOMAINS, play
from tests.guarantees.interrupt import Strike
from tests.guarantees.struck import ACTS, READS, places, struck
from tests.sweeps.calls import impatient
from tests.sweeps.harness import Tally, chosen, seed_of, told

__all__ = ["SWEEP"]

PARTS: Final = 12
"""Into how many chunks the places of an act are dealt."""
STRIKES_A_LIFE: Final = 60
_ACTS: Final = {**ACTS, **READS}
_CHUNKS: Final = tuple((act, part) for part in range(PARTS) for act in _ACTS)


class InterruptsSweep:
    """A chunk of the round is every twelfth place of one act; after the round, a chunk is a life."""

    name = "interrupts"
    weight = 0.03
    round_size = len(_CHUNKS)

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        tally = Tally()
        with impatient():
            if number < len(_CHUNKS):
                self._act(*_CHUNKS[number], folder, at_most, tally)
            else:
                self._life(number, folder, at_most, tally)
        tally.violations = [f"interrupts chunk {number}: {problem}" for problem in tally.violations]
        return tally

    def _act(self, act: str, part: int, folder: Path, at_most: int | None, tally: Tally) -> None:
        with toy_store(folder / "refold.db") as store:
            mine = range(part, places(store, "counted", _ACTS[act]), PARTS)
            for index in chosen(len(mine), at_most, seed_of("interrupts", act, part)):
                try:
                    if not struck(store, f"r{index}", _ACTS[act], mine[index]):
                        continue  # what is done for the first time has more places
                    tally.points += 1
                    tally.notes[act] += 1
                except (AssertionError, EngineError) as error:
                    tally.violations.append(f"{act}, place {mine[index]}: {told(error)}")

    def _life(self, number: int, folder: Path, at_most: int | None, tally: Tally) -> None:
        domain, random = DOMAINS[number % len(DOMAINS)], Random(number)
        with domain.store(folder / "refold.db") as store:
            run = store.run("r")
            for _ in range(STRIKES_A_LIFE if at_most is None else min(at_most, STRIKES_A_LIFE)):
                strike = Strike(int(random.expovariate(1 / 400)))
                try:
                    with strike:
                        play(domain, random, run, 3)
                        run.checkpoint()
                except KeyboardInterrupt:
                    assert strike.fired, "an interrupt that nobody made"
                    tally.points += 1
                    tally.notes["in lives"] += 1
                said = store.run("r", start="genesis").state_bytes()
                if not run.state_bytes() == said == store.run("r").state_bytes():
                    what = f"life of {domain.name}, struck in {strike.where}"
                    tally.violations.append(f"{what}: the run is not what the journal says")
                    return
            tally.violations += [f"life of {domain.name}: {fault}" for fault in store.verify("r").faults]


SWEEP = InterruptsSweep()
