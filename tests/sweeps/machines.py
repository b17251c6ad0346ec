"""Runs disturbed in every way beside an undisturbed twin, by the million steps: lives lived again, and the testing
kit's Hypothesis machines. It must never count a step that nothing was compared after.

Three chunks of four are lives (see ``lives.py``): many steps, made cheap. The fourth is a machine: it draws facts and
commands without being shown the state, looks for hidden memory and for folds that change what they are given, and
shrinks what it finds; the machine over the whole model is judged by a second reading of the contract besides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from engine.core.errors import EngineError
from engine.core.model import Model
from engine.testing.proposals import propose
from projections.model import MODEL
from tests.guarantees.domain import bank_command
from tests.guarantees.machine import MACHINES
from tests.projections.model_machine import WholeRun
from tests.sweeps.harness import Tally, seed_of
from tests.sweeps.lives import Differs, Propose, live, live_again
from tests.toy import BANK

__all__ = ["SWEEP"]

EVERY_FOURTH: Final = 4
COMMANDS_A_LIFE: Final = 80
LIVES_A_CHUNK: Final = 4
AGAIN: Final = 10
EXAMPLES_A_CHUNK: Final = 10
STEPS_AN_EXAMPLE: Final = 50
ELSEWHERE_EVERY: Final = 4
"""Every fourth chunk of machines also replays in other processes, which costs more than all the rest."""

_MODELS: Final[tuple[tuple[str, Model, Propose], ...]] = (
    ("lives of all four", MODEL, propose),
    ("lives of all four", MODEL, propose),
    ("lives of the bank", BANK, bank_command),
)
_KINDS: Final[dict[str, Any]] = {**MACHINES, "all four, judged": WholeRun}


class MachinesSweep:
    """A chunk is a few lives, each lived again ten times; every fourth is a Hypothesis machine with one seed."""

    name = "machines"
    weight = 0.06
    round_size = None

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        turn, place = divmod(number, EVERY_FOURTH)
        if place == EVERY_FOURTH - 1:
            return self._machine(number, turn, at_most)
        return self._lives(number, folder, at_most)

    def _lives(self, number: int, folder: Path, at_most: int | None) -> Tally:
        name, model, commands = _MODELS[number % len(_MODELS)]
        tally = Tally()
        for which in range(LIVES_A_CHUNK if at_most is None else 1):
            life = live(model, commands, seed_of("machines", number, which), COMMANDS_A_LIFE)
            for again in range(AGAIN if at_most is None else min(at_most, AGAIN)):
                path = folder / f"{which}-{again}.db" if again % 4 == 3 else None
                try:
                    steps = live_again(life, path, seed_of("machines", number, which, again), tally.notes)
                except (Differs, EngineError) as error:
                    title = f"machines chunk {number} ({name}), life {which} again {again}"
                    tally.violations.append(f"{title}: {type(error).__name__}: {error}")
                    continue
                tally.points += steps
                tally.notes[name] += steps
        return tally

    def _machine(self, number: int, turn: int, at_most: int | None) -> Tally:
        kinds = list(_KINDS)
        name = kinds[turn % len(kinds)]
        kind = _KINDS[name]
        own = type(kind.__name__, (kind,), {"elsewhere": kind.elsewhere and turn % ELSEWHERE_EVERY == 0})
        before = kind.tally["is_the_twin"]
        given = settings(
            max_examples=EXAMPLES_A_CHUNK if at_most is None else min(at_most, EXAMPLES_A_CHUNK),
            stateful_step_count=STEPS_AN_EXAMPLE,
            phases=[Phase.generate, *([Phase.shrink] if at_most is None else [])],
            suppress_health_check=list(HealthCheck),
            deadline=None,
            database=None,
        )
        tally = Tally()
        try:
            run_state_machine_as_test(seed(number)(own), settings=given)
        except Exception as error:
            notes = " ".join(getattr(error, "__notes__", ()))
            tally.violations.append(f"machines chunk {number} ({name}): {type(error).__name__}: {error} {notes}")
        tally.points = kind.tally["is_the_twin"] - before
        tally.notes[f"machine: {name}"] += tally.points
        return tally


SWEEP = MachinesSweep()
