"""Salvage: what can be saved of a damaged store, into a new one. It must never write a byte into that whose link does
not hold, nor change the store it reads.

Into the new store goes, run by run, every event before the first damage: the same bytes, so the same links. What lies
behind goes into a file beside it, see :mod:`engine.rescue`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from engine.core.errors import BackendUnavailable, Refused
from engine.core.model import Model
from engine.files import put_in_place
from engine.fork import delete_run
from engine.rescue import Behind, astray, behind, rescue_lines, savable
from engine.savable import Plan, Savable, Saved
from engine.store.new_file import NewFile
from engine.store.remains import Remains
from engine.store.store_file import file_of

__all__ = ["Salvage", "refuse_to_replace", "salvage"]

_RESCUED: Final = ".rescued.jsonl"
_BESIDE: Final = ("", _RESCUED, "-wal", "-shm", "-journal")  # SQLite would take a log that lies there for the store's

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Salvage:
    """What was saved: into which store (None: nothing could be, and none was made), into which file beside it (None:
    nothing lay behind a damage), and of which runs."""

    store: str | None
    rescued: str | None
    runs: tuple[Savable, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the salvage for ``--json``."""
        return {"store": self.store, "rescued": self.rescued, "runs": [run.to_json() for run in self.runs]}


def salvage(url: str | Path, target: Path, model: Model, *, progress: Progress | None = None) -> Salvage:
    """Save what can be saved of a store into a new one at ``target``, which is complete or not there.

    ``progress`` is called with (what, done, of). Raises NotFound when there is no store, NotAStore when the path is no
    file, Refused when ``target`` or a file that belongs to it exists, BackendUnavailable when one cannot be read or the
    other not be written.
    """
    path = file_of(url)
    refuse_to_replace(target)
    try:
        with (
            Remains(path, progress=_named(progress, "pages")) as remains,
            tempfile.TemporaryDirectory(prefix=f".{target.name[:100]}.", dir=target.parent) as folder,
        ):
            made, lines = Path(folder, "store"), Path(folder, "lines")
            plan = Plan(remains, progress=_named(progress, "commits"))
            saved, any_behind = _write(plan, made, lines, model)
            if not any_behind and not any(run.position for run in saved):
                return Salvage(None, None, saved)
            _flush(made)
            refuse_to_replace(target)  # meanwhile, by another process
            rescued = target.with_name(target.name + _RESCUED)
            if any_behind:
                put_in_place(lines, rescued)
            put_in_place(made, target)
    except OSError as error:
        raise BackendUnavailable(f"{target} cannot be written: {error.strerror}", hint="check the folder") from error
    return Salvage(str(target), str(rescued) if any_behind else None, saved)


def refuse_to_replace(target: Path) -> None:
    """Raise Refused when a store at ``target``, or a file that would belong to it, is there."""
    if not target.name:
        raise Refused(f"{str(target)!r} names no file", hint="name a file that does not exist yet")
    for end in _BESIDE:
        taken = target.with_name(target.name + end)
        if os.path.lexists(taken):
            raise Refused(f"{taken} exists", hint="name a file that does not exist yet")


def _write(plan: Plan, made: Path, lines: Path, model: Model) -> tuple[tuple[Savable, ...], bool]:
    """Write the new store and the file of what lay behind a damage. Returns what was saved, and whether the file holds
    anything."""
    saved: list[Savable] = []
    hidden: list[str] = []
    with NewFile(made) as new:
        with lines.open("w", encoding="utf-8", newline="\n") as out:
            for run in plan.runs():
                _copy(plan, run, new)
                saved.append(savable(run, _told(behind(plan, run), out, model)))
                if run.hidden and (run.last or run.origin is not None):
                    hidden.append(run.run)
            for _ in _told(astray(plan), out, model):
                pass
            any_behind = out.tell() > 0
            out.flush()
            os.fsync(out.fileno())
        for name in hidden:
            delete_run(new.journal, name)
    return tuple(sorted(saved, key=lambda run: run.run)), any_behind


def _copy(plan: Plan, run: Saved, new: NewFile) -> None:
    """Write a run's commits as they are, checked once more on the way."""
    if run.origin is not None:
        new.journal.fork(run.origin.run_id, run.run, run.origin.position)
    new.write(run.run, plan.commits(run))


def _told(commits: Iterator[Behind], out: IO[str], model: Model) -> Iterator[Behind]:
    """Write down what lies behind a damage as it passes."""
    for found in commits:
        for line in rescue_lines(found, model.catalog):
            out.write(line + "\n")
        yield found


def _flush(file: Path) -> None:
    """Make sure that a file which nobody has open is on the disk."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _named(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, of: progress(what, done, of)
