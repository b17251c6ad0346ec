"""The restore machine without Hypothesis: seeded random walks over its rules, some thousand steps a second, for sweeps
that go on for hours. A walk is known by its seed alone; one that fails is made short, and leaves its journal behind.

It must never have rules or checks of its own: what a step does and what must hold after it stands in the machine. Rules
that a subclass has added are Hypothesis's alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import new_class
from typing import Any, cast

from engine.testing.machine import RestoreMachine, restore_machine
from engine.testing.moves import MOVES, Dice, Pools, Step
from engine.testing.shorten import shorten

__all__ = ["FailedWalk", "Walker", "walk"]


@dataclass(frozen=True, slots=True)
class FailedWalk:
    """A walk that found something: its seed, the steps of the shortest way there, and what went wrong at their end."""

    seed: int
    steps: tuple[Step, ...]
    error: Exception

    def __str__(self) -> str:
        notes = "".join(f"\n{note}" for note in getattr(self.error, "__notes__", ()))
        return f"walk {self.seed}: {type(self.error).__name__}: {self.error}{notes}\n{self.script()}"

    def script(self) -> str:
        """Return the steps as they could be written down in a test."""
        return "\n".join(["state = RestoreMachine()", *map(str, self.steps), "state.teardown()"])


class Walker:
    """Walks one machine class. ``thorough_every`` says which walks simulate the memory of processes, watch the manners
    of the fold, look at everything after every step and verify in the end: all by default. The others look at what a
    step has touched, at everything when a run was restored, and restore it from its first event in the end.
    ``without`` are rules that are not taken."""

    def __init__(
        self, machine: type[RestoreMachine], *, thorough_every: int = 1, without: Collection[str] = ()
    ) -> None:
        assert not set(without) - MOVES.keys(), f"no such rules: {sorted(set(without) - MOVES.keys())}"
        thrifty = {"memory": False, "elsewhere": False, "mannered": False}
        self._every = thorough_every
        self._thorough = machine
        self._thrifty = cast(type[RestoreMachine], new_class(machine.__name__, (machine,), {}, _with(thrifty)))
        self._pools = Pools(machine)
        self._rules = [rule for rule in MOVES if rule not in without]

    def fails(self, seed: int, steps: int = 80) -> bool:
        """Take a walk; return whether it found something. For who does not want to know the shortest way there."""
        return self._drawn(seed, steps, []) is not None

    def walk(self, seed: int, steps: int = 80) -> FailedWalk | None:
        """Take a walk; return what it found, None for nothing."""
        taken: list[Step] = []
        error = self._drawn(seed, steps, taken)
        if error is None:
            return None
        shortest = shorten(
            taken, lambda some: type(self.replay(seed, some)) is type(error), commands=self._pools.commands
        )
        again = self.replay(seed, shortest)
        if again is None:
            error.add_note("it did not happen again when the walk was repeated: something outside has part in it")
            return FailedWalk(seed, tuple(taken), error)
        again.add_note(f"found by the walk with seed {seed}, in {len(taken)} steps")
        return FailedWalk(seed, tuple(shortest), again)

    def replay(self, seed: int, steps: Sequence[Step]) -> Exception | None:
        """Take these steps, each when it can be taken, as the walk of a seed would; return what went wrong."""
        return self._run(seed, lambda machine: steps)

    def _drawn(self, seed: int, count: int, taken: list[Step]) -> Exception | None:
        dice = Dice(seed, self._pools, self._rules)

        def steps(machine: RestoreMachine) -> Iterator[Step]:
            for _ in range(count):
                taken.append(dice.step(machine))
                yield taken[-1]

        return self._run(seed, steps)

    def _run(self, seed: int, steps: Callable[[RestoreMachine], Iterable[Step]]) -> Exception | None:
        thorough = seed % self._every == 0
        chance = random.getstate()
        random.seed(seed)  # what a projection draws by chance is drawn again in a repetition
        machine = None
        try:
            machine = (self._thorough if thorough else self._thrifty)()
            for step in steps(machine):
                if MOVES[step.rule].ready(machine):
                    _take(machine, step, thorough=thorough)
            if not thorough:
                machine.restart(route="genesis", which=0)
            machine.is_the_twin()
            if thorough:
                machine.check_at_the_end()
        except Exception as error:
            return error
        finally:
            random.setstate(chance)
            if machine is not None:
                machine.disk.close()
        return None


def _with(attributes: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda namespace: namespace.update(attributes)


def _take(machine: RestoreMachine, step: Step, *, thorough: bool) -> None:
    """Take a step and look at what became of the run: at all of it when it was restored."""
    live = machine.live
    getattr(machine, step.rule)(**step.arguments)
    if thorough or machine.live is not live:
        machine.is_the_twin()
    else:
        machine.keeps_up()


def walk(
    model: Any, seed: int, *, walks: int = 1, steps: int = 80, without: Collection[str] = (), **options: Any
) -> int:
    """Take walks with the seeds from ``seed`` on; return how many steps they were. ``model`` and ``options`` are those
    of :func:`restore_machine`; a machine class of one's own will do.

    Raises what was found, with the shortest way there in its notes: ReplayDiffers, mostly.
    """
    given = isinstance(model, type) and issubclass(model, RestoreMachine)
    walker = Walker(model if given else restore_machine(model, **options), without=without)
    for number in range(seed, seed + walks):
        failed = walker.walk(number, steps)
        if failed is not None:
            failed.error.add_note(failed.script())
            raise failed.error
    return walks * steps
