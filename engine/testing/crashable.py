"""A store that dies on command: at a chosen call, before it, in its midst or after it. What a crash must not lose is
what
the backend under it has taken; everything else is gone with the handles.

It wraps any backend, so a crash here is a crash of the process. What a crash of the machine may leave on disk is
another
question, and the power-loss sweep's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from engine.checkpoint import CheckpointPolicy
from engine.core.errors import BackendUnavailable
from engine.core.model import Model
from engine.open_store import Store
from engine.run import Clock, wall_clock_ms
from engine.store import Backend

__all__ = ["POINTS", "CrashableBackend", "CrashableStore", "SimulatedCrash"]

POINTS: Final = (
    "append.before",
    "append.after",
    "checkpoint.before",
    "checkpoint.torn",
    "checkpoint.after",
    "fork.before",
    "fork.after",
    "delete.before",
    "delete.after",
)
"""Where a store can be made to die: ``append.after`` is after the write and before its acknowledgement; at
``checkpoint.torn`` half of a checkpoint's bytes are left behind."""

_NEVER: Final = CheckpointPolicy(every_events=None)


class SimulatedCrash(BaseException):
    """The process died here. Not an Exception: nothing in the code under test may catch it and carry on."""


class CrashableBackend:
    """A backend that dies, or fails, at the call it is armed for. After a crash every call of this handle dies too."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.url = inner.url
        self.calls: Counter[str] = Counter()
        """How often each point was reached."""
        self.dead = False
        self._armed: tuple[str, int, bool] | None = None
        self.commits = _Commits(self, inner.commits)
        self.checkpoints = _Checkpoints(self, inner.checkpoints)

    def arm(self, point: str, call: int = 1, *, fail: bool = False) -> None:
        """Die at the ``call``-th time from now that ``point`` is reached; with ``fail`` raise BackendUnavailable there
        instead and live on."""
        assert point in POINTS, f"no such point: {point}; one of {', '.join(POINTS)}"
        self._armed = (point, self.calls[point] + call, fail)

    def disarm(self) -> None:
        """Take back what was armed."""
        self._armed = None

    def reach(self, point: str) -> bool:
        """Note that a point is reached. Raises SimulatedCrash or BackendUnavailable there when it was armed."""
        if self.dead:
            raise SimulatedCrash("this process is dead; reopen the store")
        self.calls[point] += 1
        if self._armed is None or self._armed[:2] != (point, self.calls[point]):
            return False
        fail, self._armed = self._armed[2], None
        if fail:
            raise BackendUnavailable(f"store {self.url} failed at {point} (simulated)", hint="try again")
        self.dead = True
        raise SimulatedCrash(f"crashed at {point}, call {self.calls[point]}")

    def armed_for(self, point: str) -> bool:
        """Return whether the next time that ``point`` is reached is the one."""
        return self._armed is not None and self._armed[:2] == (point, self.calls[point] + 1)

    def close(self) -> None:
        """Leave the backend under it open: it is what survives."""


class _Wrapped:
    def __init__(self, owner: CrashableBackend, inner: Any) -> None:
        self._owner = owner
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if self._owner.dead:
            raise SimulatedCrash("this process is dead; reopen the store")
        return getattr(self._inner, name)

    def _call(self, kind: str, call: Callable[[], Any]) -> Any:
        self._owner.reach(f"{kind}.before")
        result = call()
        self._owner.reach(f"{kind}.after")
        return result


# The methods take what the port's take, whatever that is in this version: only when they are called matters here.


class _Commits(_Wrapped):
    def record(self, *arguments: Any, **named: Any) -> None:
        self._call("append", lambda: self._inner.record(*arguments, **named))

    def create(self, *arguments: Any, **named: Any) -> None:
        self._call("fork", lambda: self._inner.create(*arguments, **named))

    def erase(self, *arguments: Any, **named: Any) -> None:
        self._call("delete", lambda: self._inner.erase(*arguments, **named))


class _Checkpoints(_Wrapped):
    def put(self, run_id: str, position: int, topic: str, state: bytes, *more: Any) -> None:
        self._owner.reach("checkpoint.before")
        if self._owner.armed_for("checkpoint.torn"):
            self._inner.put(run_id, position, topic, state[: len(state) // 2], *more)
        self._owner.reach("checkpoint.torn")
        self._inner.put(run_id, position, topic, state, *more)
        self._owner.reach("checkpoint.after")


class CrashableStore:
    """A store to be killed and reopened. ``store`` is the process that lives now; what it had in memory dies with it.

    ``arm("append.after")`` then a command: it raises SimulatedCrash; ``reopen()`` returns the store of a new process
    over
    what is on disk.
    """

    def __init__(
        self,
        connect: Callable[[], Backend],
        *,
        model: Model | None = None,
        clock: Clock = wall_clock_ms,
        policy: CheckpointPolicy = _NEVER,
    ) -> None:
        if model is None:
            from projections.model import MODEL

            model = MODEL
        self.model = model
        self._connect = connect
        self._clock = clock
        self._policy = policy
        self.backend = CrashableBackend(connect())
        self.store = self._opened()

    def _opened(self) -> Store:
        return Store(self.backend, self.model, self._clock, self._policy)

    def arm(self, point: str, call: int = 1, *, fail: bool = False) -> None:
        """Die at the ``call``-th time that ``point`` (one of POINTS) is reached; with ``fail`` raise BackendUnavailable
        there instead."""
        self.backend.arm(point, call, fail=fail)

    def disarm(self) -> None:
        """Take back what was armed and not reached."""
        self.backend.disarm()

    def reopen(self) -> Store:
        """Return the store of a new process; the one before is dead from now on, whether it crashed or not."""
        self.backend.dead = True
        self.backend.inner.close()
        self.backend = CrashableBackend(self._connect())
        self.store = self._opened()
        return self.store

    def beside(self, model: Model | None = None) -> Store:
        """Return the same store as another process sees it, one that is never armed."""
        return Store(self.backend.inner, model or self.model, self._clock, self._policy)

    def close(self) -> None:
        """End for good."""
        self.backend.inner.close()
