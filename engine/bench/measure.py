"""How things are measured: interleaved rounds, medians with min and max, and a ratio. Must never compare runs of
different processes."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["Row", "Setting", "Spread", "compare", "timed"]


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a measurement may write, how many rounds it makes, and how large its workload is."""

    folder: Path
    rounds: int
    scale: float

    def count(self, full: int, least: int = 1) -> int:
        """Return ``full`` scaled, at least ``least``."""
        return max(least, round(full * self.scale))


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, min and max of one side over the rounds, in ``unit`` (seconds unless it says otherwise)."""

    median: float
    min: float
    max: float
    unit: str = "s"

    @classmethod
    def of(cls, values: Sequence[float], unit: str = "s") -> Spread:
        return cls(statistics.median(values), min(values), max(values), unit)

    def to_json(self) -> dict[str, Any]:
        return {"median": self.median, "min": self.min, "max": self.max, "unit": self.unit}


@dataclass(frozen=True, slots=True)
class Row:
    """One target: ``measured`` is ours/against, or against/ours where the target asks how many times cheaper
    (``sense`` ``">="``).

    ``measured`` is None when the peer is not installed; ``what`` then says how to install it.
    """

    id: str
    what: str
    sense: Literal["<=", ">="]
    bound: float
    ours: Spread | None
    against: Spread | None
    rounds: int

    @property
    def measured(self) -> float | None:
        if self.ours is None or self.against is None:
            return None
        if self.sense == "<=":
            return self.ours.median / self.against.median
        return self.against.median / self.ours.median

    def to_json(self) -> dict[str, Any]:
        """Return the row as ``refold bench --json`` prints it."""
        measured = self.measured
        met = None if measured is None else (measured <= self.bound if self.sense == "<=" else measured >= self.bound)
        return {
            "id": self.id,
            "what": " ".join(self.what.split()),
            "target": f"{self.sense} {self.bound:g}x",
            "measured": None if measured is None else round(measured, 4),
            "met": met,
            "ours": None if self.ours is None else self.ours.to_json(),
            "against": None if self.against is None else self.against.to_json(),
            "rounds": self.rounds,
        }


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that ``work`` takes, with the garbage collector settled before and off meanwhile."""
    gc.collect()
    gc.disable()
    try:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    finally:
        gc.enable()


def compare(rounds: int, ours: Callable[[], float], against: Callable[[], float]) -> tuple[Spread, Spread]:
    """Run both sides ``rounds`` times, alternating which goes first; each returns what it measured."""
    mine: list[float] = []
    theirs: list[float] = []
    ours(), against()  # once for nothing: imports, page cache, file growth
    for number in range(rounds):
        if number % 2:
            theirs.append(against())
            mine.append(ours())
        else:
            mine.append(ours())
            theirs.append(against())
    return Spread.of(mine), Spread.of(theirs)
