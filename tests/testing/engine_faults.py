"""Faults planted in the engine itself, each of a kind that only one sort of disturbance can find: what the rules of the
restore machine are worth. Each is a function that puts its fault in by monkeypatching."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from engine import replica, run
from engine.core.codec import decode
from engine.core.errors import BackendUnavailable, Conflict, EngineError
from engine.core.handle import Outcome
from engine.core.state import ModelState
from engine.open_store import Store
from engine.replica import Replica
from engine.run import Run
from engine.store import Checkpoints, Journal, Rejected

__all__ = ["FAULTS"]

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def _disk(journal: Any) -> dict[Any, Any]:
    """A place beside the journal that outlives its processes, as a second file would."""
    recorder = journal._commits.__dict__.get("_inner", journal._commits)
    place: dict[Any, Any] = recorder.__dict__.setdefault("planted", {})
    return place


# -- crashes ----------------------------------------------------------------------------------------------------------


def ids_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """Command ids stand in a table of their own, which is written before the commit is."""
    append = Run._append

    def appended(self: Any, decide: Any, fingerprint: Any, command_id: Any, *rest: Any) -> Any:
        if command_id is None or self._draft is not None:
            return append(self, decide, fingerprint, command_id, *rest)
        known = _disk(self._journal)
        if (self.id, command_id) in known and command_id not in self._at.state.ledger.rows:
            return Outcome(self._at.state.seq, 0, tuple, repeated=True)
        known[self.id, command_id] = True
        try:
            return append(self, decide, fingerprint, command_id, *rest)
        except Exception:
            del known[self.id, command_id]
            raise

    patch.setattr(Run, "_append", appended)


def recovery_gives_commands_again(patch: pytest.MonkeyPatch) -> None:
    """What was not acknowledged is done again by the next process, whether it was done or not."""
    append, opened = Run._append, Run.__init__

    def appended(self: Any, *asked: Any) -> Any:
        pending = _disk(self._journal)
        if self._draft is None:
            pending[self.id] = asked
        try:
            outcome = append(self, *asked)
        except Exception:
            pending.pop(self.id, None)
            raise
        pending.pop(self.id, None)
        return outcome

    def recovered(self: Any, *arguments: Any, **named: Any) -> None:
        opened(self, *arguments, **named)
        if (asked := _disk(self._journal).pop(self.id, None)) is not None:
            append(self, *asked)

    patch.setattr(Run, "_append", appended)
    patch.setattr(Run, "__init__", recovered)


def ids_after_the_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    """Command ids stand in a table of their own, which is written when the command was acknowledged."""
    append, restore = Run._append, replica.restore

    def appended(self: Any, decide: Any, fingerprint: Any, command_id: Any, *rest: Any) -> Any:
        outcome = append(self, decide, fingerprint, command_id, *rest)
        _disk(self._journal)[command_id] = True
        return outcome

    def restored(journal: Any, *arguments: Any, **named: Any) -> Any:
        found, known = restore(journal, *arguments, **named), _disk(journal)
        for command_id in [each for each in found.state.ledger.rows if each not in known]:
            del found.state.ledger.rows[command_id]
        return found

    patch.setattr(Run, "_append", appended)
    patch.setattr(replica, "restore", restored)


def failed_writes_did_not_happen(patch: pytest.MonkeyPatch) -> None:
    """A write that came back with an error counts as one that did not happen."""
    take_back = Run._take_back

    def taken_back(self: Any, draft: Any, error: BaseException) -> None:
        take_back(self, draft, error)
        self._behind = False

    patch.setattr(Run, "_take_back", taken_back)


def errors_in_a_batch_leave_it(patch: pytest.MonkeyPatch) -> None:
    """A caller's own error in the midst of a batch leaves the commands before it in the state."""
    take_back = Run._take_back

    def taken_back(self: Any, draft: Any, error: BaseException) -> None:
        if isinstance(error, Exception) and not isinstance(error, EngineError):
            self._at.state.keep()
            self._lost = False
            return
        take_back(self, draft, error)

    patch.setattr(Run, "_take_back", taken_back)


def named_checkpoints_forget_ids(patch: pytest.MonkeyPatch) -> None:
    """A run that is opened from a checkpoint of one's choice has forgotten its command ids."""
    restore = replica.restore

    def restored(*arguments: Any, start: Any = "best", **named: Any) -> Any:
        found = restore(*arguments, start=start, **named)
        if isinstance(start, int):
            found.state.ledger.rows.clear()
        return found

    patch.setattr(replica, "restore", restored)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def deltas_without_removals(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint of what changed leaves out what was removed."""
    from engine import checkpoint

    capture = checkpoint.capture

    def captured(state: Any, run_id: str, link: bytes, base: Any) -> bytes:
        gone = [(table, key) for table in state.tables.values() for key in table.changed if key not in table.rows]
        for table, key in gone if base is not None else ():
            del table.changed[key]
        return capture(state, run_id, link, base)

    patch.setattr(checkpoint, "capture", captured)


def checkpoints_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    """Where a checkpoint is being written is noted beside it; who finds the note believes it."""
    put, restore = Checkpoints.put, replica.restore

    def noted(self: Any, run_id: str, position: int, stored: bytes, **named: Any) -> None:
        place = self._recorder.__dict__.get("_inner", self._recorder).__dict__
        place["planted"] = (run_id, position)
        try:
            put(self, run_id, position, stored, **named)
        except Exception:
            del place["planted"]
            raise
        del place["planted"]

    def believed(journal: Any, checkpoints: Any, model: Any, run_id: str, **named: Any) -> Any:
        place = checkpoints._recorder.__dict__.get("_inner", checkpoints._recorder).__dict__
        found = restore(journal, checkpoints, model, run_id, **named)
        noted_run, position = place.get("planted", ("", 0))
        if noted_run == run_id and named.get("until") is None:
            found.state.seq = position - 1
        return found

    patch.setattr(Checkpoints, "put", noted)
    patch.setattr(replica, "restore", believed)


def failed_checkpoints_were_taken(patch: pytest.MonkeyPatch) -> None:
    """What a checkpoint was to hold that could not be written is forgotten for the next one."""
    take = run.take_checkpoint

    def taken(checkpoints: Any, run_id: str, at: Any, **named: Any) -> Any:
        base = at.base
        try:
            return take(checkpoints, run_id, at, **named)
        except BackendUnavailable:
            at.base = base
            for table in at.state.tables.values():
                table.changed.clear()
            raise

    patch.setattr(run, "take_checkpoint", taken)


class _Reading:
    """Checkpoints read through something that makes them look better than they are."""

    def __init__(self, patch: pytest.MonkeyPatch, read: Callable[[Any, Any, int, bytes], Any]) -> None:
        original = Checkpoints.read
        patch.setattr(Checkpoints, "read", lambda self, *asked: read(original, self, *asked))


def digests_unchecked(patch: pytest.MonkeyPatch) -> None:
    """The digest of a checkpoint is whatever its bytes give."""

    def read(original: Any, self: Any, run_id: str, position: int, fingerprint: bytes) -> Any:
        def repaired(*where: Any) -> Any:
            found = self._recorder.read(*where)
            return found and (found[0], sha256(found[1][16:]).digest()[:16] + found[1][16:])

        believing = SimpleNamespace(_recorder=SimpleNamespace(read=repaired), _where=self._where)
        return original(believing, run_id, position, fingerprint)

    _Reading(patch, read)


def missing_bases_are_empty(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint whose base is gone is taken for a whole one."""
    chain = Checkpoints.chain

    def believed(self: Any, run_id: str, position: int, fingerprint: bytes) -> Any:
        try:
            return chain(self, run_id, position, fingerprint)
        except Rejected as error:
            if "there is none at" not in str(error):
                raise
            return [self.read(run_id, position, fingerprint)]

    patch.setattr(Checkpoints, "chain", believed)


def fingerprints_unchecked(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint of any version of the program is read as one of this."""

    def read(original: Any, self: Any, run_id: str, position: int, fingerprint: bytes) -> Any:
        found = self._recorder.read(run_id, position)
        with suppress(Exception):
            fingerprint = fingerprint if found is None else decode(found[1][16:])[1]
        return original(self, run_id, position, fingerprint)

    _Reading(patch, read)


# -- others -----------------------------------------------------------------------------------------------------------


def conflicts_swallowed(patch: pytest.MonkeyPatch) -> None:
    """A writer that was overtaken is told that it has written."""
    append = Journal.append

    def appended(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            append(self, *arguments, **named)
        except Conflict:
            return

    patch.setattr(Journal, "append", appended)


def actors_leak_between_runs(patch: pytest.MonkeyPatch) -> None:
    """Who asks for nobody in particular is taken for who asked another run of the process last."""
    append = Run._append
    last: dict[str, Any] = {"run": None, "of": None, "actor": None}

    def appended(self: Any, decide: Any, fingerprint: Any, command_id: Any, actor: Any, *rest: Any) -> Any:
        journal = id(_disk(self._journal))
        if last["of"] != journal:
            last.update(run=self.id, of=journal, actor=None)
        if last["run"] != self.id:
            actor = actor or last["actor"]
        last.update(run=self.id, actor=actor or last["actor"])
        return append(self, decide, fingerprint, command_id, actor, *rest)

    patch.setattr(Run, "_append", appended)


def old_events_ignored(patch: pytest.MonkeyPatch) -> None:
    """Events of a version that is not written any more are skipped when they are met."""
    bind = ModelState._bind

    def bound(self: Any) -> Any:
        handlers = bind(self)
        for tag in self.model.catalog.older:
            handlers[tag] = lambda wire, seq: None
        return handlers

    patch.setattr(ModelState, "_bind", bound)


def views_one_event_early(patch: pytest.MonkeyPatch) -> None:
    """The state as of a position is the one before it."""
    view = Store.view

    def viewed(self: Any, run_id: str, *, at: int | None = None, **named: Any) -> Any:
        return view(self, run_id, at=at - 1 if at and at > 1 else at, **named)

    patch.setattr(Store, "view", viewed)


def forks_one_event_early(patch: pytest.MonkeyPatch) -> None:
    """A fork shares one event less than it was asked to."""
    fork = Journal.fork
    patch.setattr(Journal, "fork", lambda self, run_id, new_id, at: fork(self, run_id, new_id, max(0, at - 1)))


def last_fact_dropped(patch: pytest.MonkeyPatch) -> None:
    """Of several facts the last one is lost."""
    ingest = Run.ingest

    def ingested(self: Any, facts: Any, **named: Any) -> Any:
        given = list(facts)
        return ingest(self, given[:-1] if len(given) > 1 else given, **named)

    patch.setattr(Run, "ingest", ingested)


def facts_of_nobody(patch: pytest.MonkeyPatch) -> None:
    """Facts are recorded without the id that they came under."""
    ingest = Run.ingest
    patch.setattr(Run, "ingest", lambda self, facts, **named: ingest(self, facts, **{**named, "command_id": None}))


def ids_without_content(patch: pytest.MonkeyPatch) -> None:
    """A command id that was used gives the first outcome, whatever it is given with."""
    repeated = Run._repeated
    patch.setattr(
        Run, "_repeated", lambda self, command_id, mark, row: repeated(self, command_id, row.fingerprint, row)
    )


def catching_up_forgets_an_id(patch: pytest.MonkeyPatch) -> None:
    """A handle that folds what others have written forgets the oldest command id that it knows."""
    caught = Replica._catch_up

    def catching(self: Any) -> None:
        before = self._at.state.seq
        caught(self)
        if self._at.state.seq > before and not self._lost:
            self._at.state.ledger.rows.pop(next(iter(self._at.state.ledger.rows), ""), None)

    patch.setattr(Replica, "_catch_up", catching)


FAULTS: dict[str, tuple[Plant, str, set[str]]] = {
    "ids before the write": (ids_before_the_write, "crash", set()),
    "ids after the acknowledgement": (ids_after_the_acknowledgement, "crash", {"batch", "fail"}),
    "recovery gives commands again": (recovery_gives_commands_again, "crash", set()),
    "failed writes did not happen": (failed_writes_did_not_happen, "fail", set()),
    "errors in a batch leave it": (errors_in_a_batch_leave_it, "batch", set()),
    "ids without content": (ids_without_content, "repeat", set()),
    "named checkpoints forget ids": (named_checkpoints_forget_ids, "restart", {"crash", "crash_in_checkpoint"}),
    "deltas without removals": (
        deltas_without_removals, "checkpoint", {"crash_in_checkpoint", "fail_in_checkpoint"},
    ),
    "checkpoints in two steps": (checkpoints_in_two_steps, "crash_in_checkpoint", set()),
    "failed checkpoints were taken": (failed_checkpoints_were_taken, "fail_in_checkpoint", set()),
    "digests unchecked": (digests_unchecked, "damage_checkpoint", set()),
    "missing bases are empty": (missing_bases_are_empty, "damage_checkpoint", set()),
    "fingerprints unchecked": (fingerprints_unchecked, "age_checkpoint", set()),
    "conflicts swallowed": (conflicts_swallowed, "second_writer", set()),
    "actors leak between runs": (actors_leak_between_runs, "another_run", {"fork"}),
    "old events ignored": (old_events_ignored, "old_event", set()),
    "views one event early": (views_one_event_early, "look_back", set()),
    "forks one event early": (forks_one_event_early, "fork", set()),
    "last fact dropped": (last_fact_dropped, "ingest", set()),
    "facts of nobody": (facts_of_nobody, "ingest_decided", {"ingest"}),
    "catching up forgets an id": (catching_up_forgets_an_id, "second_writer", {"old_event", "fail"}),
}  # fmt: skip
"""Fault -> how it is planted, the rule that is there to find it, and others that may."""
