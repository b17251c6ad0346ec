"""The write-ahead log beside a SQLite store: what is in it, and what SQLite would drop from it without a word. It must
never take a commit that a power cut tore for one that was damaged later.

SQLite reads its log up to the first frame that does not fit and forgets the rest. After a power cut that is right: only
the commit being written can be torn, since each is flushed before the next begins, and so is the log's header before
the first frame. So a commit behind the first bad frame that another one follows was flushed once, and it was damage
that cut it off; as were all commits behind a bad header. Of the last commit in a log nobody can tell, nor of the one
before it once the head of its last frame is gone altogether.

What else may lie behind the end is left over: frames from before SQLite began the log anew, which bear other salts, and
those of a transaction that was rolled back or whose process was killed. Their checksums do not go on from those before.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

from engine.store.sqlite_files import file_beside, looking_at

__all__ = ["LOG_HEADER_BYTES", "Log", "has_sound_header", "is_cut_short", "read_log"]

LOG_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_MAGIC: Final = (0x377F0682, 0x377F0683)  # the second: checksums over big-endian words
_INDEX_HEADER_BYTES: Final = 48  # it stands there twice: while the two differ, a writer is changing them
_LOOKED_AT_CLOSELY: Final = 64

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
    """At least so many commits among the dropped were flushed once; see above."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame: its page, and for the last one of a commit the number of pages that the store then has."""

    number: int
    head: bytes
    content: bytes

    @property
    def page(self) -> int:
        return int.from_bytes(self.head[:4], "big")

    @property
    def ends(self) -> int:
        return int.from_bytes(self.head[4:8], "big")

    @property
    def salt(self) -> bytes:
        return self.head[8:16]

    @property
    def stated(self) -> _Sum:
        return _pair(self.head[16:24])


class _File:
    """A log file: its header, and its whole frames by number."""

    def __init__(self, file: int, page_bytes: int) -> None:
        self._file = file
        self.header = header = os.pread(file, LOG_HEADER_BYTES, 0)
        magic = int.from_bytes(header[:4], "big")
        self.big = magic == _MAGIC[1]
        self.sound = (
            len(header) == LOG_HEADER_BYTES
            and magic in _MAGIC
            and checksum(header[:24], (0, 0), big=self.big) == _pair(header[24:32])
        )
        self.page_bytes = int.from_bytes(header[8:12], "big") if self.sound else page_bytes
        self.sum = _pair(header[24:32])
        self.salt = header[16:24]
        if not self.sound:
            self._guess()

    def _guess(self) -> None:
        """Learn from the first frames what a damaged header does not say: their salt, and the order of their words."""
        first = [frame for number in range(4) if (frame := self.frame(number)) is not None]
        salts = [frame.salt for frame in first]
        self.salt = max(salts, key=salts.count, default=b"")
        orders = (sys.byteorder == "big", sys.byteorder != "big")
        fits = (big for big in orders for one, two in pairwise(first) if _sum(two, one.stated, big=big) == two.stated)
        self.big = next(fits, orders[0])

    def offset(self, number: int) -> int:
        """Return where the page of a frame begins."""
        return LOG_HEADER_BYTES + number * (_FRAME_HEADER_BYTES + self.page_bytes) + _FRAME_HEADER_BYTES

    def frame(self, number: int) -> _Frame | None:
        """Return a frame, None when the file has no such whole one."""
        size = _FRAME_HEADER_BYTES + self.page_bytes
        raw = os.pread(self._file, size, self.offset(number) - _FRAME_HEADER_BYTES)
        return _Frame(number, raw[:_FRAME_HEADER_BYTES], raw[_FRAME_HEADER_BYTES:]) if len(raw) == size else None

    def frames(self) -> Iterator[_Frame]:
        """Yield all frames."""
        number = 0
        while (frame := self.frame(number)) is not None:
            yield frame
            number += 1

    def frames_near(self, number: int) -> Iterator[_Frame]:
        """Yield the frames from ``number`` on for as long as they are of this log; of those that are not, the next few,
        and then ever fewer: behind the end of a log there may lie much that was left over from before."""
        others = 0
        while (frame := self.frame(number)) is not None:
            yield frame
            others = 0 if frame.salt == self.salt else others + 1
            number += 1 << max(0, others - _LOOKED_AT_CLOSELY)


class _Behind:
    """Goes through frames that SQLite does not see, in order, and counts the commits among them that were flushed."""

    def __init__(self, log: _File, at_end: _Sum | None) -> None:
        """Begin where SQLite ends; ``at_end`` is the checksum there, None when it is not known."""
        self._log = log
        self._sums = [] if at_end is None else [at_end]
        self._before: _Frame | None = None
        self._first = True
        self._ended = False
        self._pages: set[int] = set()
        self._followed = 0

    @property
    def flushed(self) -> int:
        """How many commits were. The header is flushed before the first frame: behind a bad one all of them were, and
        one is enough to tell."""
        return self._followed or int(self._ended and not self._log.sound)

    def take(self, frame: _Frame, *, closely: bool = True) -> _Frame | None:
        """Go on with a frame; return it when it is of this log. Unless ``closely``, not every checksum is worked
        out."""
        before = self._before
        if before is not None and before.number + 1 != frame.number:
            before, self._sums = None, []
        worth = closely or (before is not None and before.ends)
        sums = [_sum(frame, known, big=self._log.big) for known in self._sums] if worth else []
        linked = frame.stated in sums
        ours = linked or frame.salt == self._log.salt
        if self._first and ours and sums and not linked:
            mended = _mended(frame, self._sums[0], big=self._log.big)
            frame, linked = mended, mended is not frame
        self._first = False
        if linked and before is not None and self._other_commit(before, frame):
            self._followed += 1
            self._pages.clear()
        if not linked:
            self._pages.clear()
        self._pages.add(frame.page)
        self._ended = self._ended or (ours and frame.ends > 0)
        self._before = frame if ours else None
        # What the next frame goes on from is stated here; or, should that be what is damaged, follows from before.
        self._sums = list(dict.fromkeys((frame.stated, *sums))) if ours else []
        return self._before

    def _other_commit(self, before: _Frame, frame: _Frame) -> bool:
        """Return whether a frame that goes on from the one before it belongs to a later commit: that one was the last
        of its own, or the page was in this one already, as only the last page of a commit may be."""
        if before.ends:
            return (before.head[:8], before.content) != (frame.head[:8], frame.content)  # else it fills up a sector
        return frame.page in self._pages and not frame.ends


def read_log(file: int, page_bytes: int) -> Log:
    """Return what a log holds, by SQLite's own rules, and what it would drop by them. Reads all of it."""
    log = _File(file, page_bytes)
    running = log.sum if log.sound else None
    committed: dict[int, int] = {}
    waiting: list[tuple[int, int]] = []
    pages: int | None = None
    behind: _Behind | None = None if log.sound else _Behind(log, None)
    dropped: list[tuple[int, int]] = []
    for frame in log.frames():
        offset = log.offset(frame.number)
        if behind is None:
            assert running is not None
            after = _sum(frame, running, big=log.big)
            if frame.salt == log.salt and frame.page and after == frame.stated:
                running = after
                waiting.append((frame.page, offset))
                if frame.ends:
                    committed.update(waiting)
                    pages, waiting = frame.ends, []
                continue
            behind = _Behind(log, running)
        if (ours := behind.take(frame)) is not None:
            dropped.append((ours.page, offset))
    return Log(committed, pages, (*waiting, *dropped), 0 if behind is None else behind.flushed)


def has_sound_header(log: Path) -> bool:
    """Return whether SQLite looks at a log at all. Raises OSError."""
    with log.open("rb") as file:
        return _File(file.fileno(), LOG_HEADER_BYTES).sound


def is_cut_short(store: Path, page_bytes: int) -> bool:
    """Return whether SQLite, which has looked at the log of this open store, does not see commits that were flushed.

    Costs what lies behind the end that SQLite sees, which is next to nothing. A writer may go on meanwhile: then
    nothing is said, for it is writing where one would look.
    """
    try:
        with file_beside(store, "-wal").open("rb") as file, looking_at(store, "-shm") as index:  # the log has no locks
            seen = os.pread(index, 2 * _INDEX_HEADER_BYTES, 0)
            if len(seen) < 2 * _INDEX_HEADER_BYTES or not seen[12] or seen[:48] != seen[48:]:
                return False
            log = _File(file.fileno(), page_bytes)
            found = _flushed_behind(log, seen)
            if not found and not os.access(file_beside(store, "-shm"), os.W_OK):
                # Whoever may not write the index may be looking at one that is older than the damage. SQLite then reads
                # the log for itself, and so must we.
                found = read_log(file.fileno(), page_bytes).commits_dropped > 0
            header = os.pread(file.fileno(), LOG_HEADER_BYTES, 0)
            return found and os.pread(index, len(seen), 0) == seen and header == log.header
    except OSError:  # there is no log, or what reads the store will say why it cannot
        return False


def _flushed_behind(log: _File, seen: bytes) -> bool:
    """Return whether a flushed commit lies behind the end that the index states in its header."""
    end = int.from_bytes(seen[16:20], sys.byteorder)
    if log.sound and log.salt != seen[32:40]:
        return (
            False  # SQLite began the log anew, and could not write so much as its header: all of this is in the store
        )
    if not log.sound and end:
        return False  # a writer is at the header
    one, two = (int.from_bytes(seen[at : at + 4], sys.byteorder) for at in (24, 28))
    behind = _Behind(log, ((one, two) if end else log.sum) if log.sound else None)
    for count, frame in enumerate(log.frames_near(end)):
        behind.take(frame, closely=count < _LOOKED_AT_CLOSELY)
        if behind.flushed:
            return True
    return False


def _mended(frame: _Frame, before: _Sum, *, big: bool) -> _Frame:
    """Return a frame with the one bit of its page number or its end mark turned back that makes its checksum right; as
    it is when there is no such bit."""
    for bit in range(64):
        head = bytearray(frame.head)
        head[bit // 8] ^= 1 << bit % 8
        mended = replace(frame, head=bytes(head))
        if _sum(mended, before, big=big) == frame.stated:
            return mended
    return frame


def _sum(frame: _Frame, before: _Sum, *, big: bool) -> _Sum:
    """Return the running checksum after a frame, from the one before it."""
    return checksum(frame.content, checksum(frame.head[:8], before, big=big), big=big)


def _pair(raw: bytes) -> _Sum:
    return int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:8], "big")


def checksum(data: bytes, running: _Sum, *, big: bool) -> _Sum:
    """Return SQLite's checksum of whole pairs of words, going on from ``running``."""
    one, two = running
    words = iter(struct.unpack(f"{'>' if big else '<'}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return one, two
