"""Making a failing list of steps short: first fewer steps, then simpler ones. It must never return steps that do not
fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from engine.testing.moves import Step

__all__ = ["shorten"]

_TRIES_MAX: Final = 3_000
_ALIKE_MAX: Final = 12
_PLAINER: Final = {"genesis": "best", "checkpoint": "best", "one": None, "two": None}

Fails = Callable[[Sequence[Step]], bool]


class _Budget(Exception):
    """Enough was tried."""


def shorten(
    steps: Sequence[Step], fails: Fails, *, commands: Sequence[Any] = (), tries_max: int = _TRIES_MAX
) -> list[Step]:
    """Return steps that still fail, with none that can be left out and no argument that can be made simpler; as far as
    ``tries_max`` attempts lead. ``commands`` may stand in for longer ones of their class."""
    tried = 0

    def counted(some: Sequence[Step]) -> bool:
        nonlocal tried
        tried += 1
        if tried > tries_max:
            raise _Budget
        return fails(some)

    best = list(steps)
    try:
        while True:
            before = best
            for found in _fewer(before, counted):
                best = found
            for found in _simpler(best, counted, commands):
                best = found
            if best == before:
                return best
    except _Budget:
        return best


def _fewer(steps: list[Step], fails: Fails) -> Iterator[list[Step]]:
    """Yield ever shorter lists that fail: without halves, quarters, ... single steps, from the end."""
    yield steps
    size = len(steps) // 2
    while size:
        start = len(steps) - size
        while start > -size:
            some = steps[: max(0, start)] + steps[start + size :]
            if fails(some):
                steps = some
                yield steps
            start -= size
        size //= 2


def _simpler(steps: list[Step], fails: Fails, commands: Sequence[Any]) -> Iterator[list[Step]]:
    """Yield lists of as many steps, one of them simpler, that fail."""
    yield steps
    for index in range(len(steps)):
        changed = True
        while changed:
            changed = False
            for step in _simpler_steps(steps[index], commands):
                some = [*steps[:index], step, *steps[index + 1 :]]
                if fails(some):
                    steps, changed = some, True
                    yield steps
                    break


def _simpler_steps(step: Step, commands: Sequence[Any]) -> Iterator[Step]:
    """Yield steps that say less: a command without what happens to it, fewer of them, simpler arguments."""
    given = step.arguments
    if step.rule != "give" and "command" in given:
        yield Step("give", {"commands": [given["command"]], "actor": None, "named": False})
    if step.rule == "batch":
        yield Step("give", {"commands": given["commands"], "actor": None, "named": False})
    for name, value in given.items():
        for simpler in _simpler_values(value, commands):
            yield Step(step.rule, {**given, name: simpler})


def _simpler_values(value: Any, commands: Sequence[Any]) -> Iterator[Any]:
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        yield from (lower for lower in (0, 1, value // 2) if lower < value)
    elif isinstance(value, str):
        if value in _PLAINER:
            yield _PLAINER[value]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if len(value) > 1:
                yield value[:index] + value[index + 1 :]
            for simpler in _simpler_values(item, commands):
                yield [*value[:index], simpler, *value[index + 1 :]]
    elif value is not None:
        length = len(repr(value))
        alike = [other for other in commands if type(other) is type(value) and len(repr(other)) < length]
        yield from sorted(alike, key=lambda other: len(repr(other)))[:_ALIKE_MAX]
