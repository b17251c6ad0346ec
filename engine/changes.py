"""Changes: what each event did to the state, field by field (``fetch.lifecycle: running -> suspended``). It must never
append anything.

Two folds go one event apart, so that before and after can be asked in the same public form.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from engine.core.believed import believing
from engine.core.envelope import EVENTS, Event
from engine.core.json_patch import same
from engine.core.model import Model
from engine.core.state import ModelState
from engine.diff import below
from engine.own_form import columns_of, key_text
from engine.restore import restore
from engine.store import Checkpoints, Journal, cut

__all__ = ["FieldChange", "changes", "with_changes"]

_WINDOW: Final = 1_000  # events whose changes are worked out together, and kept in memory


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of one record that an event changed. ``kind`` is the table, ``field`` a path (``process.join_result``);
    a record that came has only ``after`` values."""

    kind: str
    id: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.subject}.{self.field}: {_shown(self.before)} -> {_shown(self.after)}"

    @property
    def subject(self) -> str:
        """The record's id, or the name of its projection where there is one record only."""
        return self.id or self.kind.partition(".")[0]

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
    only: Container[int] | None = None,
) -> Iterator[tuple[int, tuple[FieldChange, ...]]]:
    """Yield (seq, what that event changed) for ``after < seq <= until``, in order; of those in ``only``, if given.

    Costs two restores at ``after``, from the nearest checkpoint, and the fold from there on. Raises NotFound,
    CorruptJournal, SchemaError.
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
                with believing(run_id, seq):
                    now.apply([step])
                    if only is None or seq in only:
                        yield seq, tuple(_between(then, now))
                    then.apply([step])


def with_changes(
    journal: Journal, checkpoints: Checkpoints, model: Model, run_id: str, events: Iterable[Event]
) -> Iterator[tuple[Event, tuple[FieldChange, ...]]]:
    """Yield each of the events of a run, in the order given, with what it changed; in bounded memory.

    ``events`` may be filtered, and may go backwards; the nearer to each other they are, the less is folded. Raises as
    :func:`changes`.
    """
    left = iter(events)
    while window := list(islice(left, _WINDOW)):
        wanted = {event.seq for event in window}
        changed = dict(
            changes(journal, checkpoints, model, run_id, after=min(wanted) - 1, until=max(wanted), only=wanted)
        )
        for event in window:
            yield event, changed[event.seq]


def _between(before: ModelState, after: ModelState) -> Iterator[FieldChange]:
    """Yield the differences of two states in the records that the later one has touched."""
    for name, table in after.tables.items():
        if name == "run.ledger" or not table.changed:
            continue
        projection = after.model.by_name[name.partition(".")[0]]
        public = getattr(projection, "public_record", None)
        keys = dict.fromkeys(table.changed)
        if public is not None:
            affected = getattr(projection, "affected")  # noqa: B009
            sides = [affected(side.parts[projection.name], keys) for side in (after, before)]
            keys = dict.fromkeys((*sides[0], *sides[1]))
        for key in keys:
            if public is not None:
                old, new = public(before.parts[projection.name], key), public(after.parts[projection.name], key)
            else:
                old, new = (columns_of(side.tables[name].get(key)) for side in (before, after))
            for field, was, now in _fields(old, new):
                yield FieldChange(name, key_text(key), field, was, now)


def _fields(old: dict[str, Any], new: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, before, after) of what differs in two objects; lists are shown whole, they are read whole."""
    for name in dict.fromkeys((*old, *new)):
        was, now = old.get(name), new.get(name)
        if type(was) is dict and type(now) is dict:
            yield from _fields(was, now, below(path, name))
        elif not same(was, now):
            yield below(path, name), was, now


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:59] + "…"
