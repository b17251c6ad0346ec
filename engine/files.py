"""Files that are complete or not there: how one that was written beside its place is moved into it. It must never count
a file as placed whose name a power cut could still take away."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["put_in_place"]


def put_in_place(made: Path, target: Path) -> None:
    """Give a finished file, whose bytes have been flushed, the name ``target``, durably; what was there is replaced."""
    made.replace(target)
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
