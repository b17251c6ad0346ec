"""The envelope: how events become the bytes of a commit, and the hash chain over them. It must never know what an
event means.

A commit is ``link (32 bytes) || body``, or ``link || 0x00 || CRC-32 of the rest || raw deflate of the body`` when its
events are long texts; the body is the CBOR array of its groups; a group is what one command appended::

    [recorded_at_ms, actor | null, command_id | null, fingerprint | null, cause | null, [event, ...]]

``link = SHA-256(previous link || body)``. Neighbouring commands without ids that agree in time, actor and cause share
a group.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, TypeAlias

from engine.core.catalog import Catalog, Wire
from engine.core.codec import NotCanonical, count_items, decode, encode, encode_many
from engine.core.errors import CorruptJournal, LimitExceeded
from engine.core.limits import COMMIT_BYTES_MAX, COMMIT_EVENTS_MAX, COMMIT_ITEMS_MAX, EVENT_BYTES_MAX, TIME_MS_MAX

__all__ = [
    "COMMIT_TOPIC",
    "LINK_BYTES",
    "body_of",
    "Commit",
    "Event",
    "Group",
    "events_of",
    "genesis",
    "group_of",
    "open_commit",
    "seal_commit",
]

COMMIT_TOPIC: Final = "refold.commit/1"
LINK_BYTES: Final = 32
_DEFLATED: Final = b"\0"  # no CBOR array begins with it
_DEFLATE_FROM_BYTES: Final = 160  # mean bytes an event from which packing is tried

Group: TypeAlias = list[Any]
AT_MS, ACTOR, COMMAND_ID, FINGERPRINT, CAUSE, EVENTS = range(6)


@dataclass(frozen=True, slots=True)
class Event:
    """One event as people and programs read it. ``data`` is a fresh dict; ``cause`` is a seq, or the command id or
    text given with the command."""

    seq: int
    type: str
    recorded_at_ms: int
    actor: str | None
    command_id: str | None
    cause: int | str | None
    data: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the shape of ``refold history --json``; bytes inside data are the caller's business."""
        return {
            "seq": self.seq,
            "type": self.type,
            "recorded_at_ms": self.recorded_at_ms,
            "actor": self.actor,
            "command_id": self.command_id,
            "cause": self.cause,
            "data": self.data,
        }


@dataclass(frozen=True, slots=True)
class Commit:
    """One stored row: the seq of its first event, how many there are, its groups and the link after its last byte."""

    first: int
    count: int
    link: bytes
    groups: Sequence[Group]

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def genesis(run_id: str) -> bytes:
    """Return the link before the first event. It holds the run's id, so a row moved to another run breaks the chain."""
    return sha256(b"refold run/1\0" + run_id.encode()).digest()


def group_of(
    at_ms: int,
    actor: str | None,
    command_id: str | None,
    fingerprint: bytes | None,
    cause: int | str | None,
    events: list[Wire],
) -> Group:
    """Return the group of one command."""
    return [at_ms, actor, command_id, fingerprint, cause, events]


def merge(groups: list[Group], group: Group) -> None:
    """Add a group to a commit in the making, joining it to the last one when nothing but the events differs.

    Joined or not, every reader sees the same events; ``cause_back`` counts events, not groups.
    """
    if groups and group[COMMAND_ID] is None and groups[-1][:EVENTS] == group[:EVENTS]:
        groups[-1][EVENTS].extend(group[EVENTS])
    else:
        groups.append(group)


def seal_commit(previous: bytes, groups: Sequence[Group]) -> tuple[bytes, bytes]:
    """Return (stored bytes, link) of a commit. Raises LimitExceeded; called before any lock is taken."""
    count = sum(len(group[EVENTS]) for group in groups)
    assert count, "a commit holds at least one event"
    if count > COMMIT_EVENTS_MAX:
        raise LimitExceeded("COMMIT_EVENTS_MAX", count, COMMIT_EVENTS_MAX, hint="use several batches")
    body = encode_many(groups, bounded=True) if count > 8 else encode(groups)
    if len(body) > EVENT_BYTES_MAX:  # otherwise no event in it can be larger
        size = max(len(encode(wire)) for group in groups for wire in group[EVENTS])
        if size > EVENT_BYTES_MAX:
            raise LimitExceeded("EVENT_BYTES_MAX", size, EVENT_BYTES_MAX)
    if len(body) > COMMIT_BYTES_MAX:
        raise LimitExceeded("COMMIT_BYTES_MAX", len(body), COMMIT_BYTES_MAX, hint="use several batches")
    if len(body) > COMMIT_ITEMS_MAX and (items := count_items(body, COMMIT_ITEMS_MAX)) > COMMIT_ITEMS_MAX:
        raise LimitExceeded("COMMIT_ITEMS_MAX", items, COMMIT_ITEMS_MAX, hint="use several batches")
    link = sha256(previous + body).digest()
    return link + _packed(body, count), link


def _packed(body: bytes, count: int) -> bytes:
    """Return how a body is stored: deflated behind a zero byte when its events are long texts that shrink, else as it
    is.

    The link covers the body itself, so that packing can neither hide damage nor move a digest.
    """
    if len(body) < _DEFLATE_FROM_BYTES * count:
        return body
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(body) + packer.flush()
    if len(packed) > len(body) * 7 // 8:
        return body
    return _DEFLATED + zlib.crc32(packed).to_bytes(4, "big") + packed


def body_of(stored: bytes) -> bytes:
    """Return the body of a stored commit. Raises NotCanonical when it is packed and does not unpack, or is larger than
    any commit: then nobody knows how much memory reading it takes."""
    body = stored[LINK_BYTES:]
    if body[:1] == _DEFLATED:
        body = _unpacked(body)
    if len(body) > COMMIT_BYTES_MAX:
        raise NotCanonical(f"a commit of {len(body)} bytes")
    if len(body) > COMMIT_ITEMS_MAX and count_items(body, COMMIT_ITEMS_MAX) > COMMIT_ITEMS_MAX:
        raise NotCanonical(f"a commit of more than {COMMIT_ITEMS_MAX} items")
    return body


def _unpacked(body: bytes) -> bytes:
    packed = body[5:]
    if (
        zlib.crc32(packed).to_bytes(4, "big") != body[1:5]
    ):  # deflate has bits that mean nothing: a flip there counts too
        raise NotCanonical("a packed commit whose bytes are not those that were written")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(packed, COMMIT_BYTES_MAX + 1)
    except zlib.error as error:
        raise NotCanonical(f"a packed commit that does not unpack: {error}") from error
    if not unpacker.eof or unpacker.unused_data or len(unpacked) > COMMIT_BYTES_MAX:
        raise NotCanonical("a packed commit that does not end where it should")
    return unpacked


def _events_in(group: Group) -> int:
    """Return how many events a group holds. Raises ValueError for what is no group: its events are believed, what
    stands round them is seen by every reader."""
    at_ms, actor, command_id, fingerprint, cause, events = group
    if (
        type(at_ms) is not int
        or not 0 <= at_ms <= TIME_MS_MAX
        or not (actor is None or type(actor) is str)
        or not (command_id is None or type(command_id) is str)
        or not (fingerprint is None or type(fingerprint) is bytes)
        or not (cause is None or type(cause) is str or type(cause) is int)
        or type(events) is not list
    ):
        raise ValueError("a group that is none")
    return len(events)


def open_commit(run_id: str, first: int, previous: bytes, stored: bytes) -> Commit:
    """Return the commit in ``stored``, having checked its bytes against the chain. Raises CorruptJournal at
    ``first``."""
    try:
        body = body_of(stored)
    except NotCanonical as error:
        raise CorruptJournal(run_id, first, "a packed commit", str(error)) from error
    link = sha256(previous + body).digest()
    if stored[:LINK_BYTES] != link:
        raise CorruptJournal(
            run_id, first, f"link {link.hex()[:16]}…", f"link {bytes(stored[:LINK_BYTES]).hex()[:16] or 'nothing'}…"
        )
    try:
        groups = decode(body)
        count = 0
        for group in groups:
            count += _events_in(group)
        if not count:
            raise ValueError("a commit without events")
    except (NotCanonical, TypeError, ValueError) as error:  # bytes with a right hash that we would never have written
        raise CorruptJournal(run_id, first, "a commit of this format", str(error)) from error
    return Commit(first, count, link, groups)


def events_of(commit: Commit, catalog: Catalog, after: int = 0, until: int | None = None) -> Iterator[Event]:
    """Yield the events of a commit with ``after < seq <= until``, lifted to the current version of their type."""
    seq = commit.first - 1
    for at_ms, actor, command_id, _, cause, events in commit.groups:
        for wire in events:
            seq += 1
            if seq <= after or (until is not None and seq > until):
                continue
            lifted = catalog.lift(wire)
            event_type = catalog.by_tag[lifted[0]]
            origin = seq - lifted[1] if lifted[1] else (cause if cause is not None else command_id)
            yield Event(seq, event_type.label, at_ms, actor, command_id, origin, event_type.data(lifted))
