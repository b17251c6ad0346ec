"""Doctor: what is damaged in a store, what can be saved of it, and saving that into a new one. It must never change the
store it looks at, nor write a byte into the new one whose link does not hold.

Into the new store goes, run by run, every event before the first damage: the same bytes, so the same links. What lies
behind a damage is no run any more, since the state it would be folded into is not known. It goes into a file beside the
new store, an event a line, marked as ``proved`` when its link follows from the one before it, and in a form that
``refold import`` does not take: it is evidence, never data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.archive import stored_type, to_json
from engine.core.codec import NotCanonical, decode
from engine.core.decider import Model
from engine.core.envelope import EVENTS, LINK_BYTES, Commit, body_of, genesis
from engine.core.errors import BackendUnavailable, EngineError, NotAStore, NotFound, Refused, SchemaError
from engine.files import put_in_place
from engine.open_store import Store, open_store
from engine.store import Head, Journal, Origin, connect
from engine.store.connect import path_of
from engine.store.lineage import fork_genesis, truncated
from engine.store.remains import Candidate, Proved, Remains, file_problems
from engine.verify import Verdict

__all__ = ["Diagnosis", "Finding", "Salvage", "Savable", "diagnose", "salvage"]

RESCUE_FORMAT: Final = 1
_RESCUE_SUFFIX: Final = ".rescued.jsonl"
_COPY: Final = "'refold doctor --salvage NEW' saves what can be saved; the rest is in a copy or an export, if anywhere"

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
class Savable:
    """What can be saved of a run: its events up to ``position`` as a run, ``behind`` events after the damage, and how
    many more of those without proof (``unproved``). ``expected`` is the position that its head record states;
    for a deleted run the one that its forks need."""

    run: str
    position: int
    expected: int | None
    behind: int
    unproved: int
    note: str = ""

    @property
    def whole(self) -> bool:
        """Whether nothing of the run is lost, as far as anything left of the store knows."""
        return self.expected is not None and self.position >= self.expected and not (self.behind or self.unproved)

    def to_json(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {
            "run": self.run,
            "whole": self.whole,
            "position": self.position,
            "expected": self.expected,
            "behind": self.behind,
            "unproved": self.unproved,
            "note": self.note,
        }


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


@dataclass(frozen=True, slots=True)
class Salvage:
    """What was saved: into which store, into which file beside it (None: nothing lay behind a damage), and of which
    runs."""

    store: str
    rescued: str | None
    runs: tuple[Savable, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the salvage for ``--json``."""
        return {"store": self.store, "rescued": self.rescued, "runs": [run.to_json() for run in self.runs]}


def diagnose(url: str | Path, model: Model, *, progress: Progress | None = None) -> Diagnosis:
    """Look at everything: the file, the log beside it, every run and every checkpoint. Changes nothing.

    Raises NotFound when there is no store, BackendUnavailable when it cannot be looked at now; damage never raises.
    """
    path = _file_of(url)
    with Remains(path) as remains:  # before SQLite looks at the log
        findings = list(_of_log(remains))
    findings += [Finding("damaged_file", problem, _COPY) for problem in file_problems(path)]
    verdicts: list[Verdict] = []
    try:
        with open_store(url, create=False, read_only=True, model=model) as store:
            findings += _verified(store, verdicts, progress)
    except NotAStore as error:
        findings.append(Finding(error.code, error.message, _COPY))
    except SchemaError as error:
        findings.append(Finding(error.code, error.message, error.hint))
    found = Diagnosis(str(url), tuple(findings), tuple(verdicts), ())
    if found.ok:
        return found
    with Remains(path) as remains:
        return replace(found, savable=tuple(savable for savable, _ in _plan(remains)))


def _of_log(remains: Remains) -> Iterator[Finding]:
    if remains.commits_dropped:
        problem = (
            f"the log beside the file is damaged: at least {remains.commits_dropped} commits in it are out of reach"
        )
        hint = "do not write to the store, which would drop them for good: 'refold doctor --salvage NEW' reads them"
        yield Finding("damaged_log", problem, hint)


def _verified(store: Store, verdicts: list[Verdict], progress: Progress | None) -> Iterator[Finding]:
    """Verify every run; yield what kept one from being verified."""
    for summary in store.runs():
        step = None if progress is None else _for_run(progress, summary.run)
        try:
            verdicts.append(store.verify(summary.run, progress=step))
        except BackendUnavailable:
            raise
        except EngineError as error:
            yield Finding(error.code, f"run {summary.run!r} cannot be verified: {error.message}", error.hint)


def _for_run(progress: Progress, run: str) -> Callable[[int, int], None]:
    return lambda done, of: progress(run, done, of)


def salvage(url: str | Path, target: Path, model: Model) -> Salvage:
    """Save what can be saved of a store into a new one at ``target``, which is complete or not there.

    Raises NotFound when there is no store, Refused when ``target`` exists, BackendUnavailable when it cannot be
    written.
    """
    path = _file_of(url)
    rescued = target.with_name(target.name + _RESCUE_SUFFIX)
    for taken in (target, rescued):
        if taken.exists():
            raise Refused(f"{taken} exists", hint="name a file that does not exist yet")
    made = target.with_name(f".{target.name}.part")
    lines = target.with_name(f".{rescued.name}.part")
    try:
        with Remains(path) as remains:
            saved, any_behind = _write(remains, made, lines, model)
        if any_behind:
            put_in_place(lines, rescued)
        put_in_place(made, target)
    except OSError as error:
        raise BackendUnavailable(f"{target} cannot be written: {error.strerror}", hint="check the folder") from error
    finally:
        for left in (made, lines, *(made.with_name(made.name + end) for end in ("-wal", "-shm", "-journal"))):
            left.unlink(missing_ok=True)
    return Salvage(str(target), str(rescued) if any_behind else None, tuple(saved))


def _file_of(url: str | Path) -> Path:
    """Return the file of a store. Raises NotFound, NotAStore."""
    path = path_of(url)
    if path is None:
        raise NotAStore(f"store {url} is no file", hint="the doctor looks at store files")
    if not path.is_file():
        raise NotFound(f"there is no store at {path}", hint="--store or REFOLD_STORE names another")
    return path


# -- what can be saved ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Saved:
    """A run as far as its chain holds: where it begins, its commits, and the link at the end."""

    run: str
    origin: Origin | None
    hidden: bool
    expected: int | None
    commits: list[Candidate]
    last: int
    link: bytes


def _plan(remains: Remains) -> Iterator[tuple[Savable, _Saved]]:
    """Yield what can be saved of every run, the runs that others were forked from before those."""
    saved: dict[str, _Saved] = {}
    used: set[Candidate] = set()
    waiting = remains.runs()
    while waiting:
        ready = [run for run in waiting if _is_ready(remains, run, waiting)]
        # Then those whose head records are lost: their rows may be strays of another run. In a circle nothing is ready,
        # and one of it goes first, on its own.
        for run in ready or [run for run in waiting if not remains.heads(run)] or waiting[:1]:
            waiting.remove(run)
            if not remains.heads(run) and used.issuperset(remains.candidates(run)):
                continue
            made = _chained(remains, run, saved)
            saved[run] = made
            used.update(made.commits)
            yield _savable(remains, made, used), made


def _is_ready(remains: Remains, run: str, waiting: list[str]) -> bool:
    """Return whether a run is known to have been forked from none of those that wait."""
    heads = remains.heads(run)
    return bool(heads) and all(head.origin is None or head.origin.run_id not in waiting for head in heads)


def _chained(remains: Remains, run: str, saved: dict[str, _Saved]) -> _Saved:
    """Return a run as far as its chain holds from its beginning, by the best of its head records."""
    best: _Saved | None = None
    heads: list[Head | None] = [*remains.heads(run)]
    for head in heads or [None]:
        for origin in [head.origin] if head is not None else [None, *_origins(remains, run, saved)]:
            if origin is not None and not _reaches(remains, saved, origin):
                continue
            made = _follow(remains, run, origin, head)
            if origin is not None and not made.commits and (head is None or head.link != made.link):
                continue  # nothing proves that a run of this name was forked there
            if best is None or (len(made.commits), made.last) > (len(best.commits), best.last):
                best = made
    if best is None:  # a fork whose origin, or whose name, is not known any more
        head = remains.heads(run)[0]
        best = _Saved(run, None, head.hidden, _expected(remains, head), [], 0, genesis(run))
    return best


def _follow(remains: Remains, run: str, origin: Origin | None, head: Head | None) -> _Saved:
    start = genesis(run) if origin is None else fork_genesis(run, origin)
    low = 0 if origin is None or head is None else origin.position
    hidden, expected = (False, None) if head is None else (head.hidden, _expected(remains, head))
    made = _Saved(run, origin, hidden, expected, [], low, start)
    at = 0 if origin is None else origin.position
    while True:
        found = remains.proved(run, at + 1, made.link)
        if found is None and (expected is None or at < expected):
            found = remains.stray(run, at + 1, made.link)
        if found is None:
            return made
        made.commits.append(found.candidate)
        at = made.last = found.commit.last
        made.link = found.commit.link


def _expected(remains: Remains, head: Head) -> int:
    """Return how far a run should reach: to its head, or when it is deleted as far as its forks need it."""
    if not head.hidden:
        return head.position
    origins = [fork.origin for run in remains.runs() for fork in remains.heads(run)]
    return max((origin.position for origin in origins if origin and origin.run_id == head.run_id), default=0)


def _origins(remains: Remains, run: str, saved: dict[str, _Saved]) -> Iterator[Origin]:
    """Yield the points that a run without a head record may have been forked at; its chain will tell which it was."""
    positions = remains.positions(run)
    if not positions or positions[0] == 1:
        return
    at = positions[0] - 1
    for other in saved.values():
        if (0 if other.origin is None else other.origin.position) <= at <= other.last:
            link = _link_at(remains, other, at)
            if link is not None:
                yield Origin(other.run, at, link)


def _reaches(remains: Remains, saved: dict[str, _Saved], origin: Origin) -> bool:
    """Return whether the history that a fork left is saved up to the fork, and is the one it left."""
    other = saved.get(origin.run_id)
    return (
        other is not None and origin.position <= other.last and _link_at(remains, other, origin.position) == origin.link
    )


def _link_at(remains: Remains, other: _Saved, position: int) -> bytes | None:
    """Return the link of a saved run at a position, as a fork there states it."""
    previous = genesis(other.run) if other.origin is None else fork_genesis(other.run, other.origin)
    if position == (0 if other.origin is None else other.origin.position):
        return previous
    for commit in _commits(remains, other):
        if position <= commit.commit.last:
            return truncated(commit.commit, position, previous).link
        previous = commit.commit.link
    return None


def _commits(remains: Remains, made: _Saved) -> Iterator[Proved]:
    """Yield the commits of a saved run again, checked again."""
    first = 1 if made.origin is None else made.origin.position + 1
    previous = genesis(made.run) if made.origin is None else fork_genesis(made.run, made.origin)
    for candidate in made.commits:
        found = remains.open(candidate, first, previous)
        if found is None:
            raise BackendUnavailable(f"the store changed while it was read, at run {made.run!r}", hint="try again")
        yield found
        first, previous = found.commit.last + 1, found.commit.link


def _savable(remains: Remains, made: _Saved, used: set[Candidate]) -> Savable:
    counts = {True: 0, False: 0}
    for _, count, proved in _behind(remains, made, used):
        counts[proved] += count
    note = ""
    if made.expected is None:
        note = "its head record is lost; it may have been deleted"
    elif made.hidden:
        note = "deleted; kept for its forks"
    return Savable(made.run, made.last, made.expected, counts[True], counts[False], note)


def _behind(remains: Remains, made: _Saved, used: set[Candidate]) -> Iterator[tuple[Commit, int, bool]]:
    """Yield (commit, events, whether its link follows from the row before it) of what lies behind the first damage."""
    before = [made.link]
    for first in remains.positions(made.run):
        left = [candidate for candidate in remains.at(made.run, first) if candidate not in used]
        if not left or 0 < first <= made.last:
            continue
        found = next((f for link in before if (f := remains.proved(made.run, first, link)) is not None), None)
        if found is not None:
            yield found.commit, found.commit.count, True
            before = [found.commit.link]
            continue
        commit = next((c for stored in remains.readable(left) if (c := _unproved(first, stored)) is not None), None)
        if commit is not None:
            yield commit, commit.count, False
        before = [candidate.link for candidate in left]  # damaged rows may state their link still


def _unproved(first: int, stored: bytes) -> Commit | None:
    """Return a commit whose link does not hold, None when its bytes are none."""
    try:
        groups = decode(body_of(stored))
        count = sum(len(group[EVENTS]) for group in groups)
        good = count > 0 and all(
            len(group) == EVENTS + 1 and all(type(wire) is list and len(wire) >= 2 for wire in group[EVENTS])
            for group in groups
        )
    except (NotCanonical, TypeError, IndexError, KeyError, AttributeError):
        return None
    return Commit(first, count, stored[:LINK_BYTES], groups) if good else None


# -- saving it --------------------------------------------------------------------------------------------------------


def _write(remains: Remains, made: Path, lines: Path, model: Model) -> tuple[list[Savable], bool]:
    """Write the new store and the file of what lay behind a damage; both durable. Returns what was saved, and whether
    the file holds anything."""
    saved: list[Savable] = []
    hidden: list[str] = []
    used: set[Candidate] = set()
    any_behind = False
    backend = connect(made)
    try:
        journal = Journal(backend)
        with lines.open("w", encoding="utf-8", newline="\n") as out:
            for savable, run in _plan(remains):
                _copy(remains, journal, run)
                saved.append(savable)
                if run.hidden and savable.position >= (savable.expected or 0):  # else it is all that is left
                    hidden.append(run.run)
                used.update(run.commits)
                for commit, _, proved in _behind(remains, run, used):
                    for line in _lines(run.run, commit, proved, model):
                        out.write(line + "\n")
                        any_behind = True
            out.flush()
            os.fsync(out.fileno())
        for name in hidden:
            if journal.head(name) is not None:
                journal.erase(name)
    finally:
        backend.close()
    return sorted(saved, key=lambda run: run.run), any_behind


def _copy(remains: Remains, journal: Journal, run: _Saved) -> None:
    """Write a run's commits as they are, checked once more on the way."""
    if run.origin is not None:
        journal.fork(run.origin.run_id, run.run, run.origin.position)
    for found in _commits(remains, run):
        commit = found.commit
        journal.append(run.run, commit.first, commit.count, found.stored, commit.link)


def _lines(run: str, commit: Commit, proved: bool, model: Model) -> Iterator[str]:
    seq = commit.first - 1
    for at_ms, actor, command_id, _, cause, events in commit.groups:
        for wire in events:
            seq += 1
            line: dict[str, Any] = {
                "refold_rescue": RESCUE_FORMAT,
                "proved": proved,
                "run": run,
                "seq": seq,
                "recorded_at_ms": at_ms,
                "actor": actor,
                "command_id": command_id,
                "cause": cause,
                "cause_back": wire[1],
            }
            try:
                event_type = stored_type(model.catalog, wire)
                data = {name: to_json(value) for name, value in event_type.data(wire).items()}
                line |= {"type": event_type.label, "data": data}
            except (SchemaError, ValueError, TypeError):  # an event that this refold does not know, or no event
                line |= {"type": None, "wire": to_json(wire)}
            yield json.dumps(line, ensure_ascii=False, default=repr)
