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
from engine.open_store import Store

if TYPE_CHECKING:
    from engine.import_recording import ImportedStep

__all__ = ["FORMATS", "Format", "Imported", "ReadFile", "read_file"]

Format: TypeAlias = Literal["kernel-recording", "archive"]
FORMATS: Final[tuple[Format, ...]] = ("kernel-recording", "archive")

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What came in: the run, how many events were added (none when they were there already), its position, and for
    a recording the position after every recorded step."""

    run: str
    format: Format
    events: int
    position: int
    steps: tuple[ImportedStep, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the import for ``--json``."""
        shape: dict[str, Any] = {"run": self.run, "events": self.events, "position": self.position}
        if self.steps is not None:
            shape["steps"] = [{"step": step.step, "position": step.position} for step in self.steps]
        return shape


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was read and is of a known format; :meth:`into` brings it into a store."""

    format: Format
    name: str
    content: Any

    def into(self, store: Store, *, run_id: str | None = None, progress: Progress | None = None) -> Imported:
        """Bring the file in as one run, all of it or nothing; importing it again adds nothing.

        ``run_id`` defaults to the run of an export, and to a recording's scenario. Raises ImportRefused (what is wrong
        and where), Conflict (the run exists and is another history), and what the store raises.
        """
        if self.format == "archive":
            return _archive(store, self.content, run_id)
        from engine.import_recording import import_recording  # only a recording needs its adapter

        run = store.run(_scenario(self.content, self.name) if run_id is None else run_id)
        imported = import_recording(run, self.content, progress=progress)
        return Imported(run.id, self.format, imported.events, imported.position, imported.steps)


def read_file(file: IO[bytes], *, format: Format | None = None, name: str = "the file") -> ReadFile:
    """Read a file and find out its format, unless ``format`` says it. Raises ImportRefused; touches no store."""
    first = file.readline().removeprefix(codecs.BOM_UTF8)
    form = format or _format_of(first, name)
    if form == "archive":
        try:
            return ReadFile(form, name, [line.decode() for line in chain((first,), file)])
        except UnicodeDecodeError as error:
            raise _refused(f"{name} is not UTF-8 text: {error.reason}") from None
    from engine.adapters import kernel_recording

    return ReadFile(form, name, kernel_recording.read(first + file.read()))


def _format_of(first: bytes, name: str) -> Format:
    """Return the format of a file by its first line. Raises ImportRefused."""
    start = first.lstrip()
    if start.startswith(b'{"refold":'):
        return "archive"
    if start.startswith(b"{"):
        return "kernel-recording"  # and whether it is one, its keys say
    raise _refused(f"{name} is empty" if not first else f"{name} is neither an export of refold nor a recording")


def _archive(store: Store, lines: list[str], run_id: str | None) -> Imported:
    target = _run_of(lines[0]) if run_id is None else run_id
    head = None if target is None else store.journal.head(target)
    run, position = store.import_lines(lines, run_id=run_id)
    return Imported(run, "archive", position - (0 if head is None else head.position), position)


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
    hint = f"'refold import' takes {' and '.join(FORMATS)} files; nothing was imported"
    return ImportRefused(problem, [{"problem": problem}], hint=hint)
