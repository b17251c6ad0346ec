"""Import of files: finds out what a file is and brings it in as a run. It must never guess: a file that is none of the
formats is refused, with their names."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TypeAlias

from engine.core.errors import ImportRefused, InvalidValue
from engine.core.fields import check_id
from engine.core.limits import IMPORT_BYTES_MAX
from engine.open_store import Store
from engine.read_json import read_all, read_json

if TYPE_CHECKING:
    from engine.import_record import RecordFormat
    from engine.import_recording import ImportedStep

__all__ = ["FORMATS", "Format", "Imported", "ReadFile", "read_file"]

Format: TypeAlias = Literal["archive", "kernel-recording", "context", "task-graph", "task-context"]
FORMATS: Final[tuple[Format, ...]] = ("archive", "kernel-recording", "context", "task-graph", "task-context")

_MARKS: Final[dict[Format, tuple[str, ...]]] = {
    "kernel-recording": ("decoded_inputs", "planned_steps"),
    "context": ("messages",),
    "task-graph": ("nodes",),
    "task-context": ("tick", "workers"),
}
"""The keys by which a JSON object is known to be of a format."""

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What came in: the run, how many events were added (none when they were there already), its position; for a
    recording the position after every recorded step, and for a record its id and what was left out of it."""

    run: str
    format: Format
    events: int
    position: int
    steps: tuple[ImportedStep, ...] | None = None
    id: str | None = None
    lost: tuple[dict[str, Any], ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the import for ``--json``."""
        shape: dict[str, Any] = {"run": self.run, "events": self.events, "position": self.position}
        if self.steps is not None:
            shape["steps"] = [step.to_json() for step in self.steps]
        if self.lost is not None:
            shape |= {"format": self.format, "id": self.id, "lost": list(self.lost)}
        return shape


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was read and is of a known format; :meth:`into` brings it into a store."""

    format: Format
    name: str
    content: Any

    def into(
        self,
        store: Store,
        *,
        run_id: str | None = None,
        id: str | None = None,
        partial: bool = False,
        progress: Progress | None = None,
    ) -> Imported:
        """Bring the file in, all of it or nothing; importing it again adds nothing.

        ``run_id`` defaults to the run of an export, and to a recording's scenario; a record is taken into the run that
        is named, under ``id``, without its malformed parts if ``partial``. Raises ImportRefused (what is wrong and
        where), Conflict (the run exists and is another history), and what the store raises.
        """
        if self.format in ("context", "task-graph", "task-context"):
            return _record(store, self.format, self.content, run_id, id, partial)
        if id is not None or partial:
            raise _refused(f"--id and --partial are for records; {self.name} is of the format {self.format}")
        if self.format == "archive":
            return _archive(store, self.content, run_id)
        from engine.import_recording import import_recording  # only a recording needs its adapter

        run = store.run(_scenario(self.content, self.name) if run_id is None else run_id)
        imported = import_recording(run, self.content, progress=progress)
        return Imported(run.id, self.format, imported.events, imported.position, imported.steps)


def read_file(file: IO[bytes], *, format: Format | None = None, name: str = "the file") -> ReadFile:
    """Read a file and find out its format, unless ``format`` says it. Raises ImportRefused; touches no store."""
    first = file.readline(IMPORT_BYTES_MAX).removeprefix(codecs.BOM_UTF8)
    start = first.lstrip()
    if format is None and not start.startswith(b"{"):
        raise _refused(
            f"{name} is empty" if not first else f"{name} is neither an export of refold nor a recording, nor a record"
        )
    if format == "archive" or (format is None and start.startswith(b'{"refold":')):
        try:
            return ReadFile("archive", name, [line.decode() for line in chain((first,), file)])
        except UnicodeDecodeError as error:
            raise _refused(f"{name} is not UTF-8 text: {error.reason}") from None
    content = read_json(read_all(file, name, first=first), name)
    form = format or _format_of(content, name)
    if form == "kernel-recording":
        from engine.adapters.kernel_recording.reading import check

        check(content)
    return ReadFile(form, name, content)


def _format_of(content: dict[str, Any], name: str) -> Format:
    """Return the format that the keys of a JSON object show. Raises ImportRefused for none, and for several."""
    fitting = [form for form, marks in _MARKS.items() if all(mark in content for mark in marks)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise _refused(f"{name} could be {' or '.join(fitting)}: say which with --format")
    known = "; ".join(f"{form} has {' and '.join(marks)}" for form, marks in _MARKS.items())
    raise _refused(f"{name} is of no known format: {known}")


def _record(
    store: Store, form: RecordFormat, content: Any, run_id: str | None, id: str | None, partial: bool
) -> Imported:
    from engine.import_record import import_record  # only a record needs the projections' readers

    if run_id is None:
        raise ImportRefused("a record does not name a run", [], hint="name the run: --run ID")
    taken = import_record(store.run(run_id), form, content, id=id, partial=partial)
    return Imported(taken.run, form, taken.events, taken.position, None, taken.id, taken.lost)


def _archive(store: Store, lines: list[str], run_id: str | None) -> Imported:
    target = _run_of(lines[0]) if run_id is None else _named(run_id)
    head = None if target is None else store.journal.head(target)
    run, position = store.import_lines(lines, run_id=run_id)
    return Imported(run, "archive", position - (0 if head is None else head.position), position)


def _named(run_id: str) -> str:
    """Return the id that the caller gives a run. Raises InvalidValue."""
    try:
        return check_id(run_id)
    except InvalidValue as error:
        raise error.at("run id") from None


def _run_of(first: str) -> str | None:
    """Return the run that the first line of an export names, or None when it is not one; the import will say why."""
    try:
        return check_id(json.loads(first)["run"])
    except (ValueError, TypeError, KeyError, RecursionError, InvalidValue):
        return None


def _scenario(recording: dict[str, Any], name: str) -> str:
    """Return the name of a recording's scenario, as the run's id. Raises ImportRefused."""
    try:
        return check_id(recording.get("scenario"))
    except InvalidValue:
        raise ImportRefused(f"{name} does not name its scenario", [], hint="name the run: --run ID") from None


def _refused(problem: str) -> ImportRefused:
    hint = f"'refold import' takes {', '.join(FORMATS[:-1])} and {FORMATS[-1]} files; nothing was imported"
    return ImportRefused(problem, [{"problem": problem}], hint=hint)
