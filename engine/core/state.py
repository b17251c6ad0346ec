"""The state of a model: what a run is at one position, and the fold that makes it. It must never decide or refuse
anything; restore and the live path both go through :meth:`ModelState.apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from engine.core.catalog import EventType, Tag, Wire
from engine.core.codec import encode
from engine.core.decider import Moment
from engine.core.envelope import Group
from engine.core.errors import NotFound, SchemaError
from engine.core.table import Table

if TYPE_CHECKING:
    from engine.core.model import Model

__all__ = ["COMMAND_NOTED", "STATE_FORMAT", "ModelState"]

STATE_FORMAT: Final = 1

COMMAND_NOTED = EventType(
    "run.command_noted", (), "A command with an id was accepted and changed nothing; its id is taken.", number=1
)


class _LedgerRow:
    """What a command id was used for: the fingerprint of its content, and the events it gave."""

    __slots__ = ("count", "fingerprint", "first")

    def __init__(self, fingerprint: bytes, first: int, count: int) -> None:
        self.fingerprint, self.first, self.count = fingerprint, first, count

    def dump(self) -> list[Any]:
        return [self.fingerprint, self.first, self.count]

    @classmethod
    def load(cls, dumped: list[Any]) -> _LedgerRow:
        return cls(*dumped)


class ModelState:
    """Everything a run is at one position: the states of all projections and the ledger of command ids. Changed only
    by :meth:`apply`."""

    __slots__ = ("admits", "handlers", "ledger", "model", "parts", "seq", "tables")

    def __init__(self, model: Model) -> None:
        self.model = model
        self.seq = 0
        self.parts: dict[str, Any] = {projection.name: projection.initial() for projection in model.projections}
        self.ledger: Table[_LedgerRow] = Table("ledger", _LedgerRow)
        self.tables: dict[str, Table[Any]] = {"run.ledger": self.ledger}
        for name, part in self.parts.items():
            for table in part.tables:
                self.tables[f"{name}.{table.name}"] = table
        self.handlers = self._bind()
        self.admits: dict[Tag, Callable[[Wire, Moment], Sequence[Wire]]] = {
            tag: MethodType(admit, self.parts[projection]) for tag, (projection, admit) in model.admitting.items()
        }

    def _bind(self) -> dict[Tag, Callable[[Wire, int], None]]:
        """Return tag -> function of (wire, seq), with the state bound in and older versions lifted on the way."""
        handlers: dict[Tag, Callable[[Wire, int], None]] = {COMMAND_NOTED.tag: lambda wire, seq: None}
        for projection in self.model.projections:
            part = self.parts[projection.name]
            for event_type in projection.events:
                handlers[event_type.tag] = MethodType(projection.evolve[event_type.name], part)
        lift = self.model.catalog.lift
        for tag in self.model.catalog.older:

            def lifted(wire: Wire, seq: int) -> None:
                current = lift(wire)
                handlers[current[0]](current, seq)

            handlers[tag] = lifted
        return handlers

    def part(self, name: str) -> Any:
        """Return the state of one projection. Raises NotFound when the model has none of that name."""
        found = self.parts.get(name)
        if found is None:
            has = ", ".join(self.parts)
            raise NotFound(f"the model has no projection {name!r}", hint=f"it has: {has}", projection=name)
        return found

    # -- the fold ---------------------------------------------------------------------------------------------------

    def apply(self, groups: Iterable[Group]) -> None:
        """Fold the groups of a commit into the state. The one function that live, restore, verify and time travel
        share."""
        handlers = self.handlers
        seq = self.seq
        for _, _, command_id, fingerprint, _, events in groups:
            if command_id is not None:
                self.note(command_id, fingerprint, seq + 1, len(events))
            for wire in events:
                seq += 1
                try:
                    handler = handlers[wire[0]]
                except (KeyError, TypeError, IndexError):
                    raise self._unknown(wire, seq) from None
                handler(wire, seq)
        self.seq = seq

    def _unknown(self, wire: Wire, seq: int) -> SchemaError:
        error = self.model.catalog.unknown(wire[0] if wire else None)
        return SchemaError(f"position {seq}: {error.message}", hint=error.hint, position=seq, **error.details)

    def apply_wire(self, wire: Wire) -> None:
        """Fold one event of a decision in the making."""
        self.seq += 1
        self.handlers[wire[0]](wire, self.seq)

    def note(self, command_id: str, fingerprint: bytes, first: int, count: int) -> None:
        """Record that a command id is taken. A prefix that ends inside the command's events notes the events it has;
        the rest of them, folded later, is noted with them."""
        row = self.ledger.rows.get(command_id)
        if row is None:
            self.ledger.add(command_id, _LedgerRow(fingerprint, first, count))
        elif first == row.first + row.count and fingerprint == row.fingerprint:
            self.ledger.edit(command_id).count += count

    # -- a commit in the making ---------------------------------------------------------------------------------------

    def begin(self) -> int:
        """Start a commit in the making; return the seq to give to :meth:`put_back`."""
        for table in self.tables.values():
            table.begin()
        return self.seq

    def keep(self) -> None:
        """The commit is durable."""
        for table in self.tables.values():
            table.keep()

    def put_back(self, seq: int) -> None:
        """The commit did not happen: state, indexes and position are as they were at :meth:`begin`."""
        folded = self.seq != seq  # an interrupted evolve may have changed what is derived before it touched a table
        touched = [table.put_back() for table in self.tables.values()]
        self.seq = seq
        if folded or any(touched):
            self.reindex()

    def reindex(self) -> None:
        """Rebuild everything that is derived from the tables."""
        for part in self.parts.values():
            part.reindex()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def encoded(self) -> Iterable[bytes]:
        """Yield the deterministic encoding of the whole state in pieces; equal states give equal bytes and the other
        way round.

        Tables come in the order of their names; empty ones are left out, so that a projection added later does not
        move old digests.
        """
        yield encode(["refold.state", STATE_FORMAT, self.seq])
        for name in sorted(self.tables):
            table = self.tables[name]
            if not table.rows:
                continue
            yield encode([name, len(table.rows)])
            for key, row in table.ordered():
                yield encode([key, row.dump()])

    def digest(self) -> str:
        """Return SHA-256 over :meth:`encoded`, 64 hex digits."""
        hasher = sha256()
        for piece in self.encoded():
            hasher.update(piece)
        return hasher.hexdigest()

    def bytes(self) -> bytes:
        """Return :meth:`encoded` as one string, for comparisons that want to see the difference."""
        return b"".join(self.encoded())
