"""Writers in processes of their own, to be killed. What a writer was told is acknowledged goes through a pipe, which
outlives it; nothing else is believed."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Acknowledge", "Writer"]

_RECORD = struct.Struct("<qq")

Acknowledge = Callable[[int, int], None]
"""``acknowledge(first, count)``: the events first..first+count-1 were acknowledged."""


class Writer:
    """A forked process that runs ``work(acknowledge)`` and may be killed at any moment."""

    def __init__(self, work: Callable[[Acknowledge], None]) -> None:
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self._reading)
                work(lambda first, count: _tell(writing, first, count))
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)

    def kill_after(self, seconds: float) -> list[tuple[int, int]]:
        """Kill the process after a while; return what it was told is acknowledged, as (first, count)."""
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGKILL)
        return self._end(signal.SIGKILL)

    def wait(self) -> list[tuple[int, int]]:
        """Wait until the work is done; return what was acknowledged. Fails when the work did."""
        return self._end(None)

    def _end(self, expected: int | None) -> list[tuple[int, int]]:
        told = b""
        with os.fdopen(self._reading, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(self.pid, 0)
        if expected is None or not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0, "the writer failed; its traceback is above"
        whole = len(told) // _RECORD.size * _RECORD.size
        return [(first, count) for first, count in _RECORD.iter_unpack(told[:whole])]


def _tell(pipe: int, first: int, count: int) -> None:
    os.write(pipe, _RECORD.pack(first, count))


def no_file_left(path: Path) -> None:
    """Remove a store with everything SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
