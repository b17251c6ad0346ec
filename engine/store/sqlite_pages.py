"""Reads the rows of a SQLite file page by page, without SQLite: for a file that SQLite itself refuses. It must never be
used to serve data; what it finds is a candidate until its link has been checked.

The format is the one documented at sqlite.org/fileformat2.html. Only pages that hold rows are looked at, each for
itself, so that a broken page costs its own rows and no others.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from engine.store.sqlite_files import file_beside, looking_at
from engine.store.sqlite_log import read_log
from engine.store.sqlite_rows import (
    INDEX_INNER,
    INDEX_LEAF,
    TABLE_INNER,
    TABLE_LEAF,
    Record,
    cell_of,
    last_blob,
    local_bytes,
    values,
)

__all__ = ["MAGIC", "Pages", "Place", "SourcePage", "page_bytes_of"]

MAGIC: Final = b"SQLite format 3\0"
HEADER_BYTES: Final = 100
PAGE_BYTES_DEFAULT: Final = 4096
_PAGES_KEPT: Final = 256
_UNREADABLE: Final = (errno.EIO, errno.ENXIO, errno.EUCLEAN)
_IN_FILE, _IN_LOG, _DROPPED, _OLDER = range(4)

Place: TypeAlias = int
"""Where a row lies: its page's place, and 16 bits for the offset in it. A number, since there are very many."""


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A page: where it lies, and whether it is the newest version that is left of it."""

    offset: int
    kind: int
    newest: bool = True

    def place(self, at: int) -> Place:
        """Return the place of a row."""
        return (self.offset << 2 | self.kind) << 16 | at


class Pages:
    """The pages of a store file and of the log beside it, each read when it is asked for. Raises OSError when the file
    cannot be opened; what of it cannot be read counts as ``unreadable``, and as nothing."""

    def __init__(self, path: Path) -> None:
        self.unreadable: set[int] = set()
        self._kept: dict[tuple[int, int], bytes] = {}
        with ExitStack() as files:
            self._file = files.enter_context(looking_at(path))
            header = self._pread(self._file, HEADER_BYTES, 0).ljust(HEADER_BYTES, b"\0")
            self.page_bytes = page_bytes_of(header)
            stated = header[20] if header[:16] == MAGIC else 0
            self._usable = [self.page_bytes - stated] if stated < self.page_bytes // 2 else []
            if stated:  # we never set any bytes aside; who else did, is told from a damaged header by the links
                self._usable.append(self.page_bytes)
            log = file_beside(path, "-wal")
            read = files.enter_context(log.open("rb")) if log.is_file() and log.stat().st_size else None
            self.log = None if read is None else read_log(read.fileno(), self.page_bytes)
            self._log = -1 if read is None else read.fileno()
            self._files = files.pop_all()
        self.in_file = -(-path.stat().st_size // self.page_bytes)
        self.damaged_log = self.log is not None and self.log.commits_dropped > 0
        self._committed = {} if self.log is None else self.log.committed
        self._dropped = {} if self.log is None else dict(self.log.dropped)
        self.count = self.in_file + (0 if self.log is None else len(self.log.dropped))
        """About how many pages there are to be looked at."""

    def close(self) -> None:
        """Give the files back."""
        self._files.close()

    def sources(self) -> Iterator[SourcePage]:
        """Yield every page that may hold rows: the newest versions first, without the pages that SQLite has freed, then
        the others.

        The newest is what SQLite would read; or, where damage keeps it from seeing the end of the log, what stands
        nearest to that end.
        """
        last = self.in_file if self.log is None or self.log.pages is None else self.log.pages
        if self.damaged_log:
            last = max(self.in_file, last, *self._committed, *self._dropped)
        freed = frozenset() if self.damaged_log else self._freed(last)
        for number in range(1, last + 1):
            if number not in freed:
                yield self._newest(number)
        for number, offset in () if self.log is None else self.log.dropped:
            if not self.damaged_log or number == 0 or self._dropped[number] != offset:  # 0: damage, no page is it
                yield SourcePage(offset, _DROPPED, False)
        if self.damaged_log:
            for number, offset in self._committed.items():
                if number in self._dropped:
                    yield SourcePage(offset, _IN_LOG, False)
            for number in sorted({*self._committed, *self._dropped}):
                if 0 < number <= self.in_file:
                    yield SourcePage((number - 1) * self.page_bytes, _OLDER, False)

    def _newest(self, number: int) -> SourcePage:
        if self.damaged_log and number in self._dropped:
            return SourcePage(self._dropped[number], _DROPPED)
        return self._current(number)

    def _current(self, number: int) -> SourcePage:
        """Return where the page is that SQLite would read."""
        if number in self._committed:
            return SourcePage(self._committed[number], _IN_LOG)
        return SourcePage((number - 1) * self.page_bytes, _IN_FILE)

    def _read(self, page: SourcePage) -> bytes:
        """Return the bytes of a page, fewer when the file ends in it."""
        file = self._file if page.kind in (_IN_FILE, _OLDER) else self._log
        known = self._kept.get((file, page.offset))
        if known is None:
            if len(self._kept) >= _PAGES_KEPT:
                self._kept.clear()
            known = self._kept[file, page.offset] = self._pread(file, self.page_bytes, page.offset)
        return known

    def _pread(self, file: int, size: int, offset: int) -> bytes:
        try:
            return os.pread(file, size, offset)
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            self.unreadable.add(offset)
            return b""

    # -- pages that hold nothing any more -----------------------------------------------------------------------------

    def _freed(self, last: int) -> frozenset[int]:
        """Return the pages that SQLite has freed: what they still hold was deleted.

        They are those on its list; or should the list not be as it was written, those that nothing refers to.
        """
        first = self._read(self._current(1))
        if first[:16] != MAGIC:
            return frozenset()
        listed: set[int] = set()
        trunk, whole = int.from_bytes(first[32:36], "big"), True
        while trunk and whole:
            whole = 1 < trunk <= last and trunk not in listed
            page = self._read(self._current(trunk)) if whole else b""
            count = int.from_bytes(page[4:8], "big")
            leaves = [int.from_bytes(page[at : at + 4], "big") for at in range(8, min(8 + 4 * count, len(page)), 4)]
            whole = whole and len(leaves) == count and all(1 < leaf <= last for leaf in leaves)
            listed.update((trunk, *leaves) if whole else ())
            trunk = int.from_bytes(page[:4], "big")
        if whole and len(listed) == int.from_bytes(first[36:40], "big"):
            return frozenset(listed)
        return frozenset(range(2, last + 1)) - self._referred_to(last)

    def _referred_to(self, last: int) -> set[int]:
        """Return the pages that are the root of a table or an index, or below another page."""
        found: set[int] = set()
        for number in range(1, last + 1):
            data = self._read(self._current(number))
            start = HEADER_BYTES if number == 1 else 0
            kind = data[start] if len(data) > start + 12 else 0
            if kind in (TABLE_INNER, INDEX_INNER):
                found.add(int.from_bytes(data[start + 8 : start + 12], "big"))
                found.update(int.from_bytes(data[at : at + 4], "big") for at in self._cells_at(data, start))
            elif number == 1:
                roots = [record[3] for _, record in self.cells(self._current(1)) if len(record) == 5]
                found.update(root for root in roots if type(root) is int)
        return found

    # -- rows ---------------------------------------------------------------------------------------------------------

    def cells(self, page: SourcePage) -> Iterator[tuple[Place, Record]]:
        """Yield the rows of one page that can be read; of a column that goes on in other pages, what stands here."""
        data = self._read(page)
        start = HEADER_BYTES if data[:16] == MAGIC or (page.kind == _IN_FILE and page.offset == 0) else 0
        kind = data[start] if len(data) > start else 0
        if kind not in (TABLE_LEAF, INDEX_LEAF, INDEX_INNER):
            return
        for at in dict.fromkeys(self._cells_at(data, start)):  # a damaged page may name one row many times
            try:
                size, payload = cell_of(data, at, kind)
                local = local_bytes(size, kind, self._usable[0])
                yield page.place(at), values(data[payload : payload + local], size)
            except (IndexError, ValueError):
                continue

    def _cells_at(self, data: bytes, start: int) -> Iterator[int]:
        pointers = start + (12 if data[start] in (INDEX_INNER, TABLE_INNER) else 8)
        count = int.from_bytes(data[start + 3 : start + 5], "big")
        for place in range(pointers, min(pointers + 2 * count, len(data) - 1), 2):
            yield int.from_bytes(data[place : place + 2], "big") % self.page_bytes  # as SQLite reads it

    def last_blobs(self, place: Place, columns: int) -> Iterator[bytes]:
        """Yield the last column, a blob, of a row of so many columns: in every way that the row may be read, when the
        header leaves a choice; nothing when it cannot be."""
        page = SourcePage(place >> 18, place >> 16 & 3)
        data = self._read(page)
        for usable in self._usable:
            try:
                kind = data[0]
                size, payload = cell_of(data, place & 0xFFFF, kind)
                found = last_blob(self._whole(data, payload, size, kind, usable, page), columns)
            except (IndexError, ValueError):
                continue
            if found is not None:
                yield found

    def _whole(self, data: bytes, at: int, size: int, kind: int, usable: int, page: SourcePage) -> bytes:
        local = local_bytes(size, kind, usable)
        if local == size and at + size <= len(data):
            return data[at : at + size]
        parts = [data[at : at + local]]
        left, number = size - local, int.from_bytes(data[at + local : at + local + 4], "big")
        find, passed = self._follow(page), set[int]()
        while left:
            if not number or number in passed:
                raise ValueError("the chain of pages ends early, or goes in a circle")
            passed.add(number)
            more = self._read(find(number))
            part = more[4 : 4 + min(left, usable - 4)]
            if not part:
                raise ValueError("a page of the chain is gone")
            parts.append(part)
            left -= len(part)
            number = int.from_bytes(more[:4], "big")
        if sum(map(len, parts)) != size:
            raise ValueError("the page ends early")
        return b"".join(parts)

    def _follow(self, page: SourcePage) -> Callable[[int], SourcePage]:
        """Return how a page's chain is followed: from one that was dropped in the frames dropped with it, if it can
        be; from an older one of the file in the file."""
        if page.kind == _DROPPED:
            return lambda number: (
                SourcePage(self._dropped[number], _DROPPED) if number in self._dropped else self._current(number)
            )
        if page.kind == _OLDER:
            return lambda number: SourcePage((number - 1) * self.page_bytes, _OLDER)
        return self._current


def page_bytes_of(header: bytes) -> int:
    """Return the size of the pages of a file from its header; the usual one when the header is damaged there."""
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else PAGE_BYTES_DEFAULT
