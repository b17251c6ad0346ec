"""Restores of every position of random runs, from every checkpoint there is and from none. It must never take a state
for right that would answer the next commands otherwise.
"""

from __future__ import annotations

from pathlib import Path

from engine.checkpoint import CheckpointPolicy
from engine.core.errors import EngineError
from tests.guarantees.domain import DOMAINS
from tests.guarantees.lived import live, look
from tests.sweeps.harness import Tally, chosen, seed_of

__all__ = ["SWEEP"]


class RestoresSweep:
    """A chunk is one run: all its positions, each from every start."""

    name = "restores"
    weight = 0.02
    round_size = None

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        domain = DOMAINS[number % len(DOMAINS)]
        dice = seed_of("restores", number)
        tally = Tally()
        policy = CheckpointPolicy(every_events=dice.randint(1, 9))
        with domain.store("memory:", policy=policy) as store:
            truth = live(domain, store, number, steps=dice.randint(10, 120))
            taken = store.checkpoints.positions("r")
            every = [
                (position, start)
                for position in truth
                if position
                for start in ("best", "genesis", *(at for at in taken if at <= position))
            ]
            for position, start in (every[index] for index in chosen(len(every), at_most, dice)):
                title = f"restores chunk {number} ({domain.name}): position {position} from {start}"
                tally.points += 1
                tally.notes[domain.name] += 1
                try:
                    view = store.view("r", at=position, start=start)
                    if look(domain, view.ask(lambda state: state)) != truth[position]:
                        tally.violations.append(f"{title} is another state")
                except EngineError as error:
                    tally.violations.append(f"{title}: {type(error).__name__}: {error}")
        return tally


SWEEP = RestoresSweep()
