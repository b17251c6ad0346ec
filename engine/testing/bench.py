"""What a restore machine stands on: its model in simulated processes, the strategies for it, and the disk that outlives
them. Worked out once a machine class."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from hypothesis.strategies import SearchStrategy, nothing

from engine.core.envelope import Group, seal_commit
from engine.core.model import Model
from engine.run import Clock
from engine.store import Backend, capture, connect
from engine.testing.crashable import CrashableStore
from engine.testing.failure import Home, home_of
from engine.testing.memory import Memory, ProcessMemory
from engine.testing.proposals import Propose, proposer_of
from engine.testing.strategies import commands, facts

__all__ = ["Bench", "Disk", "Process"]


@dataclass(slots=True)
class Process:
    """A simulated process: its copy of the model, and what the model's functions remember there."""

    model: Model
    memory: ProcessMemory


class Disk(CrashableStore):
    """A crashable store whose file, or whose memory, outlives its processes."""

    def __init__(self, kind: str, model: Model, clock: Clock) -> None:
        self._folder = (
            None if kind == "memory" else tempfile.TemporaryDirectory(prefix="refold-", ignore_cleanup_errors=True)
        )
        path = None if self._folder is None else Path(self._folder.name) / "refold.db"
        shared = connect("memory:") if path is None else None
        super().__init__(lambda: shared or _opened(path), model=model, clock=clock)

    def restart(self, model: Model) -> None:
        """End the process that lives, and open the store in one with its own copy of the model."""
        self.model = model
        self.reopen()

    def append(self, run_id: str, first: int, groups: Sequence[Group], link: bytes) -> None:
        """Write a commit as another version of the program would, past every handle."""
        stored, after = seal_commit(link, groups)
        count = sum(len(group[-1]) for group in groups)
        self.beside(self.model).journal.append(run_id, first, count, stored, after)

    def delete_checkpoint(self, run_id: str, position: int) -> None:
        """Delete one checkpoint and leave those that rest on it."""
        recorder = self.backend.inner.checkpoints
        newer = [(at, recorder.read(run_id, at)) for at in recorder.positions(run_id) if at > position]
        recorder.delete(run_id, gte=position)
        for at, found in newer:
            assert found is not None
            recorder.put(run_id, at, *found, (at,))

    def put_aged(self, run_id: str, position: int, *, on_base: bool) -> None:
        """Put a checkpoint of no records at a position, under another fingerprint of the schemas: what another version
        of the program may have left there. With ``on_base`` it continues an older one, where there is one."""
        store = self.beside(self.model)
        older = copy(self.model)
        object.__setattr__(older, "fingerprint", bytes(byte ^ 0xFF for byte in older.fingerprint))
        state = older.initial()
        state.seq = position
        link = store.journal.link_at(run_id, position)
        if link is None:  # a fork with nothing of its own yet
            link = bytes.fromhex(store.run(run_id, start="genesis").link())
        base = None
        if on_base and (below := store.checkpoints.positions(run_id, until=position - 1)):
            base_link = store.journal.link_at(run_id, below[0])
            base = None if base_link is None else (below[0], base_link)
        store.checkpoints.put(run_id, position, capture(state, run_id, link, base))

    def close(self) -> None:
        super().close()
        if self._folder is not None:
            self._folder.cleanup()


def _opened(path: Path | None) -> Backend:
    assert path is not None
    return connect(path)


class Bench:
    """What all runs of one machine class share."""

    _known: ClassVar[WeakKeyDictionary[type, Bench]] = WeakKeyDictionary()

    def __init__(self, kind: type[Any]) -> None:
        given = kind.__dict__.get("model", None) or kind.model
        assert given is not None, f"{kind.__name__} has no model: set it, or use restore_machine(model)"
        self._given = given
        self._kind: str = kind.backend
        self.model = self._made()
        self.home: Home | None = home_of(given)
        self.name = (self.home[2] if self.home else getattr(given, "name", None) or kind.__name__).lower()
        self._memory = Memory(self.model if kind.memory else Model(()))
        self.facts: SearchStrategy[Any] = kind.facts if kind.facts is not None else facts(self.model)
        self.old_facts = facts(self.model, old=True) if self.model.catalog.upcasts else None
        self.propose: Propose | None = kind.propose
        self.commands: SearchStrategy[Any] = nothing()
        if kind.propose is None:
            self.commands = kind.commands if kind.commands is not None else commands(self.model)
            if kind.commands is None:
                self.propose = proposer_of(self.model)

    @classmethod
    def of(cls, kind: type[Any]) -> Bench:
        """Return the bench of a machine class, made when it is first asked for."""
        if kind not in cls._known:
            cls._known[kind] = cls(kind)
        return cls._known[kind]

    def _made(self) -> Model:
        given = self._given
        made = given() if callable(given) and not hasattr(given, "evolve") else given
        return made if isinstance(made, Model) else Model((made,))

    def process(self) -> Process:
        """Return a process that has just started."""
        return Process(self._made(), self._memory.process())

    def disk(self, model: Model, clock: Callable[[], int]) -> Disk:
        """Return an empty disk with a store on it."""
        return Disk(self._kind, model, clock)
