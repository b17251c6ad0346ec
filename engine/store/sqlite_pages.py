"""Reads the rows of a SQLite file page by page, without SQLite: for a file that SQLite itself refuses. It must never be
used to serve data; what it finds is a candidate until its link has been checked.

The format is the one documented at sqlite.org/fileformat2.html. Only pages that hold rows are looked at, each for
itself, so that a broken page costs its own rows and no others.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from engine.core.limits import COMMIT_BYTES_MAX
from engine.store.sqlite_files import looking_at
from engine.store.sqlite_log import read_log

__all__ = ["Cell", "Pages", "SourcePage"]

MAGIC: Final = b"SQLite format 3\0"
PAGE_BYTES_DEFAULT: Final = 4096
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER = 0x0D, 0x0A, 0x02
_COLUMNS_MAX: Final = 16
_PAYLOAD_MAX: Final = COMMIT_BYTES_MAX + 65_536
_INTEGER_BYTES: Final = (0, 1, 2, 3, 4, 6, 8)

Record: TypeAlias = list[Any]


@dataclass(frozen=True, slots=True)
class SourcePage:
    """Where a page lies: its number, and its offset in the store file or in the log beside it."""

    number: int
    in_log: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a row lies: its page, and the offset in it."""

    page: SourcePage
    at: int


class Pages:
    """The pages of a store file and of the log beside it, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        with ExitStack() as files:
            self._file = files.enter_context(looking_at(path))
            log = path.with_name(path.name + "-wal")
            frames = files.enter_context(log.open("rb")) if log.is_file() and log.stat().st_size else None
            self.log = None if frames is None else read_log(frames)
            self._log = None if frames is None else frames.fileno()
            size = path.stat().st_size
            self._files = files.pop_all()
        header = os.pread(self._file, 100, 0).ljust(100, b"\0")
        self.readable = header[:16] == MAGIC
        self.page_bytes = _page_bytes(header)
        self.usable = self.page_bytes - (header[20] if self.readable and header[20] < self.page_bytes // 2 else 0)
        self.in_file = size // self.page_bytes
        self._newest = {} if self.log is None else self.log.committed

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def current(self, number: int) -> SourcePage:
        """Return where the page is that SQLite would read."""
        if number in self._newest:
            return SourcePage(number, True, self._newest[number])
        return SourcePage(number, False, (number - 1) * self.page_bytes)

    def sources(self) -> Iterator[SourcePage]:
        """Yield every page that may hold rows: first as SQLite would read the store, without the pages it has freed,
        then what stands in frames of the log that it would drop."""
        last = self.in_file if self.log is None or self.log.pages is None else self.log.pages
        last = max(last, *self._newest, 0) if self._newest else last
        freed = self._freed(last)
        for number in range(1, last + 1):
            if number not in freed:
                yield self.current(number)
        for number, offset in () if self.log is None else self.log.dropped:
            yield SourcePage(number, True, offset)

    def read(self, page: SourcePage) -> bytes:
        """Return the bytes of a page, fewer when the file ends in it."""
        file = self._log if page.in_log else self._file
        assert file is not None
        return os.pread(file, self.page_bytes, page.offset)

    def _freed(self, last: int) -> frozenset[int]:
        """Return the pages on SQLite's list of free ones: what they still hold was deleted."""
        freed: set[int] = set()
        first = self.read(self.current(1))
        trunk = int.from_bytes(first[32:36], "big") if first[:16] == MAGIC else 0
        while 1 < trunk <= last and trunk not in freed:
            freed.add(trunk)
            page = self.read(self.current(trunk))
            count = min(int.from_bytes(page[4:8], "big"), self.usable // 4 - 2)
            leaves = [int.from_bytes(page[at : at + 4], "big") for at in range(8, 8 + 4 * count, 4)]
            freed.update(leaf for leaf in leaves if 1 < leaf <= last)
            trunk = int.from_bytes(page[:4], "big")
        return frozenset(freed)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def cells(self, page: SourcePage) -> Iterator[tuple[Cell, Record]]:
        """Yield the rows of one page that can be read."""
        data = self.read(page)
        start = 100 if page.number == 1 else 0
        kind = data[start] if len(data) > start else 0
        if kind not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER):
            return
        pointers = start + (12 if kind == _INDEX_INNER else 8)
        count = int.from_bytes(data[start + 3 : start + 5], "big")
        for place in range(pointers, min(pointers + 2 * count, len(data) - 1), 2):
            at = int.from_bytes(data[place : place + 2], "big") % self.page_bytes  # as SQLite reads it
            try:
                record = self._record(data, kind, at, page)
            except (IndexError, ValueError, struct.error):
                continue
            yield Cell(page, at), record

    def record(self, cell: Cell) -> Record:
        """Return a row again. Raises ValueError when its bytes are no longer there."""
        data = self.read(cell.page)
        try:
            return self._record(data, data[100 if cell.page.number == 1 else 0], cell.at, cell.page)
        except (IndexError, struct.error) as error:
            raise ValueError(str(error)) from error

    def _record(self, data: bytes, kind: int, at: int, page: SourcePage) -> Record:
        if not 8 <= at < len(data):
            raise ValueError("no such place")
        if kind == _INDEX_INNER:
            at += 4
        size, at = _varint(data, at)
        if kind == _TABLE_LEAF:
            _, at = _varint(data, at)
        if not 1 <= size <= _PAYLOAD_MAX:
            raise ValueError("no such size")
        return _values(self._payload(data, at, size, kind, page))

    def _payload(self, data: bytes, at: int, size: int, kind: int, page: SourcePage) -> bytes:
        most = self.usable - 35 if kind == _TABLE_LEAF else (self.usable - 12) * 64 // 255 - 23
        if size <= most:
            return _exactly(data[at : at + size], size)
        least = (self.usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (self.usable - 4)
        local = local if local <= most else least
        parts = [_exactly(data[at : at + local], local)]
        left, number = size - local, int.from_bytes(_exactly(data[at + local : at + local + 4], 4), "big")
        find = self._follow(page)
        while left:
            if not number:
                raise ValueError("the chain of pages ends early")
            more = self.read(find(number))
            part = more[4 : 4 + min(left, self.usable - 4)]
            if not part:
                raise ValueError("a page of the chain is gone")
            parts.append(part)
            left -= len(part)
            number = int.from_bytes(more[:4], "big")
        return b"".join(parts)

    def _follow(self, page: SourcePage) -> Callable[[int], SourcePage]:
        """Return how a page's chain is followed: one in the log goes on in the frames dropped with it, if it can."""
        if not page.in_log or self.log is None or page.offset in self.log.committed.values():
            return self.current
        beside = dict(self.log.dropped)
        return lambda number: SourcePage(number, True, beside[number]) if number in beside else self.current(number)


def _page_bytes(header: bytes) -> int:
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else PAGE_BYTES_DEFAULT


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ValueError("the page ends early")
    return data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(8):
        byte = data[at + count]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + count + 1
    return value << 8 | data[at + 8], at + 9


def _values(payload: bytes) -> Record:
    """Return the columns of a row. Raises ValueError for what SQLite would not have written."""
    head, at = _varint(payload, 0)
    if head > len(payload):
        raise ValueError("no such header")
    kinds = []
    while at < head:
        kind, at = _varint(payload, at)
        kinds.append(kind)
        if len(kinds) > _COLUMNS_MAX:
            raise ValueError("too many columns")
    values: Record = []
    at = head
    for kind in kinds:
        size = _INTEGER_BYTES[kind] if kind < 7 else 8 if kind == 7 else 0 if kind < 12 else (kind - 12) // 2
        raw = _exactly(payload[at : at + size], size)
        at += size
        if kind == 0:
            values.append(None)
        elif kind < 7:
            values.append(int.from_bytes(raw, "big", signed=True))
        elif kind == 7:
            values.append(struct.unpack(">d", raw)[0])
        elif kind < 10:
            values.append(kind - 8)
        elif kind < 12:
            raise ValueError("no such column")
        else:
            values.append(raw if kind % 2 == 0 else raw.decode("utf-8", "replace"))
    return values
