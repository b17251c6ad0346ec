"""Reading a recording from outside. It must never hand on what is not one recording in plain JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from engine.adapters.kernel_recording.place import Place
from engine.core.errors import ImportRefused
from engine.core.limits import IMPORT_BYTES_MAX

__all__ = ["check", "detect", "read"]

_PIECE_BYTES: Final = 1 << 20


def detect(data: Any) -> bool:
    """Return whether this JSON value is a recording of the kernel: an object with its inputs and its answers."""
    return type(data) is dict and type(data.get("decoded_inputs")) is list and type(data.get("planned_steps")) is list


def read(source: Path | bytes) -> dict[str, Any]:
    """Return the recording in a file or in bytes. Raises ImportRefused: not readable, too large, not JSON, not one."""
    try:
        raw = source if isinstance(source, bytes) else _bytes_of(source)
        data = json.loads(raw, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except OSError as error:
        raise _refused(f"cannot read the file: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise _refused(f"not one JSON value: {error}") from None
    check(data)
    recording: dict[str, Any] = data
    return recording


def check(data: Any) -> None:
    """Raise ImportRefused unless the value is a recording with an answer to every input."""
    if not detect(data):
        raise _refused("not a kernel recording: it has no lists decoded_inputs and planned_steps")
    inputs, answers = len(data["decoded_inputs"]), len(data["planned_steps"])
    if inputs != answers:
        Place(answers, "planned_steps").refuse(f"{answers} answers to {inputs} inputs")


def _bytes_of(path: Path) -> bytes:
    raw = bytearray()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):  # not all at once: that takes memory for all that is asked for
            raw += piece
            if len(raw) > IMPORT_BYTES_MAX:
                raise ValueError(f"more than {IMPORT_BYTES_MAX} bytes (IMPORT_BYTES_MAX)")
    return bytes(raw)


def _refused(problem: str) -> ImportRefused:
    return ImportRefused(problem, [{"path": "", "rule": problem}], hint="nothing was imported")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r:.40} stands twice in one object")
    return made
