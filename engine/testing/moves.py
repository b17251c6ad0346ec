"""The moves of a walk: which rule of the restore machine comes next, and with which arguments. They must never draw
from anything but the dice, so that a seed says it all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any, Final, TypeAlias

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from engine.testing.bench import Bench

__all__ = ["MOVES", "Dice", "Move", "Pools", "Step", "drawn"]

_POOL: Final = 300
_ROUTES: Final = ("best", "genesis", "checkpoint")
_WRITES: Final = ("append.before", "append.after")
_CHECKPOINTS: Final = ("checkpoint.before", "checkpoint.torn", "checkpoint.after")
_DAMAGE: Final = ("flip", "cut", "empty", "delete")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a walk: a rule of the machine and what it is given."""

    rule: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items() if name != "first" or value)
        return f"state.{self.rule}({given})"


class Pools:
    """What the commands and facts of walks are picked from, where nothing proposes them: drawn once, by the strategies
    of a machine."""

    def __init__(self, machine: type[Any]) -> None:
        bench = Bench.of(machine)
        self.propose = bench.propose
        self.only_proposed = machine.propose is not None
        self.commands = [] if self.only_proposed else drawn(bench.commands, _POOL)
        self.facts = drawn(bench.facts, _POOL)
        self.old_facts = [] if bench.old_facts is None else drawn(bench.old_facts, _POOL)


def drawn(strategy: SearchStrategy[Any], count: int, number: int = 0) -> list[Any]:
    """Return so many values of a strategy, the same each time."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count // 10,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(strategy, min_size=10, max_size=10))
    def draw(values: list[Any]) -> None:
        found.extend(values)

    draw()
    return found


class Dice:
    """All chance of one walk, over the rules that it may take."""

    def __init__(self, number: int, pools: Pools, rules: Sequence[str]) -> None:
        self.random = Random(f"walk {number}")
        self._pools = pools
        self._rules = rules
        self._weights = list(accumulate(MOVES[rule].weight for rule in rules))

    def step(self, machine: Any) -> Step:
        """Return the next step."""
        while True:
            rule = self.random.choices(self._rules, cum_weights=self._weights)[0]
            move = MOVES[rule]
            if move.ready(machine):
                return Step(rule, move.draw(self, machine))

    def one_of(self, *values: Any) -> Any:
        return values[self.random.randrange(len(values))]

    def sometimes(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def number(self, below: int) -> int:
        return self.random.randrange(below)

    def command(self, machine: Any) -> Any:
        """Return a command that fits the twin's state, or any."""
        pools = self._pools
        if pools.propose is not None and (pools.only_proposed or self.random.randrange(8)):
            return pools.propose(self.random, machine.twin.state)
        return self.one_of(*pools.commands)

    def commands(self, machine: Any, most: int, least: int = 0) -> list[Any]:
        return [self.command(machine) for _ in range(self.random.randint(least, most))]

    def facts(self) -> list[Any]:
        return self.random.choices(self._pools.facts, k=self.one_of(1, 1, 2))

    def old_facts(self) -> list[Any]:
        return self.random.choices(self._pools.old_facts, k=8)


Draw: TypeAlias = Callable[[Dice, Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Move:
    """A rule as walks use it: its share, how its arguments are drawn, when it can be taken."""

    weight: int
    draw: Draw
    ready: Callable[[Any], Any] = lambda machine: True


def _route(dice: Dice) -> dict[str, Any]:
    return {"route": dice.one_of(*_ROUTES), "which": dice.number(100)}


def _asked(dice: Dice, machine: Any) -> dict[str, Any]:
    return {"command": dice.command(machine), "named": dice.sometimes(2)}


MOVES: Final[dict[str, Move]] = {
    "give": Move(
        750,
        lambda dice, machine: {
            "commands": [dice.command(machine)],
            "actor": dice.one_of(None, None, "one", "two"),
            "named": dice.sometimes(3),
        },
    ),
    "ingest": Move(30, lambda dice, machine: {"facts": dice.facts(), "named": dice.sometimes(3)}),
    "ingest_decided": Move(20, _asked, lambda machine: machine.facts is None),
    "batch": Move(
        40,
        lambda dice, machine: {
            "commands": dice.commands(machine, 4, 1),
            "named": dice.sometimes(3),
            "crash": dice.one_of(None, None, None, "error", *_WRITES),
        },
    ),
    "repeat": Move(
        30,
        lambda dice, machine: {
            "which": dice.number(100), "change": dice.sometimes(2), "command": dice.command(machine),
        },
        lambda machine: machine.remembered,
    ),
    "crash": Move(
        30, lambda dice, machine: {**_asked(dice, machine), "point": dice.one_of(*_WRITES), **_route(dice)}
    ),
    "fail": Move(20, lambda dice, machine: {**_asked(dice, machine), "point": dice.one_of(*_WRITES)}),
    "restart": Move(30, lambda dice, machine: _route(dice)),
    "checkpoint": Move(40, lambda dice, machine: {"full": dice.sometimes(4)}),
    "crash_in_checkpoint": Move(
        10, lambda dice, machine: {"point": dice.one_of(*_CHECKPOINTS), "full": dice.sometimes(3), **_route(dice)}
    ),
    "fail_in_checkpoint": Move(
        10, lambda dice, machine: {"point": dice.one_of(*_CHECKPOINTS), "full": dice.sometimes(3)}
    ),
    "damage_checkpoint": Move(
        10,
        lambda dice, machine: {
            "which": dice.number(100), "how": dice.one_of(*_DAMAGE), "place": dice.number(10_000),
        },
        lambda machine: machine.checkpoints(),
    ),
    "age_checkpoint": Move(
        5,
        lambda dice, machine: {"which": dice.number(100), "base": dice.sometimes(2)},
        lambda machine: machine.twin.position,
    ),
    "second_writer": Move(
        20, lambda dice, machine: {"theirs": dice.command(machine), "ours": dice.command(machine)}
    ),
    "another_run": Move(5, lambda dice, machine: {"commands": dice.commands(machine, 4, 1)}),
    "old_event": Move(
        15, lambda dice, machine: {"facts": dice.old_facts()}, lambda machine: machine.bench.old_facts is not None
    ),
    "look_back": Move(
        12,
        lambda dice, machine: {
            "position": dice.number(1000),
            "start": dice.one_of(*_ROUTES),
            "which": dice.number(100),
            "probes": dice.commands(machine, 2),
        },
    ),
    "fork": Move(
        10,
        lambda dice, machine: {
            "position": dice.number(1000),
            "go_on": dice.sometimes(2),
            "crash": dice.one_of(None, None, "fork.before", "fork.after"),
        },
        lambda machine: machine.twin.position,
    ),
}  # fmt: skip
"""Every rule that a walk takes: all of the machine's but the replay in another process, which comes at the end."""
