"""What every sweep is, and how it is run: an endless row of numbered chunks of points, claimed one by one until the
time is used up. It must never lose count: what was tried is written down after every chunk, so that the next sweep goes
on where this one stopped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

__all__ = ["ROOT", "Sweep", "Tally", "chosen", "claim", "keep", "read_states", "run_chunk", "scratch", "seed_of"]

ROOT: Final = Path(__file__).resolve().parents[2]
STATE: Final = ROOT / ".sweep"
VIOLATIONS_KEPT: Final = 50


@dataclass(slots=True)
class Tally:
    """What one chunk tried: how many points, what else is worth counting, and every broken promise as one line that
    says how to see it again."""

    points: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"points": self.points, "notes": dict(self.notes), "violations": self.violations}


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


@contextmanager
def scratch() -> Iterator[Path]:
    """Give an empty folder, in memory where there is such a place: a killed process leaves the same files on any file
    system, and power losses are built from a recording."""
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="refold-sweep-", dir=where)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_chunk(sweep: Sweep, number: int, at_most: int | None = None) -> Tally:
    """Run one chunk in a folder of its own; an exception of the sweep itself is a violation too."""
    with scratch() as folder:
        try:
            return sweep.chunk(number, folder, at_most)
        except Exception as error:
            import traceback

            where = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"the sweep itself failed: {type(error).__name__}: {error} at {where.name}:{where.lineno}"
            return Tally(violations=[f"{sweep.name} chunk {number}: {problem}"])


# -- what was tried so far
# ----------------------------------------------------------------------------------------------


def _code() -> str:
    """Return a name for the code under test: a change of it starts every sweep anew."""
    hasher = hashlib.sha256()
    for folder in ("engine", "projections", "tests/sweeps"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            hasher.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return hasher.hexdigest()[:12]


@contextmanager
def _state(name: str) -> Iterator[dict[str, Any]]:
    """Read a sweep's state, and write what the block made of it; other processes wait meanwhile."""
    STATE.mkdir(exist_ok=True)
    with (STATE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = STATE / f"{name}.json"
        try:
            state = json.loads(path.read_text())
        except (OSError, ValueError):
            state = {}
        code = _code()
        if state.get("code") != code:
            state = {"code": code, "next": 0, "claimed": [], "points": 0, "seconds": 0.0, "notes": {}, "violations": []}
        yield state
        made = path.with_suffix(".new")
        made.write_text(json.dumps(state, indent=1))
        made.replace(path)


def claim(name: str) -> int:
    """Return the number of the next chunk that nobody has tried under this code."""
    with _state(name) as state:
        number: int = state["next"]
        state["next"] += 1
        state["claimed"].append(number)
        return number


def give_back(name: str, number: int) -> None:
    """Forget a claim whose chunk was not finished; it will not be tried again before its seed comes round."""
    with _state(name) as state:
        state["claimed"] = [other for other in state["claimed"] if other != number]


def keep(name: str, number: int, tally: Tally, seconds: float) -> None:
    """Add a finished chunk to what was tried."""
    with _state(name) as state:
        state["claimed"] = [other for other in state["claimed"] if other != number]
        state["points"] += tally.points
        state["seconds"] += seconds
        notes = Counter(state["notes"])
        notes.update(tally.notes)
        state["notes"] = dict(notes)
        state["violations"] = [*state["violations"], *tally.violations][:VIOLATIONS_KEPT]


def read_states() -> dict[str, dict[str, Any]]:
    """Return what every sweep has tried under this code."""
    code = _code()
    states = {}
    for path in sorted(STATE.glob("*.json")):
        state = json.loads(path.read_text())
        if state.get("code") == code:
            states[path.stem] = state
    return states


def sweep_until(sweep: Sweep, deadline: float) -> Tally:
    """Run chunk after chunk until ``deadline`` on the monotonic clock; return the sum. At least one is run."""
    total = Tally()
    while True:
        number = claim(sweep.name)
        began = time.monotonic()
        tally = run_chunk(sweep, number)
        now = time.monotonic()
        keep(sweep.name, number, tally, now - began)
        total.points += tally.points
        total.notes.update(tally.notes)
        total.violations += tally.violations
        if now + (now - began) / 2 > deadline or len(total.violations) >= VIOLATIONS_KEPT:
            return total
