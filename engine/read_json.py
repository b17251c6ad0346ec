"""JSON from outside: one exact value, or a refusal. It must never take one of two equal keys for the other, nor a
number that JSON does not have."""

from __future__ import annotations

import codecs
import json
from typing import IO, Any, Final

from engine.core.errors import ImportRefused
from engine.core.limits import IMPORT_BYTES_MAX

__all__ = ["read_all", "read_json"]

_PIECE_BYTES: Final = 1 << 20


def read_all(file: IO[bytes], name: str, *, first: bytes = b"") -> bytes:
    """Return ``first`` and the rest of a file, read piece by piece: asked for many bytes at once, Python takes memory
    for all of them, whatever the file holds. Raises ImportRefused once it is too large."""
    pieces, size = [first], len(first)
    while size <= IMPORT_BYTES_MAX and (piece := file.read(_PIECE_BYTES)):
        pieces.append(piece)
        size += len(piece)
    if size > IMPORT_BYTES_MAX:
        raise _too_large(name)
    return b"".join(pieces)


def read_json(raw: bytes, name: str) -> Any:
    """Return the JSON value in bytes. Raises ImportRefused: too large, not UTF-8, not one value, a key twice, NaN."""
    if len(raw) > IMPORT_BYTES_MAX:
        raise _too_large(name)
    try:
        text = raw.removeprefix(codecs.BOM_UTF8).decode()
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise refused(f"{name} is not UTF-8 text: {error.reason}") from None
    except (ValueError, RecursionError) as error:
        raise refused(f"{name} is not one JSON value: {error}") from None


def refused(problem: str, *, hint: str = "nothing was imported") -> ImportRefused:
    """Return the refusal of a file as a whole."""
    return ImportRefused(problem, [{"path": "", "problem": problem}], hint=hint)


def _too_large(name: str) -> ImportRefused:
    return refused(f"{name} holds more than {IMPORT_BYTES_MAX} bytes (IMPORT_BYTES_MAX)")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r:.40} stands twice in one object")
    return made
