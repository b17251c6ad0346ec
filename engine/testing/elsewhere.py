"""Another world: a run replayed in a fresh process with another hash seed, clock, time zone, locale and random seed.
What
the model is there must be what it is here, or it depends on something that is not in the journal.

One worker process is kept for the whole session and forks a child for every question, so each answer comes from a
process
in which nothing has happened yet.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.core.codec import encode
from engine.testing.failure import Home
from engine.testing.strategies import POOL
from engine.testing.twin import Answer, Asked, Twin

__all__ = ["Elsewhere", "Report", "replay_elsewhere"]

_CLOCK_SHIFT_S: Final = 400 * 86_400 + 7 * 3_600 + 1_234.5


@dataclass(frozen=True, slots=True)
class Route:
    """What another process made of a run by one route: the state's bytes, and what it would answer next."""

    name: str
    state: bytes
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What another process made of a run, by every route: folded from the first event, and from checkpoints that it
    took half-way and at the end. ``error`` is what went wrong there instead."""

    routes: tuple[Route, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A run to replay: where its model lives, its commits as CBOR, where to take a checkpoint, what to ask in the
    end."""

    home: Home
    run_id: str
    commits: bytes
    asked: bytes


class Elsewhere:
    """The worker process. Use :func:`replay_elsewhere`, which keeps one."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        environment = {
            **os.environ,
            "PYTHONHASHSEED": _other_hash_seed(),
            "TZ": "Pacific/Chatham",
            "LC_ALL": "C",
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", "")))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "engine.testing.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._send((list(sys.path), _CLOCK_SHIFT_S))

    def ask(self, question: Question) -> Report:
        """Return what the other process makes of a run. Raises BrokenPipeError when it is gone."""
        self._send(question)
        assert self._process.stdout is not None
        report: Report = pickle.load(self._process.stdout)
        return report

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        pickle.dump(message, self._process.stdin)
        self._process.stdin.flush()

    def close(self) -> None:
        """End the worker."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait()


def _other_hash_seed() -> str:
    """Return a hash seed under which small sets of the strategies' ids mostly come in another order than here."""
    pairs = [(one, other) for one in POOL for other in POOL if one < other]
    orders = f"print([list({{*pair}}) for pair in {pairs!r}])"
    here = repr([list({*pair}) for pair in pairs])

    def unlike(seed: str) -> int:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        there = subprocess.run([sys.executable, "-S", "-c", orders], env=environment, capture_output=True, text=True)
        return sum(one != other for one, other in zip(here, there.stdout, strict=False))

    return max(("1", "2", "3", "4", "5"), key=unlike)


_worker: tuple[int, Elsewhere] | None = None


def replay_elsewhere(home: Home, twin: Twin, asked: Sequence[Asked]) -> Report:
    """Return what a fresh process makes of a twin's run, and what it would answer next."""
    global _worker
    try:
        questions = pickle.dumps(list(asked))
    except Exception:  # commands of a class that another process cannot find: the states are compared all the same
        questions = pickle.dumps([])
    question = Question(home, twin.run_id, encode(twin.commits), questions)
    if _worker is None or _worker[0] != os.getpid():
        _worker = (os.getpid(), Elsewhere())
        atexit.register(_worker[1].close)
    try:
        return _worker[1].ask(question)
    except (EOFError, OSError):
        _worker[1].close()
        _worker = None
        return Report(error="the other process died")
