"""A shell in memory for testing contexts: decides, folds and keeps the groups, as the engine does, without a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine.core.codec import decode, encode
from engine.core.decider import Moment, fingerprint_of
from engine.core.envelope import Commit, Group, events_of, group_of
from engine.core.errors import CommandMismatch
from engine.core.handle import Outcome
from engine.core.model import Model
from engine.core.state import COMMAND_NOTED, ModelState
from projections.contexts import PROJECTION, ContextCommands, ContextQueries
from projections.contexts.state import ContextsState

MODEL = Model((PROJECTION,))


class Shell:
    """One run in memory. ``groups`` is its journal; ``contexts`` its handle."""

    def __init__(self, model: Model = MODEL) -> None:
        self.model = model
        self.state = model.initial()
        self.groups: list[Group] = []
        self.clock = 1_000
        self.contexts = ContextCommands(self.ask, self.submit)

    def ask(self, question: Any) -> Any:
        return question(self.state.parts["contexts"])

    @property
    def part(self) -> ContextsState:
        part: ContextsState = self.state.parts["contexts"]
        return part

    def submit(
        self,
        command: Any,
        *,
        command_id: str | None = None,
        actor: str | None = None,
        at_ms: int | None = None,
        cause: int | str | None = None,
    ) -> Outcome:
        self.clock += 1
        at = self.clock if at_ms is None else at_ms
        mark = fingerprint_of(command)
        if command_id is not None and (row := self.state.ledger.get(command_id)) is not None:
            if row.fingerprint != mark:
                raise CommandMismatch(f"{command_id} was used for another command")
            return Outcome(row.first + row.count - 1, row.count, tuple, repeated=True)
        return self._commit(
            lambda moment: self.model.decide(self.state, command, moment), at, actor, command_id, mark, cause
        )

    def ingest(self, name: str, /, **data: Any) -> Outcome:
        self.clock += 1
        wire = self.model.catalog.check(name, data)
        return self._commit(
            lambda moment: self.model.admit(self.state, [wire], moment), self.clock, None, None, b"", None
        )

    def _commit(
        self, decide: Any, at: int, actor: str | None, command_id: str | None, mark: bytes, cause: int | str | None
    ) -> Outcome:
        before = self.state.begin()
        try:
            wires = decide(Moment("run", before + 1, at, actor))
            if not wires and command_id is not None:
                wires = [COMMAND_NOTED.wire()]
                self.state.apply_wire(wires[0])
            if command_id is not None:
                self.state.note(command_id, mark, before + 1, len(wires))
        except BaseException:
            self.state.put_back(before)
            raise
        self.state.keep()
        if wires:
            # What is stored is bytes: nothing that the state holds may be shared with the journal.
            self.groups.append(
                decode(encode(group_of(at, actor, command_id, mark if command_id else None, cause, wires)))
            )
        shown = decode(encode(wires))
        commit = Commit(before + 1, len(wires), b"", [group_of(at, actor, command_id, None, cause, shown)])
        return Outcome(self.state.seq, len(wires), lambda: list(events_of(commit, self.model.catalog)))

    def wires(self) -> list[list[Any]]:
        return [wire for group in self.groups for wire in group[-1]]

    def at(self, seq: int) -> ContextQueries:
        """The handle of an earlier position."""
        state = replay(self.model, self.groups, seq)
        return ContextQueries(lambda question: question(state.parts["contexts"]))

    def check(self) -> None:
        """The laws that hold after every commit: replay gives these bytes, and a checkpoint does too."""
        assert replay(self.model, self.groups).bytes() == self.state.bytes()
        assert restored(self.model, self.state, self.wires()).bytes() == self.state.bytes()


def replay(model: Model, groups: Iterable[Group], until: int | None = None) -> ModelState:
    """Fold groups, all or up to an event, into a fresh state."""
    state = model.initial()
    for group in groups:
        events = group[-1] if until is None else group[-1][: max(0, until - state.seq)]
        if events:
            state.apply([[*group[:-1], decode(encode(events))]])
    return state


def restored(model: Model, state: ModelState, wires: Sequence[Any]) -> ModelState:
    """Return the state that a full checkpoint gives: records through bytes, references through the journal."""
    fresh = model.initial()
    for name, table in state.tables.items():
        for key, row in table.rows.items():
            stored_key, stored = decode(encode([key, table.refer(row) if table.refer else row.dump()]))
            key = tuple(stored_key) if isinstance(stored_key, list) else stored_key
            if table.refer:
                seq, index = stored
                wire = decode(encode(wires[seq - 1]))
                stored = model.owner[wire[0]].resolve(name.partition(".")[2], key, wire, seq, index)  # type: ignore[attr-defined]
            fresh.tables[name].rows[key] = fresh.tables[name].load(stored)
    fresh.seq = state.seq
    fresh.reindex()
    return fresh


def derived(state: ModelState) -> dict[str, set[str]]:
    """The index that must be the same however the state came about."""
    bound: dict[str, set[str]] = state.parts["contexts"].bound
    return bound
