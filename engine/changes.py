"""Changes: what each event did to the state, field by field (``fetch.lifecycle: running -> suspended``). Appends
nothing.

Two folds go one event apart, so that before and after can be asked in the same public form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.archive import to_json
from engine.core.decider import Model, ModelState
from engine.core.envelope import EVENTS
from engine.core.json_patch import same
from engine.core.table import Key, column_names
from engine.restore import restore
from engine.store import Checkpoints, Journal, cut

__all__ = ["FieldChange", "changes"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of one record that an event changed. ``kind`` is the table; a record that came has only ``after``
    values."""

    kind: str
    id: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.id}.{self.field}: {_shown(self.before)} -> {_shown(self.after)}"

    def to_json(self) -> dict[str, Any]:
        """Return the change for ``--json``."""
        return {"kind": self.kind, "id": self.id, "field": self.field, "before": self.before, "after": self.after}


def changes(
    journal: Journal,
    checkpoints: Checkpoints,
    model: Model,
    run_id: str,
    *,
    after: int = 0,
    until: int | None = None,
) -> Iterator[tuple[int, tuple[FieldChange, ...]]]:
    """Yield (seq, what that event changed) for ``after < seq <= until``, in order.

    Costs two restores at ``after``, from the nearest checkpoint, and the fold from there on. Raises NotFound,
    CorruptJournal,
    SchemaError.
    """
    journal.existing_head(run_id)
    now, then = (restore(journal, checkpoints, model, run_id, until=after).state for _ in range(2))
    for commit in journal.commits(run_id, until=until):
        if commit.last <= after:
            continue  # read all the same: the chain is checked from where it is known
        seq = commit.first - 1
        for group in cut(commit, until):
            for wire in group[EVENTS]:
                seq += 1
                if seq <= after:
                    continue
                step = [*group[:EVENTS], [wire]]
                for table in now.tables.values():
                    table.changed.clear()
                now.apply([step])
                yield seq, tuple(_between(then, now))
                then.apply([step])


def _between(before: ModelState, after: ModelState) -> Iterator[FieldChange]:
    """Yield the differences of two states in the records that the later one has touched."""
    for name, table in after.tables.items():
        if name == "run.ledger" or not table.changed:
            continue
        projection = after.model.by_name[name.partition(".")[0]]
        public = getattr(projection, "public_record", None)
        keys = dict.fromkeys(table.changed)
        if public is not None:
            keys = dict.fromkeys(getattr(projection, "affected")(after.parts[projection.name], keys))  # noqa: B009
        for key in keys:
            if public is not None:
                old, new = public(before.parts[projection.name], key), public(after.parts[projection.name], key)
            else:
                old, new = _columns(before, name, key), _columns(after, name, key)
            for field in dict.fromkeys((*old, *new)):
                if not same(old.get(field), new.get(field)):
                    yield FieldChange(name, _id(key), field, old.get(field), new.get(field))


def _columns(state: ModelState, name: str, key: Key) -> dict[str, Any]:
    """Return a record's dump by the names of its columns, {} when there is none."""
    row = state.tables[name].get(key)
    if row is None:
        return {}
    dumped = row.dump()
    names = column_names(type(row), len(dumped)) or tuple(str(number) for number in range(len(dumped)))
    return {field: to_json(value) for field, value in zip(names, dumped, strict=True)}


def _id(key: Key) -> str:
    return "/".join(str(step) for step in key) if isinstance(key, tuple) else str(key)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
