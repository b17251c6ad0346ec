"""Faults planted in the engine, each of a kind that a sweep is there to find: whoever believes a sweep that finds
nothing should have seen it find these. Nothing here may be reached but by a test.
"""

from __future__ import annotations

import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Final

from engine import restore
from engine.core import codec, envelope
from engine.core.envelope import LINK_BYTES, Commit
from engine.core.state import ModelState
from engine.open_store import Store
from engine.store import errors
from engine.store.journal import Journal
from engine.store.sqlite_connections import Datastore
from engine.store.sqlite_recorders import HIDDEN, SqliteCheckpoints, SqliteCommits
from tests.sweeps.kill import with_pragma
from tests.toy import BankProjection

__all__ = ["PLANTS", "Plant"]

Statements = Sequence[tuple[str, Sequence[Any]]]


@contextmanager
def _instead(owner: Any, name: str, other: Any) -> Iterator[None]:
    before = owner.__dict__[name]
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _everywhere(before: Any, other: Any) -> Iterator[None]:
    """Put another function in the place of one, in every module of the engine that has it."""
    places = [
        (module, name)
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("engine.")
        for name, value in vars(module).items()
        if value is before
    ]
    assert places
    for module, name in places:
        setattr(module, name, other)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, before)


# -- reading --------------------------------------------------------------------------------------------------------

_view = Store.view


def _view_behind(self: Store, run_id: str, **how: Any) -> Any:
    """Restore what was there a few events ago."""
    return _view(self, run_id, **{**how, "at": max(1, self.journal.existing_head(run_id).position - 4)})


# -- writing --------------------------------------------------------------------------------------------------------

_write = Datastore.write


def _write_later(self: Any, statements: Statements, *, changing: int | None = None) -> None:
    """Acknowledge now, and write when the next commit comes."""
    waiting = self.__dict__.pop("_waiting", None)
    if waiting is not None:
        _write(self, waiting[0], changing=waiting[1])
    self._waiting = statements, changing


_close = Datastore.close


def _write_and_close(self: Any) -> None:
    """Write at the end what is still to be written."""
    waiting = self.__dict__.pop("_waiting", None)
    if waiting is not None:
        _write(self, waiting[0], changing=waiting[1])
    _close(self)


@contextmanager
def _written_later() -> Iterator[None]:
    with _instead(Datastore, "write", _write_later), _instead(Datastore, "close", _write_and_close):
        yield


def _write_in_two(self: Any, statements: Statements, *, changing: int | None = None) -> None:
    """Make two transactions of one."""
    if len(statements) > 1:
        _write(self, statements[:-1])
    _write(self, statements[-1:], changing=changing)


def _write_or_not(self: Any, statements: Statements, *, changing: int | None = None) -> None:
    """Take a write that failed for done."""
    try:
        _write(self, statements, changing=changing)
    except sqlite3.OperationalError:
        return


def _leave_open(self: Any, error: BaseException) -> None:
    """Roll nothing back."""


_fork = Journal.fork


def _fork_one_short(self: Journal, run_id: str, new_id: str, position: int) -> Any:
    """Share one event less than was asked for, unless that would be none."""
    return _fork(self, run_id, new_id, max(1, position - 1))


def _erase_too_much(self: Any, run_id: str, *, needed: int | None) -> None:
    """Delete half of what forks need, too."""
    move = f"UPDATE run_heads SET hidden={HIDDEN}" if needed is not None else "DELETE FROM run_heads"
    self._write(
        ("DELETE FROM stored_events WHERE originator_id=? AND originator_version>?", (run_id, (needed or 0) // 2)),
        ("DELETE FROM stored_checkpoints WHERE originator_id=?", (run_id,)),
        (f"{move} WHERE run_id=?", (run_id,)),
    )


# -- reading ----------------------------------------------------------------------------------------------------------

_body_of = envelope.body_of


def _unpack(stored: bytes) -> bytes:
    """Unpack a commit as if all bytes were ours."""
    body = stored[LINK_BYTES:]
    return zlib.decompress(body[5:], -zlib.MAX_WBITS) if body[:1] == b"\0" else body


_open_commit = envelope.open_commit


def _believe(run_id: str, first: int, previous: bytes, stored: bytes) -> Commit:
    """Take a commit for right whatever its link says."""
    try:
        link = sha256(previous + _body_of(stored)).digest()
    except Exception:
        link = b""
    opened = _open_commit(run_id, first, previous, link + stored[LINK_BYTES:])
    return replace(opened, link=bytes(stored[:LINK_BYTES]))


_read_checkpoint = SqliteCheckpoints.read


def _believe_checkpoint(self: Any, run_id: str, position: int) -> Any:
    """Give a damaged checkpoint the digest that it should have."""
    found = _read_checkpoint(self, run_id, position)
    if found is None:
        return None
    topic, stored = found
    return topic, sha256(stored[16:]).digest()[:16] + stored[16:]


_load_table = restore._load_table


def _load_all_but_one(table: Any, entries: Sequence[tuple[Any, Any]], pending: Any) -> None:
    """Leave out a record of what a checkpoint holds, where it holds many."""
    _load_table(table, entries[:-1] if len(entries) > 4 else entries, pending)


# -- folding ----------------------------------------------------------------------------------------------------------

_paid = BankProjection.evolve["account.paid"]


def _paid_by_count(counted: list[int], state: Any, wire: Any, seq: int) -> None:
    """Fold by something that is not in the state: every seventh payment that the process folds counts double."""
    _paid(state, wire, seq)
    counted[0] += 1
    if counted[0] % 7 == 0:
        _paid(state, wire, seq)


class _Bound:
    """A function that a MethodType can bind, as the fold expects of a handler."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __call__(self, state: Any, wire: Any, seq: int) -> None:
        self._function(state, wire, seq)


@contextmanager
def _hidden_state() -> Iterator[None]:
    BankProjection.evolve["account.paid"] = _Bound(partial(_paid_by_count, [0]))
    try:
        yield
    finally:
        BankProjection.evolve["account.paid"] = _paid


def _keep_what_was_folded(self: Any, seq: int) -> None:
    """Take back nothing."""
    for table in self.tables.values():
        table.keep()


# -- all of them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault, and the chunks in which its sweep must find it."""

    sweep: str
    make: Callable[[], AbstractContextManager[None]]
    chunks: str = "0:1"
    at_most: int | None = None


PLANTS: Final = {
    "acknowledged before it is written": Plant("kill", _written_later, "0:5", 20),
    "a commit in two transactions": Plant("kill", partial(_instead, Datastore, "write", _write_in_two), "1:2"),
    "acknowledged before it is written, at any moment": Plant("moments", _written_later, at_most=3),
    "acknowledged before it is written, among others": Plant("fencing", _written_later, at_most=60),
    "no command's id is kept": Plant("fencing", partial(_instead, ModelState, "note", lambda *_: None), at_most=60),
    "what is restored is behind": Plant("fencing", partial(_instead, Store, "view", _view_behind), at_most=60),
    "a fork shares an event too few": Plant("fencing", partial(_instead, Journal, "fork", _fork_one_short), "5:7"),
    "a delete takes what a fork needs": Plant(
        "fencing", partial(_instead, SqliteCommits, "erase", _erase_too_much), "5:7"
    ),
    "nothing is flushed": Plant("power", partial(with_pragma, "synchronous=OFF"), "1:3", 20),
    "flushed at checkpoints only": Plant("power", partial(with_pragma, "synchronous=NORMAL"), "1:9", 20),
    "a transaction is left open": Plant("calls", partial(_instead, Datastore, "_abandon", _leave_open), "17:20", 40),
    "a database error as it is": Plant("calls", partial(_instead, errors, "DATABASE_ERRORS", ()), "18:19"),
    "a failed write is taken for done": Plant(
        "syscalls", partial(_instead, Datastore, "write", _write_or_not), "37:38", 40
    ),
    "nothing is taken back": Plant("interrupts", partial(_instead, ModelState, "put_back", _keep_what_was_folded)),
    "links are believed": Plant("damage", partial(_everywhere, _open_commit, _believe), "2:3", 8),
    "unpacked without a doubt": Plant("fuzz", partial(_everywhere, _body_of, _unpack), "0:1", 60),
    "numbers that are none are kept": Plant("values", partial(_instead, codec, "isfinite", lambda _: True)),
    "a refused value leaves a trace": Plant(
        "values", partial(_instead, ModelState, "put_back", _keep_what_was_folded), at_most=60
    ),
    "links are believed, by the doctor": Plant("doctor", partial(_everywhere, _open_commit, _believe), "104:106", 3),
    "links are believed, in rows": Plant("rows", partial(_everywhere, _open_commit, _believe), at_most=40),
    "digests are believed": Plant("rows", partial(_instead, SqliteCheckpoints, "read", _believe_checkpoint), "1:2", 40),
    "a fold with a memory": Plant("machines", _hidden_state, "2:3", 4),
    "a fold with a memory, found by Hypothesis": Plant("machines", _hidden_state, "3:4", 10),
    "a fold with a memory, on a walk": Plant("walk", _hidden_state, "1:2", 320),
    "a checkpoint loses a record": Plant(
        "restores", partial(_instead, restore, "_load_table", _load_all_but_one), "1:2", 200
    ),
    "a checkpoint loses a record, in lives": Plant(
        "machines", partial(_instead, restore, "_load_table", _load_all_but_one), "0:1", 10
    ),
}
"""What is wrong -> where it must be found."""
