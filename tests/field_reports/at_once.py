"""Many workers at one moment: processes for stores in files, threads for stores in memory. It must never swallow what
one of them raises."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

__all__ = ["Gate", "processes", "threads"]

PATIENCE_S = 60


class Gate(Protocol):
    """Lets the workers through when all of them have come."""

    def wait(self, timeout: float | None = None) -> int: ...


Work = Callable[[int, Gate], Any]
"""``work(number, gate)``: what one worker does; it returns plain values."""


def _body(work: Work, number: int, gate: Gate, answers: Any) -> None:
    try:
        answers.put((number, work(number, gate), None))
    except BaseException as error:
        answers.put((number, None, f"{type(error).__name__}: {error}"))


def processes(count: int, work: Work) -> list[Any]:
    """Run ``work`` in ``count`` forked processes; return what each gave. Fails when one of them raised."""
    context = multiprocessing.get_context("fork")
    gate, answers = context.Barrier(count, timeout=PATIENCE_S), context.Queue()
    workers = [context.Process(target=_body, args=(work, number, gate, answers)) for number in range(count)]
    for worker in workers:
        worker.start()
    given = [answers.get(timeout=PATIENCE_S) for _ in workers]
    for worker in workers:
        worker.join(PATIENCE_S)
    return _checked(given)


def threads(count: int, work: Work) -> list[Any]:
    """Run ``work`` in ``count`` threads; return what each gave. Fails when one of them raised."""
    gate, answers = threading.Barrier(count, timeout=PATIENCE_S), SimpleQueue[Any]()
    workers = [threading.Thread(target=_body, args=(work, number, gate, answers)) for number in range(count)]
    for worker in workers:
        worker.start()
    given = [answers.get(timeout=PATIENCE_S) for _ in workers]
    for worker in workers:
        worker.join(PATIENCE_S)
    return _checked(given)


def _checked(given: list[tuple[int, Any, str | None]]) -> list[Any]:
    given.sort(key=lambda answer: answer[0])
    assert [error for _, _, error in given if error is not None] == []
    return [answer for _, answer, _ in given]
