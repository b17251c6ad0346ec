"""The write-ahead log beside a SQLite store: what is in it, and what SQLite would drop from it without a word. It must
never take a commit that a power cut tore for one that was damaged later.

SQLite reads its log up to the first frame that does not fit and forgets the rest. After a power cut that is right: only
the commit being written can be torn, since each is flushed before the next begins. So a commit behind the first bad
frame that another one follows was flushed once, and it was damage that cut it off. Of the last commit in a log nobody
can tell.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Final, TypeAlias

from engine.store.sqlite_files import looking_at

__all__ = ["Log", "commits_out_of_reach", "read_log"]

_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAGIC: Final = (0x377F0682, 0x377F0683)  # the second: checksums over big-endian words
_INDEX_HEADER_BYTES: Final = 48
_PAGE_BYTES_DEFAULT: Final = 4096

_Sum: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Log:
    """What a log holds: the pages that SQLite takes from it, those it drops, and how many commits go with them."""

    committed: dict[int, int]
    """Page number -> offset of its newest version, as of the last good commit."""
    pages: int | None
    """How many pages the store has after the last good commit; None when there is none."""
    dropped: tuple[tuple[int, int], ...]
    """(page number, offset) of each frame of this log that SQLite drops, in order."""
    commits_dropped: int
    """Commits among the dropped that were flushed once; see above."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame: its page, and for the last one of a commit the number of pages that the store then has."""

    raw: bytes
    offset: int

    @property
    def page(self) -> int:
        return int.from_bytes(self.raw[:4], "big")

    @property
    def ends(self) -> int:
        return int.from_bytes(self.raw[4:8], "big")

    @property
    def salt(self) -> bytes:
        return self.raw[8:16]

    @property
    def stated(self) -> _Sum:
        return _pair(self.raw[16:24])

    def sum_after(self, before: _Sum, *, big: bool) -> _Sum:
        """Return the running checksum after this frame, from the one before it."""
        return _checksum(self.raw[_FRAME_HEADER_BYTES:], _checksum(self.raw[:8], before, big=big), big=big)


class _File:
    """A log file: its header, and its frames from any place on."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        header = os.pread(file.fileno(), _HEADER_BYTES, 0)
        magic, size = int.from_bytes(header[:4], "big"), int.from_bytes(header[8:12], "big")
        self.big = magic == _MAGIC[1]
        self.page_bytes = size if 512 <= size <= 65536 and size & (size - 1) == 0 else _PAGE_BYTES_DEFAULT
        self.sound = (
            len(header) == _HEADER_BYTES
            and magic in _MAGIC
            and _checksum(header[:24], (0, 0), big=self.big) == _pair(header[24:32])
        )
        self.sum = _pair(header[24:32]) if self.sound else None
        self.salt = header[16:24] if self.sound else self._salt_of_most()

    def _salt_of_most(self) -> bytes:
        """Return the mark of the frames of a log whose header is damaged: what two of the first three agree on."""
        first = [frame.salt for _, frame in zip(range(3), self.frames(0), strict=False)]
        return max(first, key=first.count, default=b"")

    def frames(self, start: int) -> Iterator[_Frame]:
        """Yield all whole frames from number ``start`` on."""
        size = _FRAME_HEADER_BYTES + self.page_bytes
        offset = _HEADER_BYTES + start * size
        while len(raw := os.pread(self._file.fileno(), size, offset)) == size:
            yield _Frame(raw, offset + _FRAME_HEADER_BYTES)
            offset += size


def read_log(file: IO[bytes]) -> Log:
    """Return what a log holds, by SQLite's own rules, and what it would drop by them."""
    log = _File(file)
    running = log.sum
    committed: dict[int, int] = {}
    waiting: dict[int, int] = {}
    pages: int | None = None
    dropped: list[_Frame] = []
    for frame in log.frames(0):
        if frame.salt != log.salt or not frame.page:
            running = None
            continue
        if running is not None:
            running = frame.sum_after(running, big=log.big)
            running = running if running == frame.stated else None
        if running is None:
            dropped.append(frame)
            continue
        waiting[frame.page] = frame.offset
        if frame.ends:
            committed |= waiting
            pages, waiting = frame.ends, {}
    places = tuple((frame.page, frame.offset) for frame in dropped)
    return Log(committed, pages, places, _flushed(dropped, big=log.big))


def commits_out_of_reach(path: Path) -> int:
    """Return how many commits in the log of an open store SQLite does not see though they were flushed once.

    Costs what lies behind the end that SQLite sees, which is next to nothing. A writer may go on meanwhile: then
    nothing is said, for it is writing where one would look.
    """
    try:
        with Path(f"{path}-wal").open("rb") as file, looking_at(path, "-shm") as index:  # the log has no locks
            seen = os.pread(index, _INDEX_HEADER_BYTES, 0)
            if len(seen) < _INDEX_HEADER_BYTES or not seen[12]:  # not in use
                return 0
            log = _File(file)
            salt = seen[32:40] if log.sound else log.salt
            behind: list[_Frame] = []
            for frame in log.frames(int.from_bytes(seen[16:20], sys.byteorder)):
                if frame.salt != salt:
                    break
                behind.append(frame)
            again = os.pread(index, _INDEX_HEADER_BYTES, 0)
            return _flushed(behind, big=log.big) if seen == again else 0
    except OSError:  # there is no log, or what reads the store will say why it cannot
        return 0


def _flushed(dropped: list[_Frame], *, big: bool) -> int:
    """Return how many of the frames end a commit that the next frame continues by its checksum."""
    return sum(
        1
        for frame, following in pairwise(dropped)
        if frame.ends and following.sum_after(frame.stated, big=big) == following.stated
    )


def _pair(raw: bytes) -> _Sum:
    return int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:8], "big")


def _checksum(data: bytes, running: _Sum, *, big: bool) -> _Sum:
    one, two = running
    words = struct.unpack(f"{'>' if big else '<'}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        one = (one + words[index] + two) & 0xFFFFFFFF
        two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return one, two
