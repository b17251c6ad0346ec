"""What has been tried: a file for every sweep in ``.sweep/``, written after each chunk, so that the next run goes on
where this one stopped. It must never count a chunk twice, nor one that was not finished, nor one that was tried on
other code.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from tests.sweeps.harness import ROOT, Tally

__all__ = ["STATE", "VIOLATIONS_KEPT", "Busy", "Ledger", "Tried", "code_files", "code_version"]

STATE: Final = ROOT / ".sweep"
VIOLATIONS_KEPT: Final = 50
_IMPORT: Final = re.compile(r"^\s*from (tests[\w.]*) import ([\w, ]+|\([^)]*\))", re.MULTILINE)
_NOT_UNDER_TEST: Final = ("__main__.py", "ledger.py", "planted.py", "registry.py", "report.py", "runner.py")


class Busy(Exception):
    """Another process writes the same ledger."""


@dataclass(slots=True)
class Tried:
    """What one sweep has tried under this code. Chunks below ``next`` are done, but for the ``holes``; ``seconds`` are
    those of one core."""

    next: int = 0
    holes: list[int] = field(default_factory=list)
    chunks: int = 0
    points: int = 0
    seconds: float = 0.0
    notes: dict[str, int] = field(default_factory=dict)
    broken: int = 0
    violations: list[tuple[int, str]] = field(default_factory=list)
    """The first of them, each with its chunk."""

    def done_of(self, round_size: int) -> int:
        """Return how many chunks of the first round are done."""
        return min(self.next, round_size) - sum(1 for hole in self.holes if hole < round_size)

    def free(self, busy: Collection[int]) -> int:
        """Return the first chunk that is neither done nor being tried."""
        for number in self.holes:
            if number not in busy:
                return number
        number = self.next
        while number in busy:
            number += 1
        return number

    def add(self, number: int, tally: Tally, seconds: float) -> None:
        """Add a finished chunk."""
        if number < self.next:
            self.holes.remove(number)
        else:
            self.holes += range(self.next, number)
            self.next = number + 1
        self.chunks += 1
        self.points += tally.points
        self.seconds += seconds
        self.notes = dict(Counter(self.notes) + tally.notes)
        self.broken += len(tally.violations)
        found = sorted([*self.violations, *((number, text) for text in tally.violations)], key=lambda one: one[0])
        self.violations = found[:VIOLATIONS_KEPT]


class Ledger:
    """The ledger of one code version, kept in a folder. One process writes it; see :meth:`locked`."""

    def __init__(self, folder: Path = STATE, code: str | None = None) -> None:
        self.folder = folder
        self.code = code or code_version()
        self._tried: dict[str, Tried] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that writes. Raises Busy."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy("another sweep is running here; wait for it, or end it") from None
            yield

    def of(self, name: str) -> Tried:
        """Return what a sweep has tried; nothing yet when the code is another."""
        if name not in self._tried:
            self._tried[name] = self._read(name)
        return self._tried[name]

    def keep(self, name: str, number: int, tally: Tally, seconds: float) -> None:
        """Add a finished chunk and write the sweep's file, whole or not at all."""
        tried = self.of(name)
        tried.add(number, tally, seconds)
        made = self.folder / f"{name}.new"
        made.write_text(json.dumps({"code": self.code, **asdict(tried)}, indent=1))
        made.replace(self.folder / f"{name}.json")

    def _read(self, name: str) -> Tried:
        try:
            told: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        except FileNotFoundError:
            return Tried()
        if told.pop("code") != self.code:
            return Tried()
        told["violations"] = [(number, text) for number, text in told["violations"]]
        assert set(told) == {each.name for each in fields(Tried)}
        return Tried(**told)


def code_version() -> str:
    """Return a name for the code under test, for the code that tests it, and for what they run on: when it changes,
    every sweep begins anew."""
    hasher = hashlib.sha256(f"{platform.python_version()} {sqlite3.sqlite_version} {platform.machine()}".encode())
    for path in code_files():
        hasher.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return hasher.hexdigest()[:12]


def code_files() -> list[Path]:
    """Return the files of the engine and the projections, and the sweeps with all of the tests that they import."""
    folder = ROOT / "tests" / "sweeps"
    todo = [path for path in folder.glob("*.py") if not path.name.startswith("test_")]
    found: set[Path] = set()
    while todo:
        path = todo.pop()
        if path in found or (path.parent == folder and path.name in _NOT_UNDER_TEST) or not path.is_file():
            continue
        found.add(path)
        for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
            place = ROOT / module.replace(".", "/")
            todo += [place.with_suffix(".py"), *(place / f"{name}.py" for name in re.findall(r"\w+", names))]
    return sorted(found | {path for under in ("engine", "projections") for path in (ROOT / under).rglob("*.py")})
