"""A run: the shell round the pure core. Takes commands, decides, appends, folds.

It must never acknowledge what is not durable, and never keep anything that the journal does not give back: everything
here but the state is configuration. All of it works under one lock, so a run may be shared by threads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from engine.checkpoint import CheckpointPolicy, CheckpointTaken, take_checkpoint
from engine.core.believed import believing
from engine.core.catalog import Wire
from engine.core.codec import decode, encode_many
from engine.core.decider import Command, Moment, fingerprint_of
from engine.core.envelope import EVENTS, Commit, Event, Group, events_of, group_of, merge, seal_commit
from engine.core.errors import CommandMismatch, Conflict, InvalidValue, Refused
from engine.core.fields import TIME_MS
from engine.core.handle import Outcome
from engine.core.model import Model
from engine.core.state import COMMAND_NOTED, ModelState
from engine.replica import Draft, Replica, named
from engine.restore import StartAt
from engine.store import Checkpoints, Journal

__all__ = ["Clock", "Fact", "Run", "wall_clock_ms"]

Clock: TypeAlias = Callable[[], int]
Fact: TypeAlias = tuple[str, Mapping[str, Any]]
"""An event that another runtime has decided: (name, data)."""

_log = logging.getLogger("refold")


def wall_clock_ms() -> int:
    """Return Unix milliseconds of this machine's clock. Order never depends on it."""
    return time.time_ns() // 1_000_000


class Run(Replica):
    """One run of a store, live. Made by ``store.run(id)``; holds the state at ``position`` and appends after it."""

    def __init__(
        self,
        journal: Journal,
        checkpoints: Checkpoints,
        model: Model,
        run_id: str,
        *,
        actor: str | None = None,
        clock: Clock = wall_clock_ms,
        policy: CheckpointPolicy | None = None,
        start: StartAt = "best",
    ) -> None:
        self.actor = None if actor is None else named("actor", actor)
        self._clock = clock
        self._policy = policy or CheckpointPolicy()
        self._bytes_since = 0
        self.checkpoint_error: Exception | None = None
        """Why the last checkpoint by policy could not be written, or None. The commands it followed are durable all
        the same."""
        super().__init__(journal, checkpoints, model, run_id, start=start)

    # -- commands -----------------------------------------------------------------------------------------------------

    def submit(
        self,
        command: Command,
        *,
        command_id: str | None = None,
        actor: str | None = None,
        at_ms: int | None = None,
        cause: int | str | None = None,
    ) -> Outcome:
        """Decide a command, make its events durable, fold them; return what it gave.

        Under a ``command_id`` that was used before: the first outcome when the content is the same, else
        CommandMismatch. Raises Refused and its
        kinds, Conflict (another writer was first; ``refresh`` and decide again), LimitExceeded, BackendUnavailable.
        After any error state and
        journal are as before; only when BackendUnavailable came from the write itself may the commit be there, and the
        run then looks before
        its next step.
        """
        return self._append(
            lambda state, moment: self._model.decide(state, command, moment),
            lambda: fingerprint_of(command),
            command_id,
            actor,
            at_ms,
            cause,
        )

    def ingest(
        self,
        facts: Iterable[Fact],
        *,
        command_id: str | None = None,
        actor: str | None = None,
        at_ms: int | None = None,
        cause: int | str | None = None,
    ) -> Outcome:
        """Record facts that another runtime has decided, as one commit, through the same legality tables. All or none.

        ``facts`` are (event name, data). Raises as :meth:`submit`; InvalidValue and SchemaError name the field or the
        event.
        """
        check = self._model.catalog.check
        wires = [check(name, data) for name, data in facts]
        originals = [list(wire) for wire in wires] if command_id is not None else []
        admit = self._model.admit

        return self._append(
            lambda state, moment: admit(state, wires, moment),
            lambda: fingerprint_of(_Ingest(originals)),
            command_id,
            actor,
            at_ms,
            cause,
        )

    def _append(
        self,
        decide: Callable[[ModelState, Moment], list[Wire]],
        fingerprint: Callable[[], bytes],
        command_id: str | None,
        actor: str | None,
        at_ms: int | None,
        cause: int | str | None,
    ) -> Outcome:
        actor = self.actor if actor is None else named("actor", actor)
        if command_id is not None:
            named("command_id", command_id)
        at = self._now(at_ms)
        print_ = fingerprint() if command_id is not None else None
        with self._lock:
            self._ready()
            state = self._at.state
            if cause is not None:
                _check_cause(cause, state.seq)
            if command_id is not None and (row := state.ledger.rows.get(command_id)) is not None:
                return self._repeated(command_id, print_, row)
            with self._folding:
                if self._draft is not None:
                    return self._decide_into(self._draft, decide, command_id, print_, actor, at, cause)
                draft = self._open_draft()  # kept here, not on the run: no interrupt must leave it open for the next
                try:
                    outcome = self._decide_into(draft, decide, command_id, print_, actor, at, cause)
                    self._write(draft)
                except BaseException as error:
                    self._take_back(draft, error)
                    raise
            self._checkpoint_if_due()
            return outcome

    def _decide_into(
        self,
        draft: Draft,
        decide: Callable[[ModelState, Moment], list[Wire]],
        command_id: str | None,
        fingerprint: bytes | None,
        actor: str | None,
        at_ms: int,
        cause: int | str | None,
    ) -> Outcome:
        """Decide one command into a commit in the making."""
        if draft.broken:
            raise Refused("this batch was interrupted", hint="leave the batch block; nothing of it is written")
        state = self._at.state
        before = state.seq
        try:
            wires = decide(state, Moment(self.id, before + 1, at_ms, actor))
            if not wires and command_id is not None:
                wires = [COMMAND_NOTED.wire()]
                state.apply_wire(wires[0])
            if not wires:
                return Outcome(before, 0, tuple)
            if command_id is not None:
                assert fingerprint is not None
                state.note(command_id, fingerprint, before + 1, len(wires))
            group = group_of(at_ms, actor, command_id, fingerprint, cause, wires)
            shown = [*group[:-1], list(wires)]
            merge(draft.groups, group)
        except BaseException:
            if state.seq != before:
                self._forget_since(draft)
            raise
        return Outcome(state.seq, len(wires), lambda: self._shown(before + 1, [shown]))

    def _shown(self, first: int, groups: Sequence[Group]) -> Sequence[Event]:
        """Return the events of groups as they will be read back, sharing nothing with the state that was folded from
        them."""
        count = sum(len(group[EVENTS]) for group in groups)
        return list(events_of(Commit(first, count, b"", decode(encode_many(groups))), self._model.catalog))

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Gather the commands of a block into one commit: all durable when the block ends, or none when it ends with
        an error.

        Commands see the effects of those before them. The run is locked for other threads meanwhile. Batches do not
        nest.
        """
        with self._lock:
            self._ready()
            if self._draft is not None:
                raise Refused("a batch is already open on this run", hint="end it first; batches do not nest")
            draft = self._open_draft()
            try:
                self._draft = draft
                yield
                if draft.broken:
                    raise Refused("this batch was interrupted", hint="nothing of it is written; give it again")
                self._write(draft)
            except BaseException as error:
                self._take_back(draft, error)
                raise
            finally:
                self._draft = None
            self._checkpoint_if_due()

    # A commit in the making: opened, then written or taken back. While it is open the handle counts as lost: should an
    # interrupt strike between these steps, the next use restores from the journal instead of trusting what is in
    # memory.

    def _open_draft(self) -> Draft:
        self._lost = True
        return Draft(self._at.state.begin())

    def _forget_since(self, draft: Draft) -> None:
        """Take back a command that failed after some of its events were folded; fold the draft's other commands
        again."""
        draft.broken = True
        state = self._at.state
        state.put_back(draft.seq)
        state.begin()
        state.apply(draft.groups)
        draft.broken = False

    def _write(self, draft: Draft) -> None:
        """Make the draft durable. Everything is encoded before the store takes its lock."""
        state = self._at.state
        if draft.groups:
            assert sum(len(group[EVENTS]) for group in draft.groups) == state.seq - draft.seq, "folded, but not written"
            stored, link = seal_commit(self._at.link, draft.groups)
            draft.writing = True
            count = state.seq - draft.seq
            self._journal.append(self.id, draft.seq + 1, count, stored, link, after=self._at.link)
            draft.writing = False
            draft.written = True
            self._at.link = link
            self._bytes_since += len(stored)
        draft.written = True  # also of an empty draft there is nothing to take back
        state.keep()
        self._lost = False

    def _take_back(self, draft: Draft, error: BaseException) -> None:
        """Put the state back where it was before the draft, as far as it is known that the draft is not in the
        journal."""
        if draft.written or draft.broken:
            return  # interrupted while keeping it, or taking back a part: the next use restores from the journal
        # A Conflict is certain: nothing was written. After anything else once the write began, only the journal knows.
        self._behind = draft.writing and not isinstance(error, Conflict)
        self._at.state.put_back(draft.seq)
        self._lost = False

    def _repeated(self, command_id: str, fingerprint: bytes | None, row: Any) -> Outcome:
        """Return the first outcome of a command id. Raises CommandMismatch."""
        if fingerprint != row.fingerprint:
            raise CommandMismatch(
                f"command id {command_id!r} was used at position {row.first} for another command",
                hint="use a new id for a new command; the first one stands",
                command_id=command_id,
                position=row.first,
            )
        first, last = row.first, row.first + row.count - 1
        if self._draft is not None and first > self._draft.seq:
            pending = self._shown(self._draft.seq + 1, self._draft.groups)
            events = tuple(event for event in pending if first <= event.seq <= last)
            return Outcome(last, row.count, lambda: events, repeated=True)
        return Outcome(last, row.count, lambda: self._events_between(first, last), repeated=True)

    def _events_between(self, first: int, last: int) -> Sequence[Event]:
        events: list[Event] = []
        for commit in self._journal.containing(self.id, range(first, last + 1)):
            with believing(self.id, commit.first):
                events.extend(events_of(commit, self._model.catalog, first - 1, last))
        return events

    def _now(self, at_ms: int | None) -> int:
        value = self._clock() if at_ms is None else at_ms
        try:
            checked: int = TIME_MS.check(value)
        except InvalidValue as error:
            raise error.at("at_ms" if at_ms is not None else "clock") from None
        return checked

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint(self, *, full: bool = False) -> CheckpointTaken | None:
        """Write a checkpoint now; None when nothing happened since the last one. Raises BackendUnavailable; the run
        goes on all the same."""
        with self._lock:
            if self._draft is not None:
                raise Refused("a batch is open on this run", hint="end it first, then checkpoint")
            self._ready()
            taken = take_checkpoint(self._checkpoints, self.id, self._at, full=full)
            self._bytes_since = 0
            return taken

    def _checkpoint_if_due(self) -> None:
        since = self.position - (self._at.base[0] if self._at.base is not None else 0)
        if not self._policy.due(since, self._bytes_since):
            return
        try:
            self.checkpoint()
            self.checkpoint_error = None
        except Exception as error:  # whatever it is: the command is durable, and must not look as if it had failed
            self.checkpoint_error = error
            _log.warning("run %s: checkpoint at %s not written: %s", self.id, self.position, error)

    def close(self) -> None:
        """Checkpoint if the policy says so on close. The store stays open; closing twice does nothing."""
        if self._policy.on_close:
            with self._lock:
                try:
                    self.checkpoint()
                except Exception as error:
                    self.checkpoint_error = error

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ingest:
    """Facts as a command, for the ledger: the same facts under the same id are the same command."""

    projection = "run"
    name = "ingest"

    def __init__(self, wires: Sequence[Wire]) -> None:
        self._wires = wires

    def content(self) -> Any:
        return self._wires


def _check_cause(cause: Any, position: int) -> None:
    """Check that a cause is an id, or a position that is already there. Raises InvalidValue."""
    if type(cause) is not int:
        named("cause", cause)
    elif not 1 <= cause <= position:
        raise InvalidValue(
            "cause", f"it is none of the positions 1..{position}", hint="name an earlier event of this run"
        )
