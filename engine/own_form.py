"""The form of projections that are none of refold's own: what each says of itself, else its records by the names of
their columns. It must never know what a projection means, nor share anything with a state."""

from __future__ import annotations

from typing import Any, Final

from engine.archive import to_json
from engine.core.state import ModelState
from engine.core.table import Key, column_names

__all__ = ["OURS", "columns_of", "key_text", "own_records"]

OURS: Final = ("tasks", "contexts", "graph", "swarm")
"""The projections whose records have public forms of their own."""


def own_records(state: ModelState) -> dict[str, dict[str, Any]]:
    """Return ``{kind: {id: record}}`` of a state's other projections. A projection with ``document(part)`` gives its
    records under its own name; the tables of any other are kinds, ``projection.table``."""
    found: dict[str, dict[str, Any]] = {}
    for projection in state.model.projections:
        if projection.name in OURS:
            continue
        part = state.parts[projection.name]
        said = getattr(projection, "document", None)
        if said is not None:
            found[projection.name] = said(part)
            continue
        for table in part.tables:
            records = {key_text(key): columns_of(row) for key, row in table.ordered()}
            found[f"{projection.name}.{table.name}"] = records
    return found


def columns_of(row: Any) -> dict[str, Any]:
    """Return a record's dump by the names of its columns, as JSON; {} for None."""
    if row is None:
        return {}
    dumped = row.dump()
    names = column_names(type(row), len(dumped)) or tuple(str(number) for number in range(len(dumped)))
    return {field: to_json(value) for field, value in zip(names, dumped, strict=True)}


def key_text(key: Key) -> str:
    """Return a key as people write it, its parts with slashes between them."""
    return "/".join(str(step) for step in key) if isinstance(key, tuple) else str(key)
