"""What the sweeps have reached, as a table to look at, as JSON, and as the table of the README; and what they are doing
just now. It must never round up.
"""

from __future__ import annotations

import math
import os
import platform
import re
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tests.sweeps.harness import ROOT
from tests.sweeps.ledger import Ledger
from tests.sweeps.registry import Entry
from tests.sweeps.runner import Chunk, Job

__all__ = ["Lines", "Progress", "Screen", "more_of", "rows_of", "table_of", "to_json", "write_readme"]

README: Final = ROOT / "README.md"
_BEGIN, _END = "<!-- sweeps: written by python -m tests.sweeps --readme -->", "<!-- /sweeps -->"
_A_LINE_EVERY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Row:
    """One sweep: ``coverage`` is the part of its first round that is done, from 0 to 1, ``rate`` points a minute of one
    core, ``aim`` how many points a full sweep should have."""

    sweep: str
    point: str
    points: int
    aim: int | None
    coverage: float | None
    chunks: int
    minutes: float
    rate: float
    violations: int
    first_failing: int | None
    notes: dict[str, int]


def rows_of(entries: Sequence[Entry], ledger: Ledger) -> list[Row]:
    """Return a row a sweep, of everything in the ledger."""
    return [_row(entry, ledger) for entry in entries]


def _row(entry: Entry, ledger: Ledger) -> Row:
    tried, size = ledger.of(entry.name), entry.sweep.round_size
    minutes = tried.seconds / 60
    return Row(
        entry.name,
        entry.point,
        tried.points,
        entry.aim,
        None if size is None else tried.done_of(size) / size,
        tried.chunks,
        round(minutes, 2),
        round(tried.points / minutes, 1) if minutes else 0.0,
        tried.broken,
        min((number for number, _ in tried.violations), default=None),
        tried.notes,
    )


def to_json(rows: Sequence[Row], ledger: Ledger, wall_minutes: float, cores: int) -> dict[str, Any]:
    """Return everything, the violations too."""
    return {
        "code": ledger.code,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": cores,
        "minutes": round(wall_minutes, 2),
        "sweeps": [
            {**asdict(row), "first_violations": [text for _, text in ledger.of(row.sweep).violations]} for row in rows
        ],
        "violations": sum(row.violations for row in rows),
    }


# -- the table --------------------------------------------------------------------------------------------------------


def _part(part: float) -> str:
    """Return a part of a whole in per cent, rounded down: 100 % means all."""
    return f"{math.floor(part * 1000) / 10:g} %"


def _reached(row: Row) -> str:
    """Return how much of what there is was tried: of the round, or of the aim."""
    if row.aim is not None:
        return f"{_part(row.points / row.aim)} of {row.aim:,}"
    return "no end" if row.coverage is None else f"{_part(row.coverage)} of a round"


def _failing(row: Row) -> str:
    return "" if row.first_failing is None else f"{row.sweep}:{row.first_failing}"


_HEADS: Final = ("sweep", "a point is", "points", "reached", "violations", "first failing chunk", "a core-minute")


def _cells(row: Row) -> tuple[str, ...]:
    rate = f"{row.rate:,.0f}"
    return row.sweep, row.point, f"{row.points:,}", _reached(row), str(row.violations), _failing(row), rate


def more_of(rows: Sequence[Row]) -> str:
    """Return what the columns do not say: steps are in two sweeps, and a disk that was opened stands for others."""
    steps = sum(row.points for row in rows if row.sweep in ("machines", "walk"))
    others = sum(row.notes.get("stands for", 0) for row in rows if row.sweep == "power")
    said = f"Machine steps in all: {steps:,}." if steps else ""
    if others:
        said += f" The disks that were opened stand for {others:,} that SQLite's log cannot tell from them."
    return said.strip()


def table_of(rows: Sequence[Row], title: str) -> Table:
    """Return the table to look at."""
    table = Table(title=title, title_justify="left")
    for place, head in enumerate(_HEADS):
        table.add_column(head, justify="right" if place in (2, 4, 6) else "left")
    for row in rows:
        table.add_row(*_cells(row), style="red" if row.violations else None)
    return table


def write_readme(rows: Sequence[Row], ledger: Ledger, command: str) -> None:
    """Put the table between the marks in the README."""
    minutes = sum(row.minutes for row in rows)
    lines = [
        "| " + " | ".join(_HEADS) + " |",
        "| " + " | ".join("---:" if place in (2, 4, 6) else "---" for place in range(len(_HEADS))) + " |",
        *("| " + " | ".join(_cells(row)) + " |" for row in rows),
        "",
        more_of(rows),
        "",
        f"{minutes:,.0f} core-minutes of `{command}`, Python {platform.python_version()}, SQLite "
        f"{sqlite3.sqlite_version}, {os.cpu_count()} cores.",
    ]
    text = README.read_text(encoding="utf-8")
    place = re.compile(f"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}", re.DOTALL)
    assert len(place.findall(text)) == 1, f"README.md has no place for the table, between {_BEGIN} and {_END}"
    made = "\n".join([_BEGIN, "", *lines, "", _END])
    README.write_text(place.sub(lambda _: made, text), encoding="utf-8")


# -- while it goes on -------------------------------------------------------------------------------------------------


class Progress(Protocol):
    """Who is told what goes on; a context manager round it all."""

    def __enter__(self) -> Progress: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, chunk: Chunk | None, jobs: Sequence[Job]) -> None:
        """Be told of a chunk that is finished, or of nothing but the time, and of what goes on."""


class _Told:
    """Counts, and shows every violation at once."""

    def __init__(self, console: Console, deadline: float) -> None:
        self._console = console
        self._began = time.monotonic()
        self._deadline = deadline
        self._points = self._violations = 0

    def __enter__(self) -> _Told:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, chunk: Chunk | None, jobs: Sequence[Job]) -> None:
        if chunk is not None:
            self._points += chunk.tally.points
            self._violations += len(chunk.tally.violations)
            for text in chunk.tally.violations[:3]:
                self._console.print(f"VIOLATION {text}", markup=False, highlight=False, soft_wrap=True)
        self._show(jobs)

    def _show(self, jobs: Sequence[Job]) -> None:
        raise NotImplementedError

    def _line(self, jobs: Sequence[Job]) -> str:
        now = time.monotonic()
        left = "" if math.isinf(self._deadline) else f", {max(0.0, self._deadline - now) / 60:.1f} min left"
        doing = ", ".join(f"{job.name}:{job.number}" for job in jobs)
        said = f"{(now - self._began) / 60:.1f} min{left}: {self._points:,} points, {self._violations} violations"
        return f"{said}; {doing}" if doing else said


class Lines(_Told):
    """For a log: a plain line now and then."""

    _last = -math.inf

    def _show(self, jobs: Sequence[Job]) -> None:
        if time.monotonic() - self._last >= _A_LINE_EVERY_S:
            self._last = time.monotonic()
            self._console.print(self._line(jobs), markup=False, highlight=False, soft_wrap=True)


class Screen(_Told):
    """For a terminal: one line that changes."""

    def __init__(self, console: Console, deadline: float) -> None:
        super().__init__(console, deadline)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _show(self, jobs: Sequence[Job]) -> None:
        self._live.update(self._line(jobs), refresh=True)
