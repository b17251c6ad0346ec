"""The in-memory backend, for tests and experiments: eventsourcing's plain-object recorders with the same conflict rule
as on disk.

It must never be chosen silently in place of a file; nothing in it survives the process.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from eventsourcing.persistence import IntegrityError, StoredEvent
from eventsourcing.popo import POPOAggregateRecorder, POPOApplicationRecorder

from engine.store.backend import Head

__all__ = ["MemoryBackend"]


class _Indexed:
    """Finds versions by bisection: the parent's ``select_events`` walks all of them."""

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[str, list[int]] = defaultdict(list)

    def _span(self, run_id: str, gt: int | None, lte: int | None, desc: bool, limit: int | None) -> list[int]:
        versions = self._versions.get(run_id, [])
        low = 0 if gt is None else bisect_right(versions, gt)
        high = len(versions) if lte is None else bisect_right(versions, lte)
        span = (
            versions[low:high]
            if limit is None
            else (versions[max(low, high - limit) : high] if desc else versions[low : min(high, low + limit)])
        )
        return span[::-1] if desc else span


class _MemoryCommits(_Indexed, POPOApplicationRecorder):
    def __init__(self) -> None:
        super().__init__()
        self._heads: dict[str, Head] = {}
        self.checkpoints = _MemoryCheckpoints(self)

    def record(self, run_id: str, first: int, topic: str, state: bytes, head: Head, after: bytes | None) -> None:
        with self._database_lock:
            known = self._heads.get(run_id)
            stands = (0, None, False) if known is None else (known.position, known.link, known.hidden)
            if stands != (first - 1, after, False):
                raise IntegrityError(f"the head of run {run_id} is not where this writer left it")
            self.insert_events([StoredEvent(run_id, first, topic, state)])
            insort(self._versions[run_id], first)
            self._heads[run_id] = head if known is None else replace(head, origin=known.origin)

    def create(self, head: Head, holding: tuple[int, bytes] | None) -> None:
        assert head.origin is not None
        origin = head.origin.run_id
        with self._database_lock:
            if head.run_id in self._heads:
                raise IntegrityError(f"run {head.run_id} exists")
            if origin not in self._heads or not (holding is None or self._has(origin, *holding)):
                raise IntegrityError(f"run {origin} is not what it was")
            self._heads[head.run_id] = head

    def _has(self, run_id: str, first: int, link: bytes) -> bool:
        slot = self._stored_events_index[run_id].get(first)
        return slot is not None and self._stored_events[slot].state.startswith(link)

    def erase(self, run_id: str, *, needed: int | None) -> None:
        with self.checkpoints._database_lock, self._database_lock:
            least = -1 if needed is None else needed
            origins = [head.origin for head in self._heads.values() if head.origin is not None]
            if run_id not in self._heads or any(o.run_id == run_id and o.position > least for o in origins):
                raise IntegrityError(f"run {run_id} is not what it was")
            for version in [version for version in self._versions[run_id] if version > (needed or 0)]:
                slot = self._stored_events_index[run_id].pop(version)
                self._stored_events[slot] = StoredEvent(run_id, version, "", b"")
                self._versions[run_id].remove(version)
            self.checkpoints.delete(run_id, gte=least + 1)
            if needed is not None:
                self._heads[run_id] = replace(self._heads[run_id], hidden=True)
            else:
                self._heads.pop(run_id, None)

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        run_id = str(originator_id)
        with self._database_lock:
            index = self._stored_events_index[run_id]
            return [self._stored_events[index[version]] for version in self._span(run_id, gt, lte, desc, limit)]

    def rows(
        self,
        run_id: str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[tuple[int, str, bytes]]:
        stored = self.select_events(run_id, gt=gt, lte=lte, desc=desc, limit=limit)
        return [(event.originator_version, event.topic, event.state) for event in stored]

    @contextmanager
    def standing(self, run_id: str) -> Iterator[None]:
        """Let no run be deleted during a block. Raises IntegrityError where this one is not there."""
        with self._database_lock:
            head = self._heads.get(run_id)
            if head is None or head.hidden:
                raise IntegrityError(f"there is no run {run_id}")
            yield

    def head(self, run_id: str) -> Head | None:
        return self._heads.get(run_id)

    def heads(self) -> Sequence[Head]:
        with self._database_lock:
            return [self._heads[run_id] for run_id in sorted(self._heads)]


class _MemoryCheckpoints(_Indexed, POPOAggregateRecorder):
    def __init__(self, commits: _MemoryCommits) -> None:
        super().__init__()
        self._commits = commits

    def put(self, run_id: str, position: int, topic: str, state: bytes, replacing: Sequence[int]) -> None:
        with self._database_lock, self._commits.standing(run_id):
            for doomed in {*replacing, position} & set(self._versions[run_id]):
                self._forget(run_id, doomed)
            self.insert_events([StoredEvent(run_id, position, topic, state)])
            insort(self._versions[run_id], position)

    def _forget(self, run_id: str, position: int) -> None:
        slot = self._stored_events_index[run_id].pop(position)
        self._stored_events[slot] = StoredEvent(run_id, position, "", b"")  # keeps the other slots where they are
        self._versions[run_id].remove(position)

    def read(self, run_id: str, position: int) -> tuple[str, bytes] | None:
        with self._database_lock:
            slot = self._stored_events_index[run_id].get(position)
            return None if slot is None else (self._stored_events[slot].topic, self._stored_events[slot].state)

    def positions(self, run_id: str, *, lte: int | None = None) -> Sequence[int]:
        with self._database_lock:
            return self._span(run_id, None, lte, True, None)

    def delete(self, run_id: str, *, gte: int = 0, lte: int | None = None) -> int:
        with self._database_lock:
            doomed = [at for at in self._versions[run_id] if at >= gte and (lte is None or at <= lte)]
            for position in doomed:
                self._forget(run_id, position)
            return len(doomed)


class MemoryBackend:
    """A store that lives as long as the object. ``url`` is ``memory:``."""

    url = "memory:"

    def __init__(self, **_: Any) -> None:
        self.commits = _MemoryCommits()
        self.checkpoints = self.commits.checkpoints

    def close(self) -> None:
        """Nothing to release; the store stays readable, as its journal exists nowhere else."""
