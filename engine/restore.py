"""Restore: the newest checkpoint that verifies, then the rest of the journal. It has no logic of its own; the fold is
the live path's.

The ladder: newest good checkpoint, an older one, genesis. A checkpoint is good when its bytes match its digest, its
chain of bases is whole, it was
written under the same schemas, and its link is the journal's link at its position. What is refused is reported, never
an error.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from engine.core.believed import IMPOSSIBLE, believing
from engine.core.envelope import genesis
from engine.core.errors import BackendUnavailable, NotAStore, NotFound
from engine.core.model import Model
from engine.core.state import ModelState
from engine.core.table import Key, Table
from engine.store import Checkpoint, Checkpoints, Journal, Rejected, cut

__all__ = ["Restored", "RestoreReport", "StartAt", "restore"]

StartAt: TypeAlias = Literal["best", "genesis"] | int
Progress: TypeAlias = Callable[[int, int], None]
"""Called with (position reached, position wanted) now and then."""

_PROGRESS_EVERY = 20_000


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore used: ``used`` is ``"genesis"`` or the checkpoint's position; ``rejected`` the checkpoints
    refused, newest first, and why."""

    run: str
    position: int
    used: Literal["genesis"] | int
    events_folded: int
    rejected: tuple[tuple[int, str], ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the report for ``--json``."""
        return {
            "run": self.run,
            "position": self.position,
            "used": self.used,
            "events_folded": self.events_folded,
            "rejected": [{"position": position, "reason": reason} for position, reason in self.rejected],
            "seconds": round(self.seconds, 6),
        }


@dataclass(slots=True)
class Restored:
    """A state at a position, the link there, and the checkpoint that a delta could continue (position, digest, bytes
    since the full one)."""

    state: ModelState
    link: bytes
    report: RestoreReport
    base: tuple[int, bytes] | None = None
    chain_bytes: int = 0
    full_bytes: int = 0
    deltas: list[int] = field(default_factory=list)
    """Positions of the deltas since the last full checkpoint, oldest first."""
    rejected: list[tuple[int, str]] = field(default_factory=list)


def restore(
    journal: Journal,
    checkpoints: Checkpoints,
    model: Model,
    run_id: str,
    *,
    until: int | None = None,
    start: StartAt = "best",
    progress: Progress | None = None,
) -> Restored:
    """Return the state of a run at ``until`` (default: its head), from ``start``: the best checkpoint, genesis, or the
    checkpoint at a position.

    A run without events gives the empty state. Raises NotFound when ``until`` lies past the head, the named checkpoint
    does not exist or does not verify, or the run is deleted meanwhile, CorruptJournal at the first damaged position
    that is needed, SchemaError for events this refold cannot read.
    """
    began = time.perf_counter()
    head = journal.head(run_id)
    end = head.position if head is not None else 0
    if until is not None and not 0 <= until <= end:
        raise NotFound(
            f"run {run_id!r} has no position {until}; it ends at {end}",
            hint=f"choose 0..{end}",
            run=run_id,
            position=until,
        )
    rejected: list[tuple[int, str]] = []
    if isinstance(start, int) and not 0 <= start <= end:
        raise NotFound(f"run {run_id!r} has no checkpoint at {start}", hint=f"it ends at {end}", run=run_id)
    restored = _from_checkpoint(journal, checkpoints, model, run_id, until, start, rejected)
    if restored is None:
        nothing = RestoreReport(run_id, 0, "genesis", 0, (), 0.0)
        restored = Restored(model.initial(), genesis(run_id), nothing)
    base_position = restored.state.seq
    used: Literal["genesis"] | int = restored.report.used
    fold(journal, run_id, restored, until=until, wanted=end if until is None else until, progress=progress)
    if restored.state.seq < (end if until is None else until):
        journal.check_there(run_id, head)
    restored.report = RestoreReport(
        run=run_id,
        position=restored.state.seq,
        used=used,
        events_folded=restored.state.seq - base_position,
        rejected=tuple(rejected),
        seconds=time.perf_counter() - began,
    )
    return restored


def fold(
    journal: Journal,
    run_id: str,
    restored: Restored,
    *,
    until: int | None = None,
    wanted: int = 0,
    progress: Progress | None = None,
) -> None:
    """Fold the commits after ``restored``'s position into it, in place, in bounded memory. Also how a run catches up
    with other writers."""
    state = restored.state
    told = state.seq
    try:
        for commit in journal.commits(run_id, after=state.seq, link=restored.link, until=until):
            with believing(run_id, commit.first):
                state.apply(cut(commit, until))
            restored.link = commit.link
            if progress is not None and state.seq - told >= _PROGRESS_EVERY:
                told = state.seq
                progress(told, wanted)
    except NotFound:
        if state.seq:
            raise
        return  # a run that is not there yet
    own = journal.lineage(run_id)[-1]
    if state.seq == own.low:  # at the joint of a fork the chain goes on from the fork's own start
        restored.link = own.start


def _from_checkpoint(
    journal: Journal,
    checkpoints: Checkpoints,
    model: Model,
    run_id: str,
    until: int | None,
    start: StartAt,
    rejected: list[tuple[int, str]],
) -> Restored | None:
    """Return the state at the newest usable checkpoint, or None for genesis; note every one refused on the way."""
    if start == "genesis":
        return None
    for position, stream in _candidates(journal, checkpoints, run_id, until, start, rejected):
        try:
            if until is not None and position > until:
                raise Rejected(f"it lies after position {until}")
            with _collector_paused():
                chain = checkpoints.chain(stream, position, model.fingerprint)
                link = journal.link_at(stream, position)
                if link is None or not chain[-1].is_at(link):
                    raise Rejected("its link is not the journal's link there")
                loaded = _load(journal, model, run_id, chain, link)
        except Rejected as error:
            rejected.append((position, str(error)))
        else:
            if stream != run_id:  # a fork's first checkpoint cannot continue one of its origin: their chains are apart
                loaded.base = None
            return loaded
    if isinstance(start, int):
        reason = rejected[0][1] if rejected else f"there is none at {start}"
        raise NotFound(
            f"run {run_id!r} cannot be restored from a checkpoint at {start}: {reason}",
            hint="'refold checkpoint RUN --list' shows those that exist; --from genesis always works",
            run=run_id,
            position=start,
        )
    return None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from looking through a table while it is loaded: nothing of it is garbage, and that
    would take as long as the loading itself. Other threads' garbage waits as long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _candidates(
    journal: Journal,
    checkpoints: Checkpoints,
    run_id: str,
    until: int | None,
    start: StartAt,
    rejected: list[tuple[int, str]],
) -> Iterator[tuple[int, str]]:
    """Yield (position, stream) of the checkpoints to try, newest first: a fork may use those of the history it
    shares."""
    for segment in reversed(journal.lineage(run_id)):
        ceiling = min((limit for limit in (segment.high, until) if limit is not None), default=None)
        if isinstance(start, int):
            if segment.low <= start and (segment.high is None or start <= segment.high):
                yield start, segment.run_id
        else:
            try:
                positions = checkpoints.positions(segment.run_id, until=ceiling)
            except (NotAStore, BackendUnavailable) as error:
                rejected.append((0, f"the checkpoints cannot be read: {error.message}"))
                return  # if it is the whole store, reading the journal will say so
            for position in positions:
                yield position, segment.run_id


def _load(journal: Journal, model: Model, run_id: str, chain: Sequence[Checkpoint], link: bytes) -> Restored:
    """Return the state that a chain of checkpoints describes. Raises Rejected when its records do not fit the
    tables."""
    state = model.initial()
    references: dict[str, dict[Key, tuple[int, int]]] = {}
    try:
        names = sorted(state.tables)
        for checkpoint in chain:
            for number, entries in checkpoint.tables:
                name = names[number]
                table = state.tables[name]
                pending = references.setdefault(name, {}) if table.refer is not None else None
                _load_table(table, entries, pending)
        _resolve(journal, model, run_id, state, references)
        state.seq = chain[-1].position
        state.reindex()
    except IMPOSSIBLE as error:
        raise Rejected(f"its records do not fit: {type(error).__name__}: {error}") from error
    last = chain[-1]
    report = RestoreReport(run_id, last.position, last.position, 0, (), 0.0)
    deltas = sum(checkpoint.size_bytes for checkpoint in chain[1:])
    return Restored(
        state,
        link,
        report,
        (last.position, link),
        deltas,
        chain[0].size_bytes,
        [checkpoint.position for checkpoint in chain[1:]],
    )


def _load_table(
    table: Table[Any], entries: Sequence[tuple[Any, Any]], pending: dict[Key, tuple[int, int]] | None
) -> None:
    rows = table.rows
    load = table.load
    for stored_key, stored in entries:
        key = tuple(stored_key) if type(stored_key) is list else stored_key
        if pending is not None:
            if stored is None:
                pending.pop(key, None)
            else:
                seq, index = stored
                pending[key] = (seq, index)
        elif stored is None:
            rows.pop(key, None)
        else:
            rows[key] = load(stored)


def _resolve(
    journal: Journal, model: Model, run_id: str, state: ModelState, references: dict[str, dict[Key, tuple[int, int]]]
) -> None:
    """Fill in the records whose content stands in the journal, reading each commit once."""
    wanted: dict[int, list[tuple[str, Key, int]]] = {}
    for name, pending in references.items():
        for key, (seq, index) in pending.items():
            wanted.setdefault(seq, []).append((name, key, index))
    if not wanted:
        return
    found: dict[str, dict[Key, list[Any]]] = {name: {} for name in references}
    seqs = sorted(wanted)
    for commit in journal.containing(run_id, seqs):
        seq = commit.first - 1
        for group in commit.groups:
            for stored in group[-1]:
                seq += 1
                if seq in wanted:
                    wire = model.catalog.lift(stored)
                    for name, key, index in wanted[seq]:
                        resolve = getattr(model.owner[wire[0]], "resolve")  # noqa: B009  # only projections with references have it
                        found[name][key] = resolve(name.partition(".")[2], key, wire, seq, index)
    for name, pending in references.items():
        table = state.tables[name]
        for key in pending:  # in the checkpoint's order, which is the table's
            table.rows[key] = table.load(found[name][key])
