"""What this process has open of store files, so that neither a look at their bytes nor a fork costs it their locks. It
must never close a file that a connection of this process has locks on, nor let a child work with locks of its parent.

POSIX takes all locks of a process on a file away when the process closes any descriptor of it, whoever opened that.
SQLite knows this of its own descriptors and of no others: one look at the file of a store that is open already, and
another process takes itself for the last one, removes the log, and leaves this one appending to a file without a name.
So a descriptor is kept as long as any connection to the store is open, and used for every look until then.

A fork does the same: SQLite in the child remembers the locks of its parent, none of which it has, and takes none. So
all connections are closed before a fork, and made again when they are needed. Where a thread does not let go of one,
the child is refused the store.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from engine.core.errors import BackendUnavailable

__all__ = [
    "FORK_PATIENCE_S",
    "Connection",
    "Resting",
    "file_beside",
    "looking_at",
    "make_empty",
    "opened",
    "rests_at_forks",
]

FORK_PATIENCE_S: Final = 5.0
"""How long a fork waits for other threads to finish what they read or write."""

_File: TypeAlias = tuple[int, int]
"""A file, whatever it is called: its device and inode."""


class Connection(sqlite3.Connection):
    """A connection that says whether it still is one."""

    is_open = True

    def close(self) -> None:
        super().close()
        self.is_open = False  # after it: a connection that is closing still has its locks


class Resting(Protocol):
    """What has connections, and can do without them for a moment."""

    def rest(self, seconds: float) -> None:
        """Close every connection that can be had within so many seconds, and make none before :meth:`wake`."""
        ...

    def wake(self, *, in_child: bool) -> None:
        """Go on; in the child of a fork, where other threads and what they held are no more."""
        ...


class _Store:
    """What this process has open of one store."""

    def __init__(self) -> None:
        self.connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self.descriptors: list[tuple[_File, int]] = []
        self.looking = 0

    def descriptor(self, path: Path) -> int:
        """Return the descriptor of one of the store's files, the same for as long as there are connections."""
        wanted = _file_at(path)
        for file, descriptor in self.descriptors:
            if file == wanted:
                return descriptor
        made = os.open(path, os.O_RDONLY)
        self.descriptors.append((wanted, made))
        return made

    def connected(self) -> bool:
        return any(connection.is_open for connection in self.connections)


_stores: Final[dict[_File, _Store]] = {}
_lock = threading.Lock()


def opened(connection: Connection, store: Path) -> None:
    """Take note of a connection to the store file ``store``. To be called before it is used: it has no locks yet.

    Raises BackendUnavailable when the parent process had the store open while this process was forked from it.
    """
    with _lock:
        file = _file_at(store)
        if file in _parents:
            raise BackendUnavailable(
                f"store {store} was in use by another thread while this process was forked",
                hint="fork while no thread uses the store, or start processes by the method 'spawn'",
            )
        _stores.setdefault(file, _Store()).connections.add(connection)


@contextmanager
def looking_at(store: Path, suffix: str = "") -> Iterator[int]:
    """Lend a descriptor of a store file, or of the file beside it with that ``suffix``, to be read with ``os.pread``.

    Raises OSError when the file is not there or may not be read.
    """
    with _lock:
        _close_what_nobody_uses()
        known = _stores.setdefault(_file_at(store), _Store())
        descriptor = known.descriptor(file_beside(store, suffix))
        known.looking += 1
    try:
        yield descriptor
    finally:
        with _lock:
            known.looking -= 1
            _close_what_nobody_uses()


def file_beside(store: Path, suffix: str) -> Path:
    """Return the file of a store that SQLite names by a suffix: beside the store itself, whatever link leads there."""
    return Path(os.path.realpath(store) + suffix)


def make_empty(store: Path) -> None:
    """Make an empty file unless there is one. Raises OSError."""
    with _lock:  # no look, and so no connection of this process, comes between the making and the closing
        try:
            os.close(os.open(store.resolve(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            return


def _close_what_nobody_uses() -> None:
    for file, known in list(_stores.items()):
        if not known.looking and not known.connected():
            del _stores[file]
            for _, descriptor in known.descriptors:
                os.close(descriptor)


def _file_at(path: Path) -> _File:
    found = path.stat()
    return found.st_dev, found.st_ino


# -- forks ------------------------------------------------------------------------------------------------------------

_resting: Final[weakref.WeakSet[Resting]] = weakref.WeakSet()
_parents: Final[set[_File]] = set()
"""In a child: the stores that its parent had open at the fork all the same."""
_inherited: Final[list[Connection]] = []
"""Their connections. To close one would undo what a thread of the parent is at."""
_forking = threading.Lock()
_at_rest: Final[list[Resting]] = []
"""During a fork: what rests. Kept until it is woken, for it may be garbage: collected in between, it would close
itself, and wait for ever for the lock that its rest holds."""


def rests_at_forks(one: Resting) -> None:
    """Let something close its connections before each fork, for as long as it lives."""
    _resting.add(one)


def _before_fork() -> None:
    _forking.acquire()
    deadline = time.monotonic() + FORK_PATIENCE_S
    _at_rest.extend(_resting)
    for one in _at_rest:
        with suppress(sqlite3.Error):
            one.rest(max(0.0, deadline - time.monotonic()))
    if _connected():  # perhaps one that an interrupt took from its owner: garbage, in a circle with its own statements
        gc.collect()
    while _connected() and time.monotonic() < deadline:
        time.sleep(0.001)


def _connected() -> bool:
    with _lock:
        return any(known.connected() for known in _stores.values())


def _in_parent() -> None:
    for one in _at_rest:
        one.wake(in_child=False)
    _at_rest.clear()
    _forking.release()


def _in_child() -> None:
    global _lock, _forking
    _lock, _forking = threading.Lock(), threading.Lock()  # other threads may have held them
    for file, known in _stores.items():
        if known.connected():
            _parents.add(file)
            _inherited.extend(known.connections)
        for _, descriptor in known.descriptors:
            os.close(descriptor)
    _stores.clear()
    for one in _at_rest:
        one.wake(in_child=True)
    _at_rest.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
