"""Tables: the only place where state may live. A projection that keeps a fact outside a table loses it at the next
restore.

A state is a handful of tables of records. The table notes which records were touched, so that a checkpoint writes what
changed, a refused
batch puts back what it touched, and neither costs what the table holds. Everything else a state object has (indexes,
counters) is derived:
``reindex`` rebuilds it from the tables alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, signature
from typing import Any, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

from engine.core.codec import encode

__all__ = ["Key", "Record", "Reference", "Table", "column_names"]

Key: TypeAlias = str | int | tuple[str | int, ...]
Reference: TypeAlias = tuple[int, int]
"""Where a record's content already stands in the journal: (seq of its event, index inside that event)."""


class Record(Protocol):
    """What a table holds: a mutable slotted object with a plain form. ``dump`` must copy every mutable part of
    itself."""

    def dump(self) -> list[Any]:
        """Return the record as a keyless list of plain values, everything that can influence a later event included."""
        ...

    @classmethod
    def load(cls, dumped: list[Any]) -> Self:
        """Return a record equal to the one dumped, sharing nothing with the list."""
        ...


R = TypeVar("R", bound=Record)


class Table(Generic[R]):
    """Records of one kind by key. ``order`` says what iteration means: order of ``creation`` (such tables never
    delete) or by ``key``.

    ``refer`` (for records whose content stands in the journal, such as messages) returns the reference a checkpoint
    stores instead.
    """

    __slots__ = ("_marks", "_undo", "changed", "load", "name", "order", "refer", "rows")

    def __init__(
        self,
        name: str,
        record: type[R],
        *,
        order: Literal["creation", "key"] = "creation",
        refer: Callable[[R], Reference] | None = None,
    ) -> None:
        self.name = name
        self.load: Callable[[list[Any]], R] = record.load
        self.order = order
        self.refer = refer
        self.rows: dict[Key, R] = {}
        self.changed: dict[Key, Any] = {}
        """Keys touched since the last checkpoint, in order of first touch; includes removed ones."""
        self._undo: dict[Key, list[Any] | None] | None = None
        self._marks: dict[Key, Any] = self.changed

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, key: object) -> bool:
        return key in self.rows

    def get(self, key: Key) -> R | None:
        """Return the record for reading, or None. To change it, take it from :meth:`edit`."""
        return self.rows.get(key)

    def edit(self, key: Key) -> R:
        """Return the record for changing in place, having noted that it changes. The key must exist."""
        row = self.rows[key]
        if key not in self._marks:
            self._marks[key] = None if self._undo is None else row.dump()
        return row

    def add(self, key: Key, row: R) -> R:
        """Put a new record under a key that is free, and return it."""
        assert key not in self.rows, f"{self.name} {key!r} exists"
        if key not in self._marks:
            self._marks[key] = None
        self.rows[key] = row
        return row

    def remove(self, key: Key) -> None:
        """Delete a record. Only for tables ordered by key: a creation order with holes could not be put back."""
        assert self.order == "key", f"{self.name} keeps its order of creation and never deletes"
        self.edit(key)
        del self.rows[key]

    def ordered(self) -> Iterator[tuple[Key, R]]:
        """Yield (key, record) in the table's order, the same on every machine."""
        if self.order == "creation":
            yield from self.rows.items()
        else:
            for key in sorted(self.rows, key=encode):
                yield key, self.rows[key]

    # -- speculation: a commit in the making ------------------------------------------------------------------------

    def begin(self) -> None:
        """Start noting what a commit in the making touches, with each record as it was."""
        assert self._undo is None
        self._undo = self._marks = {}

    @property
    def touched(self) -> Mapping[Key, list[Any] | None]:
        """The records touched since :meth:`begin`, each dumped as it was then; None for one that was not there."""
        assert self._undo is not None
        return self._undo

    def keep(self) -> None:
        """The commit is durable: what it touched counts as changed since the last checkpoint."""
        assert self._undo is not None
        for key in self._undo:
            self.changed[key] = None
        self._undo, self._marks = None, self.changed

    def put_back(self) -> bool:
        """The commit did not happen: restore every touched record. Returns whether there was any; the owner then
        reindexes."""
        assert self._undo is not None
        undo = self._undo
        self._undo, self._marks = None, self.changed
        for key in reversed(undo):
            before = undo[key]
            if before is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = self.load(before)
        return bool(undo)


def column_names(record: object, width: int) -> tuple[str, ...]:
    """Return the names of a dump's columns: what the record's class says in ``fields``, else its constructor's
    parameters.

    () when neither gives ``width`` names.
    """
    said = getattr(record, "fields", None)
    if isinstance(said, tuple):
        return said
    try:
        parameters = signature(record).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ()
    names = tuple(p.name for p in parameters if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.POSITIONAL_ONLY))
    return names if len(names) == width else ()
