"""What every sweep is: an endless row of numbered chunks of points, each the same whenever and wherever it is run.

A chunk must never depend on the one before it, on the clock or on the machine: its number alone says what it tries, so
that what failed can be seen again.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

__all__ = ["ROOT", "Sweep", "Tally", "chosen", "run_chunk", "scratch", "seed_of", "sweep_up", "told"]

ROOT: Final = Path(__file__).resolve().parents[2]
_PREFIX: Final = "refold-sweep-"


@dataclass(slots=True)
class Tally:
    """What one chunk tried: how many points, what else is worth counting, and every broken promise as one line that
    says how to see it again."""

    points: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"points": self.points, "notes": dict(self.notes), "violations": self.violations}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Tally:
        """Return the tally that :meth:`to_json` gave."""
        return cls(told["points"], Counter(told["notes"]), list(told["violations"]))


class Sweep(Protocol):
    """One kind of fault. ``round_size`` is how many chunks try every point once (None: there is no such number);
    ``weight`` is its share of the time."""

    name: str
    weight: float
    round_size: int | None

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        """Try the points of a chunk in an empty folder; with ``at_most`` only so many of them, spread evenly."""
        ...


def seed_of(*parts: object) -> random.Random:
    """Return a random generator that is the same for the same parts on every machine."""
    return random.Random(hashlib.sha256(repr(parts).encode()).digest())


def chosen(count: int, at_most: int | None, dice: random.Random) -> list[int]:
    """Return the numbers below ``count``, or ``at_most`` of them: one from each of so many equal stretches."""
    if at_most is None or at_most >= count:
        return list(range(count))
    edges = [index * count // at_most for index in range(at_most + 1)]
    return [dice.randrange(low, high) for low, high in pairwise(edges)]


def _place() -> Path:
    """Return where scratch folders are: in memory where there is such a place. A killed process leaves the same files
    on any file system, and power losses are built from a recording."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


@contextmanager
def scratch() -> Iterator[Path]:
    """Give an empty folder that is gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_place())).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_up() -> None:
    """Remove the scratch folders of processes that are no more: one that was killed cannot do it itself."""
    for folder in _place().glob(f"{_PREFIX}*-*"):
        owner = folder.name[len(_PREFIX) :].partition("-")[0]
        if owner.isdigit() and not _lives(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def run_chunk(sweep: Sweep, number: int, at_most: int | None = None) -> Tally:
    """Run one chunk in a folder of its own. An assertion that fails ends it and is a violation; so is an exception of
    the sweep itself."""
    with scratch() as folder:
        try:
            return sweep.chunk(number, folder, at_most)
        except Exception as error:
            whose = "" if isinstance(error, AssertionError) else "the sweep itself failed: "
            return Tally(violations=[f"{sweep.name} chunk {number}: {whose}{told(error)}"])


def told(error: Exception) -> str:
    """Return what an exception says of a chunk, and where: an assertion without words is told by its line."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = next((frame for frame in reversed(frames) if str(ROOT) in frame.filename), frames[-1])
    where = f"{Path(ours.filename).name}:{ours.lineno} {ours.name}"
    if isinstance(error, AssertionError):
        return f"{str(error) or ours.line} ({where})"
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}{notes} ({where})"
