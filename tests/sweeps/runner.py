"""Shares the time among the sweeps: worker processes, each with one chunk at a time, until the time is up. It must
never wait for a worker that hangs, nor take one that died for one that found nothing.

Whichever sweep is furthest behind its share is next. One that has reached its aim, or tried its whole round, goes on at
a quarter of its share.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeAlias

from tests.sweeps.harness import ROOT, Tally, sweep_up
from tests.sweeps.ledger import VIOLATIONS_KEPT, Ledger
from tests.sweeps.registry import Entry

__all__ = ["Chunk", "Job", "Worker", "furthest_behind", "run_chunks", "run_until"]

CHUNK_LIMIT_S: Final = 600.0
_SHARE_WHEN_DONE: Final = 0.25
_TICK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk that was tried: what came of it, and how long it took."""

    name: str
    number: int
    tally: Tally
    seconds: float


@dataclass(slots=True)
class Job:
    """A chunk that is being tried."""

    name: str
    number: int
    at_most: int | None
    began: float


Show: TypeAlias = Callable[[Chunk | None, Sequence[Job]], None]
"""What is told of each finished chunk, and of None once a second; and of what is going on."""


class Worker:
    """A process that runs chunks, made anew after it died. Its children belong to its process group."""

    def __init__(self, errors: IO[bytes]) -> None:
        self._errors = errors
        self.job: Job | None = None
        self._said = b""
        self._start()

    def _start(self) -> None:
        self._said = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sweeps.worker", "--serve"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # ^C is for the runner; and what the worker forks dies with it
        )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def output(self) -> IO[bytes]:
        """What it answers on."""
        assert self._process.stdout is not None
        return self._process.stdout

    def give(self, name: str, number: int, at_most: int | None) -> None:
        """Let it try a chunk."""
        self.job = Job(name, number, at_most, time.monotonic())
        told = json.dumps({"sweep": name, "number": number, "at_most": at_most})
        assert self._process.stdin is not None
        self._process.stdin.write(told.encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Chunk | None:
        """Return the chunk that is finished, once it is. One that killed its process is finished, and a violation."""
        piece = os.read(self.output.fileno(), 1 << 20)
        self._said += piece
        job = self.job
        if not piece:
            status = self._end()
            self._start()
            assert job is not None, f"a worker ended by itself ({status}) while it had nothing to do"
            return self._failed(job, f"the process ended with {_named(status)}")
        if job is None or not self._said.endswith(b"\n"):
            return None
        answer, self._said, self.job = json.loads(self._said), b"", None
        return Chunk(job.name, job.number, Tally.from_json(answer["tally"]), answer["seconds"])

    def given_up(self) -> Chunk:
        """End a process whose chunk goes on for ever; the chunk is finished, and a violation."""
        job = self.job
        assert job is not None
        self._end()
        self._start()
        return self._failed(job, f"it did not end within {CHUNK_LIMIT_S:.0f} s")

    def _failed(self, job: Job, what: str) -> Chunk:
        self.job = None
        tally = Tally(violations=[f"{job.name} chunk {job.number}: {what}"])
        return Chunk(job.name, job.number, tally, time.monotonic() - job.began)

    def stop(self) -> None:
        """End it, whatever it is doing."""
        self.job = None
        self._end()

    def _end(self) -> int:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        return status


def _named(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit code {status}"


def run_until(
    entries: Sequence[Entry],
    ledger: Ledger,
    deadline: float,
    stop_after: int | None,
    cores: int,
    show: Show,
) -> None:
    """Try chunks of the sweeps until ``deadline`` on the monotonic clock, or so many chunks, and keep each in the
    ledger."""
    begun = 0
    busy: dict[str, set[int]] = {entry.name: set() for entry in entries}

    def next_of(jobs: Sequence[Job]) -> tuple[str, int] | None:
        nonlocal begun
        entry = furthest_behind(entries, ledger, jobs, deadline)
        if entry is None or begun == stop_after:
            return None
        begun += 1
        number = ledger.of(entry.name).free(busy[entry.name])
        busy[entry.name].add(number)
        return entry.name, number

    def done(chunk: Chunk) -> None:
        busy[chunk.name].discard(chunk.number)
        ledger.keep(chunk.name, chunk.number, chunk.tally, chunk.seconds)

    _work(next_of, done, deadline, None, cores, ledger.folder, show)


def run_chunks(
    chunks: Sequence[tuple[str, int]], at_most: int | None, cores: int, folder: Path, show: Show
) -> list[Chunk]:
    """Try these chunks and no others, however long it takes; nothing is kept. ``folder`` takes what the workers say."""
    left = list(reversed(chunks))
    tried: list[Chunk] = []
    _work(lambda _: left.pop() if left else None, tried.append, float("inf"), at_most, cores, folder, show)
    return tried


def _work(
    next_of: Callable[[Sequence[Job]], tuple[str, int] | None],
    done: Callable[[Chunk], None],
    deadline: float,
    at_most: int | None,
    cores: int,
    folder: Path,
    show: Show,
) -> None:
    sweep_up()
    folder.mkdir(exist_ok=True)
    # Where the workers complain: tracebacks of processes that were killed belong to the trade.
    with (folder / "workers.log").open("wb") as errors, selectors.DefaultSelector() as selector:
        workers = [Worker(errors) for _ in range(cores)]
        try:
            while time.monotonic() < deadline:
                for worker in workers:
                    if worker.job is None and (found := next_of(_jobs(workers))) is not None:
                        worker.give(*found, at_most)
                working = [worker for worker in workers if worker.job is not None]
                if not working:
                    return
                for worker in _answering(selector, working, deadline):
                    if (chunk := worker.hear()) is not None:
                        done(chunk)
                        show(chunk, _jobs(workers))
                for worker in working:
                    if worker.job is not None and time.monotonic() - worker.job.began > CHUNK_LIMIT_S:
                        chunk = worker.given_up()
                        done(chunk)
                        show(chunk, _jobs(workers))
                show(None, _jobs(workers))
        finally:
            for worker in workers:
                worker.stop()
            sweep_up()


def _jobs(workers: Sequence[Worker]) -> list[Job]:
    return [worker.job for worker in workers if worker.job is not None]


def _answering(selector: selectors.BaseSelector, workers: Sequence[Worker], deadline: float) -> list[Worker]:
    """Wait a second at most; return the workers that have said something."""
    for worker in workers:
        selector.register(worker.output, selectors.EVENT_READ, worker)
    try:
        patience = max(0.0, min(_TICK_S, deadline - time.monotonic()))
        return [key.data for key, _ in selector.select(patience)]
    finally:
        for worker in workers:
            selector.unregister(worker.output)


def furthest_behind(entries: Sequence[Entry], ledger: Ledger, jobs: Sequence[Job], deadline: float) -> Entry | None:
    """Return the sweep that has used the smallest part of its share, of those whose next chunk should still fit."""
    now = time.monotonic()
    best: tuple[float, Entry] | None = None
    for entry in entries:
        tried = ledger.of(entry.name)
        running = [now - job.began for job in jobs if job.name == entry.name]
        usual = tried.seconds / tried.chunks if tried.chunks else 0.0
        if now + usual > deadline or tried.broken >= VIOLATIONS_KEPT:
            continue
        share = entry.sweep.weight * (_SHARE_WHEN_DONE if _is_done(entry, ledger) else 1.0)
        used = (tried.seconds + sum(running) + len(running)) / share
        if best is None or used < best[0]:
            best = used, entry
    return None if best is None else best[1]


def _is_done(entry: Entry, ledger: Ledger) -> bool:
    tried, round_size = ledger.of(entry.name), entry.sweep.round_size
    if entry.aim is not None:
        return tried.points >= entry.aim
    return round_size is not None and tried.done_of(round_size) == round_size
