"""Divergence: where two folds of one journal part, named: the first event after which they differ, and the field. It
must never say that two states differ and leave it at that.

States may come together again later, so nothing here bisects: both folds go event by event, and after each only the
records that it touched are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from cbor2 import CBORDecoder

from engine.core.believed import IMPOSSIBLE, impossible
from engine.core.catalog import Wire
from engine.core.codec import NotCanonical, decode, decode_canonical, encode
from engine.core.envelope import COMMAND_ID, EVENTS, FINGERPRINT, Group
from engine.core.errors import EngineError
from engine.core.model import Model
from engine.core.state import ModelState
from engine.core.table import Key, Table, column_names
from engine.store import Journal, cut

__all__ = [
    "ABSENT",
    "Difference",
    "Divergence",
    "difference",
    "difference_of_bytes",
    "difference_of_dumps",
    "difference_of_forms",
    "divergence",
    "last_touch",
    "off_the_fold",
    "wires_apart",
]

_WHOLE_EVERY: Final = 512  # events between two comparisons of everything, which see what no table has noted
_WORK_MAX: Final = 200_000  # records compared, up to which everything is compared after every event
_SHOWN_CHARS_MAX: Final = 80
_FOLD_ERRORS: Final = (EngineError, *IMPOSSIBLE)


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()
"""What one side holds where only the other has something."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two states differ first: the ``path`` of a field as people write it, what each holds there, and the record:
    its ``table`` (with its projection in front) and ``key``. ``records`` counts all records that differ."""

    path: str
    left: Any
    right: Any
    table: str
    key: Key | None
    records: int = 1

    def __str__(self) -> str:
        more = f" (and {self.records - 1} more records differ)" if self.records > 1 else ""
        return f"{self.path}: {_shown(self.left)} against {_shown(self.right)}{more}"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first event after which two folds differ (``seq`` 0: before any), and how."""

    seq: int
    event: str | None
    difference: Difference

    @property
    def path(self) -> str:
        """The path of the first field that differs, e.g. ``tasks.fetch.waiting_on[1]``."""
        return self.difference.path

    def __str__(self) -> str:
        where = "before the first event" if self.event is None else f"after event {self.seq} ({self.event})"
        return f"{where}: {self.difference}"

    def to_json(self) -> dict[str, Any]:
        """Return the divergence for ``--json``; values as text, for they may be anything."""
        left, right = _shown(self.difference.left), _shown(self.difference.right)
        return {"seq": self.seq, "event": self.event, "path": self.path, "left": left, "right": right}


# -- two states -------------------------------------------------------------------------------------------------------


def difference(left: ModelState, right: ModelState) -> Difference | None:
    """Return where two states differ first, None when their bytes are equal. Compares everything."""
    if left.seq != right.seq:
        return Difference("position", left.seq, right.seq, "", None)
    found: list[tuple[str, Key | None, Any, Any]] = []
    for name in sorted({*left.tables, *right.tables}):
        found += _of_tables(name, _rows(left, name), _rows(right, name))
    return _named(left, right, found)


def _of_tables(name: str, left: dict[Key, Any], right: dict[Key, Any]) -> Iterator[tuple[str, Key | None, Any, Any]]:
    parted = False
    for key in [*left, *(key for key in right if key not in left)]:
        one, other = left.get(key, ABSENT), right.get(key, ABSENT)
        if not _alike(one, other):
            parted = True
            yield name, key, one, other
    if not parted and list(left) != list(right):
        place = next(index for index, keys in enumerate(zip(left, right, strict=True)) if keys[0] != keys[1])
        yield name, None, list(left)[place], list(right)[place]


def _rows(state: ModelState, name: str) -> dict[Key, Any]:
    """Return the dumps of a table in its order; that of a table by key says nothing, and is left out by sorting."""
    table = state.tables.get(name)
    return {} if table is None else {key: row.dump() for key, row in table.ordered()}


def _alike(left: Any, right: Any) -> bool:
    """Return whether two dumps have the same bytes: 1, 1.0 and True are three values."""
    if left is ABSENT or right is ABSENT:
        return left is right
    try:
        return encode(left) == encode(right)
    except Exception:  # a dump that cannot be encoded is a fault of its own; here it is only unlike
        return False


def _touched(left: ModelState, right: ModelState) -> Difference | None:
    """Return where two states differ among the records that either has touched since the marks were cleared."""
    found: list[tuple[str, Key | None, Any, Any]] = []
    for name in dict.fromkeys((*left.tables, *right.tables)):
        mine, theirs = left.tables.get(name), right.tables.get(name)
        keys = dict.fromkeys((*(mine.changed if mine else ()), *(theirs.changed if theirs else ())))
        for key in keys:
            one, other = _dump(mine, key), _dump(theirs, key)
            if not _alike(one, other):
                found.append((name, key, one, other))
    return _named(left, right, found)


def _dump(table: Table[Any] | None, key: Key) -> Any:
    row = None if table is None else table.rows.get(key)
    return ABSENT if row is None else row.dump()


def difference_of_bytes(model: Model, left: bytes, right: bytes) -> Difference | None:
    """Return where two states differ first, from their bytes alone: what another process sent. None when they are
    equal."""
    mine, theirs = _tables_in(left), _tables_in(right)
    if mine[""] != theirs[""]:
        return Difference("position", mine[""], theirs[""], "", None)
    named = model.initial()
    for name in sorted({*mine, *theirs} - {""}):
        for table, key, one, other in _of_tables(name, mine.get(name, {}), theirs.get(name, {})):
            if key is None:
                return Difference(f"{table} (order)", one, other, table, None)
            path, one, other = _in_dump(named, named, table, key, one, other)
            return Difference(path, one, other, table, key)
    return None


def _tables_in(stored: bytes) -> dict[str, Any]:
    """Return ``{table: {key: dump}}`` of a state's bytes, and its position under ""."""
    stream = BytesIO(stored)
    decoder = CBORDecoder(stream)
    tables: dict[str, Any] = {"": decoder.decode()[2]}
    while stream.tell() < len(stored):
        name, count = decoder.decode()
        entries = [decoder.decode() for _ in range(count)]
        tables[name] = {tuple(key) if type(key) is list else key: dump for key, dump in entries}
    return tables


# -- the name of a field ----------------------------------------------------------------------------------------------


def _named(left: ModelState, right: ModelState, found: list[tuple[str, Key | None, Any, Any]]) -> Difference | None:
    """Return the first of the records that differ, with the path of its first field that does."""
    if not found:
        return None
    table, key, one, other = found[0]
    if key is None:
        return Difference(f"{table} (order)", one, other, table, None, len(found))
    public = _in_public(left, right, table.partition(".")[0], key)
    path, one, other = public or _in_dump(left, right, table, key, one, other)
    return Difference(path, one, other, table, key, len(found))


def _in_public(left: ModelState, right: ModelState, projection: str, key: Key) -> tuple[str, Any, Any] | None:
    """Return the first difference of two public records, None where the projection has no public form or it shows
    none."""
    try:
        kind, mine = _document(left, projection)
        _, theirs = _document(right, projection)
    except Exception:  # one of the states is wrong: its public form may be beyond reach
        return None
    ids = dict.fromkeys((*([key] if key in mine or key in theirs else ()), *mine, *theirs))
    for name in ids:
        one, other = mine.get(name, ABSENT), theirs.get(name, ABSENT)
        if not _alike(one, other):
            return _descend(f"{kind}{_step(name)}", one, other)
    return None


_KINDS: Final = {"tasks": "tasks", "contexts": "contexts", "graph": "graphs", "swarm": "swarm"}


def _document(state: ModelState, projection: str) -> tuple[str, Mapping[Any, Any]]:
    """Return the public records of a projection by id, and what they are called."""
    own = getattr(state.model.by_name.get(projection), "document", None)
    if own is not None:
        return projection, own(state.parts[projection])
    kind = _KINDS[projection]
    from engine.documents import document  # late: it loads every projection
    from engine.view import StateView

    return kind, document(StateView.of("", state))[kind]


def _in_dump(left: ModelState, right: ModelState, table: str, key: Key, one: Any, other: Any) -> tuple[str, Any, Any]:
    """Return the first difference of two dumps, columns by name as far as their record gives them names."""
    path = f"{table}{_step(key)}"
    if one is ABSENT or other is ABSENT or type(one) is not list or type(other) is not list:
        return path, one, other
    columns = _columns((left.tables.get(table) or right.tables[table]), len(one))
    for index, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if not _alike(mine, theirs):
            step = f".{columns[index]}" if index < len(columns) else f"[{index}]"
            return _descend(path + step, mine, theirs)
    return f"{path} (length)", len(one), len(other)


def _columns(table: Table[Any], width: int) -> tuple[str, ...]:
    """Return names of a dump's columns: what the record says in ``fields``, else its constructor's parameters when they
    are as many."""
    return column_names(getattr(table.load, "__self__", None), width)


def _descend(path: str, left: Any, right: Any) -> tuple[str, Any, Any]:
    """Return the first place inside two values at which they differ; bytes that are values are looked into."""
    if type(left) is bytes and type(right) is bytes:
        try:
            return _descend(path, decode_canonical(left), decode_canonical(right))
        except NotCanonical:
            return path, left, right
    if type(left) is dict and type(right) is dict:
        for name in dict.fromkeys((*left, *right)):
            one, other = left.get(name, ABSENT), right.get(name, ABSENT)
            if not _alike(one, other):
                return _descend(path + _step(name), one, other)
        return f"{path} (order of keys)", list(left), list(right)
    if type(left) is list and type(right) is list:
        for index in range(max(len(left), len(right))):
            one = left[index] if index < len(left) else ABSENT
            other = right[index] if index < len(right) else ABSENT
            if not _alike(one, other):
                return _descend(f"{path}[{index}]", one, other)
    return path, left, right


def difference_of_forms(left: Any, right: Any) -> str:
    """Return where two plain values differ first, in words."""
    path, one, other = _descend("", left, right)
    return f"{path.removeprefix('.')}: {_shown(one)} against {_shown(other)}"


def difference_of_dumps(table: str, key: Key, state: ModelState, left: Any, right: Any) -> str:
    """Return where two dumps of a record differ first, in words."""
    path, one, other = _in_dump(state, state, table, key, left, right)
    return f"{path}: {_shown(one)} against {_shown(other)}"


def _step(key: Any) -> str:
    """Return a key as a step of a path: ``.fetch``, ``[3]``, ``[a, 0]``, ``["a.b"]``."""
    if type(key) is int:
        return f"[{key}]"
    if type(key) is tuple:
        return "[" + ", ".join(str(part) for part in key) + "]"
    return f".{key}" if key and not set(key) & set('."[] ') else f'["{key}"]'


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"


# -- two folds --------------------------------------------------------------------------------------------------------


def divergence(
    journal: Journal, run_id: str, model: Model, other: Model, *, until: int | None = None
) -> Divergence | None:
    """Fold a run under two models (two versions of the code) and return where they part first, None when they never do.

    A fold that fails where the other does not is a difference too. Raises what both raise, NotFound, CorruptJournal.
    """
    journal.existing_head(run_id)
    left, right = model.initial(), other.initial()
    try:
        found = wires_apart(_groups(journal, run_id, until), left, right)
    except IMPOSSIBLE as error:
        raise impossible(run_id, left.seq + 1, error) from error
    if found is None or found.event is None:
        return found
    # A record may have changed without a note of its table, and been compared only when a later event touched it. Fold
    # once more: comparing everything after every event when that is not too much, else the record that was found.
    work = left.seq * sum(len(table) for table in left.tables.values())
    if found.difference.key is None or work <= _WORK_MAX:
        again = wires_apart(_groups(journal, run_id, left.seq), model.initial(), other.initial(), whole_every=1)
    else:
        watched = found.difference.table, found.difference.key
        again = wires_apart(_groups(journal, run_id, left.seq), model.initial(), other.initial(), watched=watched)
    return again or found


def wires_apart(
    groups: Iterable[Group],
    left: ModelState,
    right: ModelState,
    *,
    whole_every: int = _WHOLE_EVERY,
    watched: tuple[str, Key] | None = None,
) -> Divergence | None:
    """Fold groups into two states, in place, and return where they part first.

    Compared are the records that an event touched and the one that is ``watched``, and everything now and then: what a
    fold changes without a note of its table is found late unless ``whole_every`` is 1. Each side gets events of its
    own, so that one which keeps or changes them cannot mislead.
    """
    if (at_once := difference(left, right)) is not None:
        return Divergence(left.seq, None, at_once)
    label, since = None, 0
    for group in groups:
        _note(group, left, right)
        for wire in group[EVENTS]:
            label, since = _label(left.model, wire), since + 1
            found = _step_both(wire, left, right, watched)
            if found is None and since >= whole_every:
                since, found = 0, difference(left, right)
            if found is not None:
                return Divergence(left.seq, label, found)
    rest = difference(left, right)
    return None if rest is None else Divergence(left.seq, label, rest)


def _groups(journal: Journal, run_id: str, until: int | None) -> Iterator[Group]:
    for commit in journal.commits(run_id, until=until):
        yield from cut(commit, until)


def _note(group: Group, *states: ModelState) -> None:
    if group[COMMAND_ID] is not None:
        for state in states:
            state.note(group[COMMAND_ID], group[FINGERPRINT], state.seq + 1, len(group[EVENTS]))


def _step_both(wire: Wire, left: ModelState, right: ModelState, watched: tuple[str, Key] | None) -> Difference | None:
    """Fold one event into both states and compare what it touched."""
    errors: list[Exception | None] = []
    for state in (left, right):
        for table in state.tables.values():
            table.changed.clear()
        try:
            _fold_one(state, wire)
            errors.append(None)
        except _FOLD_ERRORS as error:
            errors.append(error)
    one, other = errors
    if one is not None and other is not None:
        raise one
    if one is not None or other is not None:
        left_says = "folds" if one is None else f"{type(one).__name__}: {one}"
        right_says = "folds" if other is None else f"{type(other).__name__}: {other}"
        return Difference("the fold", _Said(left_says), _Said(right_says), "", None)
    if watched is not None:
        for state in (left, right):
            if watched[0] in state.tables:
                state.tables[watched[0]].changed[watched[1]] = None
    return _touched(left, right)


def _fold_one(state: ModelState, wire: Wire) -> None:
    """Fold one event, as a copy: a fold that keeps or changes it must not reach the other side."""
    state.apply([[0, None, None, None, None, [decode(encode(wire))]]])


class _Said(str):
    """Text that is shown as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _label(model: Model, wire: Wire) -> str:
    try:
        current = model.catalog.type_of(wire)
        step = model.catalog.older.get(wire[0])
        return current.label if step is None else step.old.label
    except EngineError as error:
        return error.message


def last_touch(groups: Iterable[Group], state: ModelState, table: str, key: Key | None) -> tuple[int, str | None]:
    """Fold groups into ``state`` and return the last event (seq, type) that touched a record; (0, None) for none.

    What a state lacks that is otherwise right, this event brought.
    """
    seen: tuple[int, str | None] = (0, None)
    for group in groups:
        _note(group, state)
        for wire in group[EVENTS]:
            for each in state.tables.values():
                each.changed.clear()
            _fold_one(state, wire)
            if key in state.tables[table].changed:
                seen = (state.seq, _label(state.model, wire))
    return seen


def off_the_fold(journal: Journal, run_id: str, model: Model, state: ModelState) -> Divergence | None:
    """Return how a state that did not come from genesis (a checkpoint's, a live run's) differs from the fold up to its
    position, and since which event: the last one that touched the first record that differs."""
    fold = model.initial()
    fold.apply(_groups(journal, run_id, state.seq))
    found = difference(fold, state)
    if found is None:
        return None
    if found.table not in fold.tables:
        return Divergence(state.seq, None, found)
    seq, label = last_touch(_groups(journal, run_id, state.seq), model.initial(), found.table, found.key)
    return Divergence(seq, label, found)
