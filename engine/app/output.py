"""How answers look: tables, progress and JSON. It must never print a stored text as it is; a control character in an id
or a message must not reach a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unicodedata import category

import click

from engine.app.shell import is_terminal, stdout_is_terminal

if TYPE_CHECKING:
    from engine.core.envelope import Event
    from projections.tasks import TaskControlState

__all__ = ["JsonList", "print_events", "print_json", "print_table", "print_tasks", "printable", "progress_bar", "when"]


def printable(text: str) -> str:
    """Return text on one line with everything that a terminal could act on written as its number."""
    if text.isprintable():
        return text
    return "".join(
        char if category(char)[0] not in "CZ" or char == " " else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def when(at_ms: int) -> str:
    """Return a time in UTC, to the millisecond; a number that no calendar holds as the number."""
    try:
        moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d}"


def print_json(value: Any) -> None:
    """Print one JSON value: indented for a person, on one line for a program; ASCII, so that every encoding holds
    it."""
    click.echo(json.dumps(value, allow_nan=False, indent=2 if stdout_is_terminal() else None))


class JsonList:
    """A JSON list printed item by item, in bounded memory. When it is left by an error it stays without its end: no
    reader takes a part for the whole."""

    def __init__(self) -> None:
        self._before = "["

    def __enter__(self) -> JsonList:
        return self

    def add(self, item: Any) -> None:
        """Print one item."""
        click.echo(f"{self._before}\n{json.dumps(item, allow_nan=False)}", nl=False)
        self._before = ","

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            click.echo("[]" if self._before == "[" else "\n]")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """Print rows under their headings, the columns of ``right`` aligned to the right.

    A terminal gets a table that fits it; a file or another program gets plain lines, nothing cut or folded.
    """
    cells = [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    if stdout_is_terminal():
        _print_fitted(columns, cells, right)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    aligned = [str.rjust if column in right else str.ljust for column in columns]
    for line in (columns, *cells):
        padded = (align(cell, width) for align, cell, width in zip(aligned, line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _print_fitted(columns: Sequence[str], cells: Iterable[Sequence[str]], right: Sequence[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console(file=sys.stdout, highlight=False).print(table)


def print_tasks(rows: Iterable[TaskControlState]) -> None:
    """Print a task table, a row a task, in the order given."""
    cells = []
    for row in rows:
        why = row.termination or row.wait
        process = row.process
        cells.append(
            (
                row.task_id,
                row.parent_task_id,
                row.lifecycle if why is None else f"{row.lifecycle} ({why})",
                ", ".join(row.waiting_on),
                None if process is None else process.role,
                None if process is None else process.isolation,
                ", ".join(row.capability_ids),
                row.tokens_used,
                row.turns_used,
            )
        )
    columns = ("task", "parent", "lifecycle", "waiting on", "role", "isolation", "capabilities", "tokens", "turns")
    print_table(columns, cells, right=("tokens", "turns"))


def print_events(events: Iterable[Event]) -> None:
    """Print events, a row an event, in the order given."""
    cells = []
    for event in events:
        cause = f"#{event.cause}" if isinstance(event.cause, int) else event.cause
        data = " ".join(_field(name, value) for name, value in event.data.items() if value not in (None, []))
        cells.append((event.seq, when(event.recorded_at_ms), event.type, event.actor, event.command_id, cause, data))
    columns = ("seq", "time (UTC)", "event", "actor", "command", "cause", "data")
    print_table(columns, cells, right=("seq",))


def _field(name: str, value: Any) -> str:
    """Return one field of an event as text: words as they are, everything else as JSON."""
    from engine.archive import to_json

    if isinstance(value, str) and value and not any(char.isspace() or char in '"=' for char in value):
        return f"{name}={value}"
    return f"{name}={json.dumps(to_json(value), ensure_ascii=False, separators=(',', ':'))}"


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on standard error while a block works, if that is a terminal; yield what to call with (done, of)."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(printable(label), total=None)
        yield lambda done, of: progress.update(bar, completed=done, total=of)
