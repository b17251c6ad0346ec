"""Checks of whole journals: replayed by every route, cut at every place. For recorded runs, fixtures and stores of
one's own, where no machine made the events. They must never write to what they are given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from engine.archive import commits_of
from engine.core.envelope import Group
from engine.core.model import Model
from engine.core.state import ModelState
from engine.open_store import Store, open_store
from engine.runs import RunView
from engine.store import connect
from engine.testing.checks import check_answers, check_elsewhere, groups_of
from engine.testing.failure import ReplayDiffers, home_of
from engine.testing.purity import check_purity, since
from engine.testing.twin import Answer, Asked, Twin, would
from projections.model import MODEL

__all__ = ["Replayed", "Subject", "assert_replay_identical", "cut_everywhere"]

Subject: TypeAlias = Store | Twin | Path | Iterable[str]
"""A journal to check: an open store, the path of a store or of an archive, an archive's lines, or a run in memory."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was replayed: the run, how many events it has, and how many restores were compared with its fold."""

    run: str
    events: int
    restores: int


def assert_replay_identical(
    subject: Subject, model: Model | None = None, *, run_id: str | None = None, elsewhere: bool = True
) -> list[Replayed]:
    """Check that every run (or the one named) is the same by every route; return what was compared, run by run.

    At every position: the state restored from the nearest checkpoint is the state of one uninterrupted fold, byte for
    byte; from every checkpoint the run's end is reached; the fold leaves its events alone; a stored run verifies, by
    its own checkpoints too; a process with another hash seed, clock and locale makes the same of it. Raises
    ReplayDiffers naming the event and field; CorruptJournal, ImportRefused, NotFound.
    """
    results = []
    for twin, store in _runs(subject, model, run_id):
        restores = _as_stored(twin, store) if store is not None else 0
        restores += _as_copied(twin)
        check_purity(twin.model, groups_of(twin))
        home = home_of(twin.model) if elsewhere else None
        if home is not None and twin.position:
            check_elsewhere(home, twin, (), ())
        results.append(Replayed(twin.run_id, twin.position, restores))
    return results


def cut_everywhere(
    subject: Subject,
    model: Model | None = None,
    *,
    run_id: str | None = None,
    commands: Sequence[Any] = (),
    cuts_max: int = 500,
) -> int:
    """Check that every prefix of a run is a run, also one that ends inside a commit; return the number of cuts.

    Each prefix verifies, restores to what the fold was there, decides ``commands`` as the fold does there, and goes on
    with the events after it to the same end. A run of more than ``cuts_max`` events is cut at so many places, evenly.
    Raises as :func:`assert_replay_identical`.
    """
    cuts = 0
    for twin, _ in _runs(subject, model, run_id):
        step = max(1, -(-twin.position // cuts_max))
        asked = [Asked(command, False, 0) for command in commands]
        for state in twin.walk():
            if state.seq % step == 0 or state.seq == twin.position:
                _check_cut(twin, state, asked)
                cuts += 1
    return cuts


def _check_cut(twin: Twin, fold: ModelState, asked: Sequence[Asked]) -> None:
    prefix = twin.at(fold.seq)
    store = prefix.store()
    run = store.run(twin.run_id)
    _compare(prefix, fold, run.ask(lambda state: state), f"the run cut at {fold.seq}")
    if prefix.position and not (verdict := store.verify(twin.run_id)).ok:
        fault = verdict.faults[0]
        raise ReplayDiffers(f"the run cut at {fold.seq} does not verify: {fault.code} at {fault.seq}: {fault.found}")
    for each in asked:
        answer = run.ask(partial(_answer, twin, each))
        check_answers(each, answer, _answer(twin, each, fold), f"the run cut at {fold.seq}")
    for groups in _rest(twin, fold.seq):
        prefix.append(groups)
    for first, count, stored, link in prefix.sealed():
        if first > fold.seq:
            store.journal.append(twin.run_id, first, count, stored, link)
    run.refresh()
    end = run.ask(lambda state: state)
    for name, table in twin.state.tables.items():
        mine = [(key, row.dump()) for key, row in end.tables[name].ordered()]
        if name != "run.ledger" and mine != [(key, row.dump()) for key, row in table.ordered()]:
            # of a command that was cut apart the ledger knows the part before the cut; all else must be as it was
            apart = since(groups_of(twin), twin.state, end)
            raise ReplayDiffers(f"the run cut at {fold.seq} goes on to another end: {apart}")


def _answer(twin: Twin, asked: Asked, state: ModelState) -> Answer:
    return would(twin.model, state, twin.run_id, asked)


def _rest(twin: Twin, after: int) -> Iterator[list[Group]]:
    """Yield the groups of the commits after a position; the first may be the rest of a commit."""
    seq = 0
    for commit in twin.commits:
        rest: list[Group] = []
        for group in commit:
            kept = group[-1][max(0, after - seq) :]
            seq += len(group[-1])
            if kept:
                rest.append([*group[:-1], kept])
        if rest:
            yield rest


# -- routes -----------------------------------------------------------------------------------------------------------


def _as_stored(twin: Twin, store: Store) -> int:
    """Check a run where it is stored: that it verifies, and by each of its checkpoints."""
    verdict = store.verify(twin.run_id)
    if not verdict.ok:
        fault = verdict.faults[0]
        raise ReplayDiffers(f"run {twin.run_id!r} does not verify: {fault.code} at {fault.seq}: {fault.found}")
    routes: list[Any] = ["best", "genesis", *store.checkpoints.positions(twin.run_id)]
    for route in routes:
        view = store.view(twin.run_id, start=route)
        _compare(twin, twin.state, _state_of(view), f"run {twin.run_id!r} restored from {route}")
    return len(routes)


def _as_copied(twin: Twin) -> int:
    """Check a copy in memory that took a checkpoint after every commit: at every position, and from each of them."""
    store = Store(connect("memory:"), twin.model)
    run = store.run(twin.run_id)
    for first, count, stored, link in twin.sealed():
        store.journal.append(twin.run_id, first, count, stored, link)
        run.refresh()
        run.checkpoint()
    restores = 0
    for fold in twin.walk():
        if twin.position:
            view = store.view(twin.run_id, at=fold.seq)
            who = f"run {twin.run_id!r} at {fold.seq}, from checkpoint {view.report.used}"
            _compare(twin, fold, _state_of(view), who)
            restores += 1
    for position in store.checkpoints.positions(twin.run_id):
        view = store.view(twin.run_id, start=position)
        _compare(twin, twin.state, _state_of(view), f"run {twin.run_id!r} at its end, from checkpoint {position}")
        restores += 1
    return restores


def _state_of(view: RunView) -> ModelState:
    return view.ask(lambda state: state)


def _compare(twin: Twin, fold: ModelState, restored: ModelState, who: str) -> None:
    if restored.bytes() != fold.bytes():
        apart = since(groups_of(twin.at(fold.seq)), fold, restored)
        raise ReplayDiffers(f"{who} differs from one uninterrupted fold {apart or 'in the order of its records'}")


# -- what is to be checked --------------------------------------------------------------------------------------------


def _runs(subject: Subject, model: Model | None, run_id: str | None) -> Iterator[tuple[Twin, Store | None]]:
    """Yield each run as a twin, with the store it lies in."""
    if isinstance(subject, Twin):
        yield subject, None
    elif isinstance(subject, Store):
        for name in [run_id] if run_id is not None else [summary.run for summary in subject.runs()]:
            twin = Twin(model or subject.model, name)
            for commit in subject.journal.commits(name):
                twin.append(commit.groups)
            yield twin, subject if model is None or model is subject.model else None
    elif isinstance(subject, Path) and subject.suffix != ".jsonl":
        with open_store(subject, create=False, read_only=True, model=model or MODEL) as store:
            yield from _runs(store, None, run_id)
    else:
        lines = subject.read_text(encoding="utf-8").splitlines() if isinstance(subject, Path) else list(subject)
        yield _of_lines(lines, model), None


def _of_lines(lines: Sequence[str], model: Model | None) -> Twin:
    model = model or MODEL
    commits = commits_of(lines, model)
    twin = Twin(model, json.loads(lines[0])["run"])
    for commit in commits:
        twin.append(commit.groups)
    return twin
