"""What a table, a view and a documented question of the read model are made of. Names in here are fixed in the code;
nothing that a user or a journal says may ever become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

__all__ = ["SQL_TYPES", "Column", "Foreign", "Index", "Kind", "Question", "SqlTable", "SqlView"]

Kind: TypeAlias = Literal["text", "whole", "real", "bool", "json"]
"""What a column holds; see :data:`SQL_TYPES`."""

SQL_TYPES: Final[Mapping[Kind, str]] = {
    "text": "TEXT",
    "whole": "INTEGER",
    "real": "REAL",
    "bool": "INTEGER",
    "json": "TEXT",
}
"""A ``whole`` above 2^63-1, for which SQLite has no integer, is text: its digits and a ``u``. A ``bool`` is 0 or 1. A
``json`` is compact JSON text."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, what it holds, what it means, and whether it may be NULL."""

    name: str
    kind: Kind
    doc: str
    null: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """A foreign key: these columns name a row of another table by its primary key."""

    columns: tuple[str, ...]
    table: str


@dataclass(frozen=True, slots=True)
class Index:
    """An index over these columns; with ``sparse``, of the rows in which none of them is NULL."""

    columns: tuple[str, ...]
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table. ``search`` names the columns that its full-text index covers; such a table has a row number, ``id``."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    foreign: tuple[Foreign, ...] = ()
    indexes: tuple[Index, ...] = ()
    search: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of its columns, in order."""
        return [column.name for column in self.columns]


@dataclass(frozen=True, slots=True)
class SqlView:
    """A view: a question that comes up all the time, under a name."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class Question:
    """A documented query: what it answers, its SQL, and what its parameters mean."""

    name: str
    asks: str
    sql: str
    parameters: Mapping[str, str] = field(default_factory=dict)
