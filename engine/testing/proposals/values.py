"""What proposers share: ids, small JSON values of every kind, and picking the likely. It must never draw from anything
but the generator it is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final, TypeVar

__all__ = ["json_value", "likely", "some_task"]

T = TypeVar("T")

_TASKS: Final = ("root", "t1", "t2", "nobody")


def json_value(random: Random, depth: int = 0) -> Any:
    """Return a JSON value, small, of any kind."""
    kind = random.randrange(9 if depth < 3 else 7)
    if kind == 7:
        return [json_value(random, depth + 1) for _ in range(random.randrange(3))]
    if kind == 8:
        return {f"k{random.randrange(20)}": json_value(random, depth + 1) for _ in range(random.randrange(3))}
    return (None, True, random.randrange(-(2**63), 2**64), random.uniform(-1e9, 1e9), "", "text ü", "long " * 40)[kind]


def likely(random: Random, those: Iterable[T], all_: Sequence[T]) -> T:
    """Return one of ``those``, if there are any; once in a while any of ``all_``."""
    chosen = sorted(those)  # type: ignore[type-var]
    return random.choice(chosen) if chosen and random.randrange(12) else random.choice(all_)


def some_task(random: Random, state: Any) -> str:
    """Return a task: a live one of the run's table, if it has one; now and then a done one, or none."""
    table = state.parts.get("tasks")
    if table is None:
        return random.choice(_TASKS)
    task: str = likely(random, table.live, [*table.tasks.rows, "nobody"])
    return task
