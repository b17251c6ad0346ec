"""Checkpoints: what changed since the last one, chained by digest. Disposable: nothing here may ever change an answer,
only its cost.

A checkpoint is ``SHA-256(body)[:16] || body`` with the body a CBOR array::

    [format, fingerprint, run id, position, link, base position | null, base link | null,
     [[number of the table, [[key, record | null], ...]], ...]]

``link`` is the first 16 bytes of the journal's link at the position, ``base link`` those at the base: a digest of all
that came before. With a base it holds the records touched since that base (null: removed); without one it holds all
records. A record whose content stands in the journal is stored as ``[seq, index]``. Tables are numbered in the order of
their names, which the fingerprint covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from eventsourcing.persistence import IntegrityError

from engine.core.codec import NotCanonical, decode, encode_many
from engine.core.errors import NotAStore, NotFound
from engine.core.state import ModelState
from engine.store.backend import Backend
from engine.store.errors import translated

__all__ = ["CHECKPOINT_TOPIC", "Checkpoint", "Checkpoints", "Outdated", "Rejected", "capture", "merged"]

CHECKPOINT_TOPIC: Final = "refold.checkpoint/1"
_FORMAT: Final = 1
_DIGEST_BYTES: Final = 16
_LINK_BYTES: Final = 16


class Rejected(Exception):
    """A checkpoint that is not used, and why. Never an error of the restore: an older one or the journal serves
    instead."""


class Outdated(Rejected):
    """A checkpoint that is as it was written, by code of another version. Nothing is wrong with it but its age."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint as read back. ``base`` is (position, link there) of the one it continues, or None for a full one;
    links
    are cut to 16 bytes; ``tables`` are (number of the table, entries)."""

    run_id: str
    position: int
    link: bytes
    fingerprint: bytes
    base: tuple[int, bytes] | None
    tables: Sequence[tuple[int, Sequence[tuple[Any, Any]]]]
    size_bytes: int

    def is_at(self, link: bytes | None) -> bool:
        """Return whether ``link`` is the journal's link where this checkpoint was taken."""
        return link is not None and link[:_LINK_BYTES] == self.link


def capture(state: ModelState, run_id: str, link: bytes, base: tuple[int, bytes] | None) -> bytes:
    """Return the stored bytes of a checkpoint of ``state``: full without ``base``, else what changed since it. Changes
    nothing."""
    tables: list[Any] = []
    for number, name in enumerate(sorted(state.tables)):
        table = state.tables[name]
        keys = list(table.rows) if base is None else list(table.changed)
        if keys:
            refer = table.refer
            entries: list[Any] = []
            for key in keys:
                row = table.rows.get(key)
                entries.append([key, None if row is None else (refer(row) if refer is not None else row.dump())])
            tables.append([number, entries])
    return _seal(run_id, state.model.fingerprint, state.seq, link, base, tables)


def merged(checkpoints: Sequence[Checkpoint]) -> bytes:
    """Return the stored bytes of one checkpoint that does what these, each the base of the next, do one after
    another."""
    first, last = checkpoints[0], checkpoints[-1]
    tables: dict[int, dict[Any, Any]] = {}
    for checkpoint in checkpoints:
        for number, entries in checkpoint.tables:
            seen = tables.setdefault(number, {})
            for key, value in entries:
                seen[tuple(key) if type(key) is list else key] = value
    listed = [[number, [list(entry) for entry in tables[number].items()]] for number in sorted(tables)]
    return _seal(last.run_id, last.fingerprint, last.position, last.link, first.base, listed)


def _seal(
    run_id: str, fingerprint: bytes, position: int, link: bytes, base: tuple[int, bytes] | None, tables: list[Any]
) -> bytes:
    below, below_link = (None, None) if base is None else (base[0], base[1][:_LINK_BYTES])
    body = encode_many([_FORMAT, fingerprint, run_id, position, link[:_LINK_BYTES], below, below_link, tables])
    return sha256(body).digest()[:_DIGEST_BYTES] + body


class Checkpoints:
    """The stored checkpoints of every run of a store."""

    def __init__(self, backend: Backend) -> None:
        self._recorder = backend.checkpoints
        self._where = backend.url

    def put(self, run_id: str, position: int, stored: bytes, *, instead_of: Sequence[int] = ()) -> None:
        """Store a checkpoint, replacing one at the same position and those at the positions ``instead_of``, at once.
        Raises NotFound when the run is not there: a checkpoint would outlive it."""
        with translated(self._where):
            try:
                self._recorder.put(run_id, position, CHECKPOINT_TOPIC, stored, (position, *instead_of))
            except IntegrityError:
                text = f"run {run_id!r} was deleted meanwhile"
                raise NotFound(text, hint="nothing was written", run=run_id) from None

    def positions(self, run_id: str, *, until: int | None = None) -> Sequence[int]:
        """Return the positions that have one, newest first."""
        with translated(self._where):
            return self._recorder.positions(run_id, lte=until)

    def read(self, run_id: str, position: int, fingerprint: bytes) -> Checkpoint:
        """Return the checkpoint at ``position``. Raises Rejected with the reason when it cannot be used."""
        try:
            with translated(self._where):
                found = self._recorder.read(run_id, position)
        except NotAStore as error:
            raise Rejected(f"the database cannot read it: {error.message}") from error
        if found is None:
            raise Rejected(f"there is none at {position}")
        topic, stored = found
        if topic != CHECKPOINT_TOPIC:
            raise Rejected(f"unknown format {topic!r:.40}")
        if type(stored) is not bytes:
            raise Rejected(f"expected bytes, found {type(stored).__name__}")
        body = stored[_DIGEST_BYTES:]
        if sha256(body).digest()[:_DIGEST_BYTES] != stored[:_DIGEST_BYTES]:
            raise Rejected("its bytes do not match its digest")
        try:
            form, *rest = decode(body)
            if type(form) is int and form != _FORMAT:
                raise Outdated(f"written in another format: {form!r:.40}")
            fingerprint_found, run, at, link, base_position, base_link, tables = rest
        except (NotCanonical, TypeError, ValueError) as error:
            raise Rejected(f"its bytes cannot be read: {error}") from error
        if form != _FORMAT:
            raise Rejected(f"unknown format {form!r:.40}")
        if (run, at) != (run_id, position):
            raise Rejected(f"it belongs to {run!r:.40} at {at!r:.20}")
        if fingerprint_found != fingerprint:
            raise Outdated("written under another schema of the projections")
        base = None if base_position is None else (base_position, base_link)
        return Checkpoint(run_id, position, link, fingerprint_found, base, tables, len(stored))

    def chain(self, run_id: str, position: int, fingerprint: bytes) -> list[Checkpoint]:
        """Return the full checkpoint and the ones after it that lead to ``position``, oldest first. Raises Rejected."""
        chain = [self.read(run_id, position, fingerprint)]
        while (base := chain[-1].base) is not None:
            try:
                below = self.read(run_id, base[0], fingerprint)
            except Rejected as error:
                raise type(error)(f"its base at {base[0]}: {error}") from error
            if below.link != base[1] or below.position >= chain[-1].position:
                raise Rejected(f"its base at {base[0]} is another checkpoint")
            chain.append(below)
        return chain[::-1]

    def delete(self, run_id: str, *, gte: int = 0, lte: int | None = None) -> int:
        """Delete the checkpoints at positions from ``gte`` to ``lte``; return how many there were. Costs time only."""
        with translated(self._where):
            return self._recorder.delete(run_id, gte=gte, lte=lte)
