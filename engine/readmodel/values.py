"""How values become cells, and cells values again. A cell must never hold less than the value: what SQLite cannot hold
as it is, it holds in another form that gives it back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.archive import to_json
from engine.readmodel.shape import Kind

__all__ = ["as_json", "cell", "cells", "data_as_json", "json_or_null", "value_of"]

_I64_MAX: Final = 2**63 - 1
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def cell(value: Any) -> Any:
    """Return what to store for a value: itself, but a whole number above 2^63-1 as its digits and a ``u``.

    Bare digits would not do: in a column of integers SQLite turns them into a float, and loses some.
    """
    return f"{value}u" if type(value) is int and value > _I64_MAX else value


def cells(row: Iterable[Any]) -> list[Any]:
    """Return :func:`cell` of every value."""
    return [f"{value}u" if type(value) is int and value > _I64_MAX else value for value in row]


def as_json(value: Any) -> str:
    """Return a JSON value as compact text."""
    return _ENCODE(value)


def data_as_json(data: Mapping[str, Any]) -> str:
    """Return the fields of an event as compact text, in the form that exports have: bytes are ``{"$bytes": base64}``,
    and what only looks like that is wrapped."""
    try:
        text = _ENCODE(data)
    except TypeError:  # there are bytes in it
        return _ENCODE(to_json(data))
    return _ENCODE(to_json(data)) if '"$bytes"' in text or '"$map"' in text else text


def json_or_null(value: Any) -> str | None:
    """Return a JSON value as text; None, which stands for nothing there, as NULL."""
    return None if value is None else as_json(value)


def value_of(stored: Any, kind: Kind) -> Any:
    """Return the value that a cell of a column holds."""
    if stored is None:
        return None
    if kind == "json":
        return json.loads(stored)
    if kind == "bool":
        return bool(stored)
    if kind == "whole" and type(stored) is str:
        return int(stored.removesuffix("u"))
    return stored
