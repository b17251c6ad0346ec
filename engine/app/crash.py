"""Kills a writer in mid-run: starts one in a process of its own, listens to what it acknowledges, and sends SIGKILL.
It must never ask the writer to stop: a process that is asked can tidy up."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engine.core.errors import BackendUnavailable

__all__ = ["Crash", "go_on", "kill_in_mid_run"]

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Crash:
    """What the world saw of a writer that was killed: the positions it acknowledged, and how its process ended."""

    acknowledged: tuple[int, ...]
    exit_code: int


def kill_in_mid_run(store: Path, run_id: str, *, after: int) -> Crash:
    """Start a writer on a run, kill it once it has acknowledged ``after`` positions, return all that it acknowledged.

    Raises BackendUnavailable when the writer ends by itself or says nothing for a minute.
    """
    with _writer(store, run_id) as writer:
        said = []
        for line in writer.said:
            said.append(line)
            if len(said) == after:
                writer.process.kill()  # what it says until it is dead is read by going on
        if len(said) < after:
            raise writer.failed()
        exit_code = writer.process.wait()
    return Crash(tuple(int(line) for line in said if line.endswith("\n")), exit_code)


def go_on(store: Path, run_id: str, *, steps: int) -> int:
    """Let another writer take ``steps`` steps on the run; return the last position that it acknowledged."""
    with _writer(store, run_id, str(steps)) as writer:
        said = list(writer.said)
        if writer.process.wait() or len(said) != steps:
            raise writer.failed()
    return int(said[-1])


@dataclass(frozen=True, slots=True)
class _Writer:
    process: subprocess.Popen[str]
    said: IO[str]
    problems: IO[str]

    def failed(self) -> BackendUnavailable:
        """Return the error for a writer that did not do its work, with the last line of what it complained about."""
        self.problems.seek(0)
        last = self.problems.read().strip().splitlines()[-1:] or ["it said nothing"]
        return BackendUnavailable(f"the writer process failed: {last[0]}", hint="try again; if it stays, report it")


@contextmanager
def _writer(store: Path, run_id: str, *more: str) -> Iterator[_Writer]:
    """Run a writer process that does not outlive the block."""
    # It finds this very package wherever it is run, and nothing that the current folder happens to call "engine".
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    with tempfile.TemporaryFile("w+") as problems:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "engine.app.writer", str(store), run_id, *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=problems,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        watch = threading.Timer(PATIENCE_S, process.kill)
        watch.daemon = True
        watch.start()
        assert process.stdout is not None
        try:
            with process.stdout:
                yield _Writer(process, process.stdout, problems)
        finally:
            watch.cancel()
            process.kill()
            process.wait()
