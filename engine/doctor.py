"""Doctor: what is damaged in a store, and what of it can be saved. It must never change the store it looks at.

The saving is done by :mod:`engine.salvage`, and can be had from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.core.errors import BackendUnavailable, EngineError, SchemaError
from engine.core.model import Model
from engine.open_store import Store
from engine.rescue import behind, savable
from engine.salvage import Salvage, salvage
from engine.savable import Plan, Savable
from engine.store.remains import Remains
from engine.store.sqlite_files import file_beside
from engine.store.store_file import commits_dropped, file_of, file_problems, is_of_the_file, looked_at, opened_to_look
from engine.verify import Verdict

__all__ = ["Diagnosis", "Finding", "Salvage", "Savable", "diagnose", "salvage"]

_COPY: Final = "'refold doctor --salvage NEW' saves what can be saved; the rest is in a copy or an export, if anywhere"
_LEAVE: Final = "do not write to the store, which would drop them for good: 'refold doctor --salvage NEW' saves them"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with the store as a whole, not with one run."""

    code: str
    problem: str
    hint: str

    def to_json(self) -> dict[str, Any]:
        """Return the finding for ``--json``."""
        return {"code": self.code, "problem": self.problem, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a store: with its file, with each run, and, when anything is, what can be saved."""

    store: str
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    savable: tuple[Savable, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.findings and all(verdict.ok for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis for ``--json``."""
        return {
            "store": self.store,
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
            "runs": [verdict.to_json() for verdict in self.verdicts],
            "savable": [savable.to_json() for savable in self.savable],
        }


def diagnose(
    url: str | Path, model: Model, *, alone: bool = False, saving: bool = True, progress: Progress | None = None
) -> Diagnosis:
    """Look at everything: the file, the log beside it, every run and every checkpoint. Changes neither file nor log.

    ``alone`` promises that this process does not have the store open, nor opens it meanwhile: then the index that
    SQLite keeps beside a log is left as it is too, and no file is made. With ``saving`` off nobody asks what can be
    saved of a damaged store. ``progress`` is called with (what, done, of).

    Raises NotFound when there is no store, NotAStore when the path is no file, BackendUnavailable when it cannot be
    looked at now; damage never raises.
    """
    path = file_of(url)
    try:
        before = _mark(path)
        findings = list(_of_log(path))
        with looked_at(path) as place:
            findings += [Finding("damaged_file", problem, _COPY) for problem in file_problems(place, alone=alone)]
            verdicts: list[Verdict] = []
            findings += _of_runs(place, model, verdicts, alone=alone, progress=progress)
        found = Diagnosis(str(url), tuple(findings), tuple(verdicts), ())
        if not found.ok and alone and before is not None and _mark(path) != before:
            raise BackendUnavailable(f"store {path} changed while it was looked at", hint="try again")
        if found.ok or not saving:
            return found
        with Remains(path, progress=_named(progress, "pages")) as remains:
            plan = Plan(remains, progress=_named(progress, "commits"))
            runs = [savable(run, behind(plan, run)) for run in plan.runs()]
    except OSError as error:
        raise BackendUnavailable(f"store {path} cannot be read: {error.strerror}", hint="check the disk") from error
    return replace(found, savable=tuple(sorted(runs, key=lambda run: run.run)))


def _mark(path: Path) -> tuple[int, int] | None:
    """Return what changes with a store that has no log beside it; None with one: then SQLite sees to it that one look
    is at one state."""
    if file_beside(path, "-wal").exists():
        return None
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _of_log(path: Path) -> Iterator[Finding]:
    dropped = commits_dropped(path)
    if dropped:
        problem = f"the log beside the file is damaged: at least {dropped} commits in it are out of reach"
        yield Finding("damaged_log", problem, _LEAVE)


def _of_runs(
    path: Path, model: Model, verdicts: list[Verdict], *, alone: bool, progress: Progress | None
) -> Iterator[Finding]:
    """Verify every run that SQLite sees; yield what keeps the store from being opened, or one from being verified."""
    try:
        backend = opened_to_look(path, alone=alone)
    except EngineError as error:
        if not is_of_the_file(error):
            raise
        yield Finding(error.code, error.message, error.hint if isinstance(error, SchemaError) else _COPY)
        return
    with Store(backend, model) as store:
        yield from _verified(store, verdicts, progress)


def _verified(store: Store, verdicts: list[Verdict], progress: Progress | None) -> Iterator[Finding]:
    try:
        runs = [summary.run for summary in store.runs()]
    except EngineError as error:
        if not is_of_the_file(error):
            raise
        yield Finding(error.code, f"the runs cannot be listed: {error.message}", _COPY)
        return
    for run in runs:
        try:
            verdicts.append(store.verify(run, progress=_named(progress, run)))
        except EngineError as error:
            if not is_of_the_file(error):
                raise
            yield Finding(error.code, f"run {run!r} cannot be verified: {error.message}", error.hint)


def _named(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, of: progress(what, done, of)
