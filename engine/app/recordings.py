"""The recorded runs that travel with refold, for the demonstration and for trying things out. It must never be
anything but data: they are read like any other file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

__all__ = ["recorded_runs"]


def recorded_runs() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name, recording) of every kernel run in the package, in order of name."""
    folder = files("engine.app") / "data" / "kernel-runs"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".json"):
            yield entry.name.removesuffix(".json"), json.loads(entry.read_text(encoding="utf-8"))
