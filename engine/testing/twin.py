"""The undisturbed twin: a run in memory that is given the same commands and never crashes, restores or checkpoints. It
must share no code with the shell: it decides and folds by the pure core alone, or it would have the shell's mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Any

from engine.archive import export_lines
from engine.core.catalog import Wire
from engine.core.codec import decode, encode
from engine.core.decider import Moment, fingerprint_of
from engine.core.envelope import Commit, Event, Group, events_of, genesis, group_of, seal_commit
from engine.core.errors import EngineError
from engine.core.model import Model
from engine.core.state import COMMAND_NOTED, ModelState
from engine.open_store import Store
from engine.store import connect
from engine.testing.strategies import Fact

__all__ = ["Answer", "Asked", "Twin", "answer_of"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command gave: its events, or the code of the error that refused it. What live and twin must agree on."""

    events: tuple[Event, ...] = ()
    refused: str | None = None
    repeated: bool = False

    def __str__(self) -> str:
        if self.refused is not None:
            return f"refused ({self.refused})"
        shown = ", ".join(f"{event.seq} {event.type} {event.data}" for event in self.events)
        return ("repeated: " if self.repeated else "") + (shown or "no events")


@dataclass(frozen=True, slots=True)
class Asked:
    """One thing that was asked of a run: a command, or facts to ingest; and the envelope it came in."""

    what: Any
    facts: bool
    at_ms: int
    actor: str | None = None
    command_id: str | None = None

    def __str__(self) -> str:
        under = "" if self.command_id is None else f" under id {self.command_id!r}"
        return ("ingest " if self.facts else "") + f"{self.what!r}{under}"


def answer_of(ask: Callable[[], Any]) -> Answer:
    """Return what asking gave, as an Answer; only refold's own errors are answers."""
    try:
        outcome = ask()
    except EngineError as error:
        if error.retryable:
            raise
        return Answer(refused=error.code)
    return Answer(tuple(outcome.events), repeated=outcome.repeated)


class Twin:
    """One run in memory. ``commits`` is its journal: a list of groups a commit, in bytes of their own."""

    def __init__(self, model: Model, run_id: str) -> None:
        self.model = model
        self.run_id = run_id
        self.state = model.initial()
        self.commits: list[list[Group]] = []
        self.known: dict[str, tuple[bytes, int, int]] = {}
        """Command ids: fingerprint, first position, number of events."""
        self._noted: list[Group] | None = None

    @property
    def position(self) -> int:
        """The number of events so far."""
        return self.state.seq

    # -- asking -------------------------------------------------------------------------------------------------------

    def ask(self, asked: Asked) -> Answer:
        """Decide what was asked, fold what follows, remember it."""
        mark = None
        if asked.command_id is not None:
            try:
                mark = _fingerprint(self.model, asked)
            except EngineError as error:
                return Answer(refused=error.code)
            if (known := self.known.get(asked.command_id)) is not None:
                fingerprint, first, count = known
                if fingerprint != mark:
                    return Answer(refused="command_mismatch")
                return Answer(tuple(self.events(first, first + count - 1)), repeated=True)
        first = self.state.begin() + 1
        try:
            wires = _decided(self.model, self.state, self.run_id, asked)
            if not wires and asked.command_id is not None:
                wires = [COMMAND_NOTED.wire()]
                self.state.apply_wire(wires[0])
        except BaseException as error:
            self.state.put_back(first - 1)
            if isinstance(error, EngineError):
                return Answer(refused=error.code)
            raise
        if mark is not None:
            assert asked.command_id is not None
            self.state.note(asked.command_id, mark, first, len(wires))
        self.state.keep()
        if not wires:
            return Answer()
        self._record([group_of(asked.at_ms, asked.actor, asked.command_id, mark, None, wires)])
        return Answer(tuple(self.events(first, self.position)))

    def batch(self, asked: Iterable[Asked]) -> list[Answer]:
        """Ask several things whose events make one commit."""
        self._noted = []
        try:
            return [self.ask(each) for each in asked]
        finally:
            groups, self._noted = self._noted, None
            if groups:
                self.commits.append(groups)

    def append(self, groups: Sequence[Group]) -> None:
        """Take groups that were decided elsewhere as one commit."""
        lift = self.model.catalog.lift
        copies = decode(encode(list(groups)))
        self.state.apply([[*group[:-1], [lift(wire) for wire in group[-1]]] for group in copies])
        self._record(groups)

    def _record(self, groups: Sequence[Group]) -> None:
        kept: list[Group] = decode(encode(list(groups)))
        self._know(kept)
        if self._noted is not None:
            self._noted.extend(kept)
        else:
            self.commits.append(kept)

    def _know(self, groups: Iterable[Group]) -> None:
        seq = self.position - sum(len(group[-1]) for group in groups) + 1
        for _, _, command_id, fingerprint, _, events in groups:
            if command_id is not None:
                self.known.setdefault(command_id, (fingerprint, seq, len(events)))
            seq += len(events)

    def would(self, asked: Iterable[Asked]) -> list[Answer]:
        """Return what each would give now, by itself and without its command id; changes nothing."""
        return [would(self.model, self.state, self.run_id, each) for each in asked]

    def old_wire(self, label: str, data: Mapping[str, Any], at_ms: int) -> Wire | None:
        """Return an event of a superseded version, or None when what it is lifted to would not be taken as it is.
        Raises SchemaError when an upcast fails, or gives what its table refuses."""
        step = next(step for step in self.model.catalog.upcasts if step.old.label == label)
        wire = step.old.check(data)
        self.model.catalog.recheck(wire)
        lifted = self.model.catalog.lift(wire)
        event_type = self.model.catalog.by_tag[lifted[0]]
        fact = (event_type.name, event_type.data(lifted))
        answer = would(self.model, self.state, self.run_id, Asked([fact], True, at_ms))
        taken = [self.model.catalog.check(event.type, event.data) for event in answer.events]
        return wire if encode(taken) == encode([lifted]) else None

    # -- reading ------------------------------------------------------------------------------------------------------

    def events(self, first: int, last: int) -> list[Event]:
        """Return the events at positions ``first`` to ``last``."""
        found: list[list[Event]] = []
        seq = self.position + 1
        for groups in chain([self._noted] if self._noted else [], reversed(self.commits)):  # the latest are asked for
            if seq <= first:
                break
            count = sum(len(group[-1]) for group in groups)
            seq -= count
            if seq <= last:
                found.append(list(events_of(Commit(seq, count, b"", groups), self.model.catalog, first - 1, last)))
        return [event for events in reversed(found) for event in events]

    def walk(self) -> Iterator[ModelState]:
        """Yield the state at every position from 0 on, also inside commits; the same object, one event further."""
        state = self.model.initial()
        yield state
        for groups in self.commits:
            for group in groups:
                for index in range(len(group[-1])):
                    _fold_part(state, group, index)
                    yield state

    def at(self, position: int) -> Twin:
        """Return a twin of the run as it was at ``position``, to go on from there."""
        other = Twin(self.model, self.run_id)
        left = position
        for groups in self.commits:
            kept: list[Group] = []
            for group in groups:
                if left > 0:
                    kept.append([*group[:-1], group[-1][:left]])
                    left -= len(group[-1])
            if kept:
                other.append(kept)
        return other

    def sealed(self) -> list[tuple[int, int, bytes, bytes]]:
        """Return (first, count, stored bytes, link) of every commit, as a journal would hold them."""
        link, seq, rows = genesis(self.run_id), 1, []
        for groups in self.commits:
            count = sum(len(group[-1]) for group in groups)
            stored, link = seal_commit(link, groups)
            rows.append((seq, count, stored, link))
            seq += count
        return rows

    def store(self) -> Store:
        """Return a store in memory that holds this run."""
        store = Store(connect("memory:"), self.model)
        for first, count, stored, link in self.sealed():
            store.journal.append(self.run_id, first, count, stored, link)
        return store

    def lines(self) -> list[str]:
        """Return the run as an archive, line by line; none for a run without events."""
        return list(export_lines(self.store().journal, self.model, self.run_id)) if self.position else []


def _fold_part(state: ModelState, group: Group, index: int) -> None:
    """Fold one event of a group; the id of its command is noted with the events there are so far."""
    _, _, command_id, fingerprint, _, events = group
    if command_id is not None:
        known = state.ledger.rows.get(command_id)
        if known is None:
            state.note(command_id, fingerprint, state.seq + 1, 1)
        elif known.first == state.seq + 1 - index:
            state.ledger.edit(command_id).count = index + 1
    state.apply([[0, None, None, None, None, [decode(encode(events[index]))]]])


def would(model: Model, state: ModelState, run_id: str, asked: Asked) -> Answer:
    """Return what asking would give in a state, without its command id; the state is put back."""
    before = state.begin()
    try:
        wires: list[Wire] = decode(encode(_decided(model, state, run_id, asked)))
    except EngineError as error:
        return Answer(refused=error.code)
    finally:
        state.put_back(before)
    group = group_of(asked.at_ms, asked.actor, None, None, None, wires)
    return Answer(tuple(events_of(Commit(before + 1, len(wires), b"", [group]), model.catalog)))


def _decided(model: Model, state: ModelState, run_id: str, asked: Asked) -> list[Wire]:
    """Return the events that follow, folded into the state. Raises what refuses them."""
    moment = Moment(run_id, state.seq + 1, asked.at_ms, asked.actor)
    if asked.facts:
        return model.admit(state, wires_of(model, asked.what), moment)
    return model.decide(state, asked.what, moment)


def wires_of(model: Model, facts: Sequence[Fact]) -> list[Wire]:
    """Return facts as wires. Raises InvalidValue, SchemaError."""
    return [model.catalog.check(name, data) for name, data in facts]


def _fingerprint(model: Model, asked: Asked) -> bytes:
    """Return what the ledger knows a command by. Facts are known by their wires."""
    if not asked.facts:
        return fingerprint_of(asked.what)
    return sha256(encode(["run", "ingest", wires_of(model, asked.what)])).digest()[:16]
