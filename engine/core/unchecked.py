"""Values that nobody has checked, before they are handed to the encoder. It follows nesting until the process dies, and
writes what it is given without an end. Nothing here must ever run anything of a value: no method, no representation.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any, Final

from engine.core.errors import InvalidValue, LimitExceeded
from engine.core.limits import COMMIT_BYTES_MAX, COMMIT_ITEMS_MAX, ENCODED_DEPTH_MAX, I64_MIN, U64_MAX

__all__ = ["fault_in", "refuse_unplain"]

_TOO_DEEP: Final = f"cannot be kept exactly: nested deeper than {ENCODED_DEPTH_MAX} levels, or a cycle"
_HINT: Final = "plain values only: None, bool, int, float, str, bytes, list, dict with str keys"


def refuse_unplain(value: Any, path: str) -> None:
    """Raise InvalidValue for what is nested too deeply, holds itself, or holds what is no plain value, naming its
    place; LimitExceeded for more items or text than any commit holds. What passes can be encoded safely."""
    level, count, size = [value], 0, 0
    for _ in range(ENCODED_DEPTH_MAX + 1):
        inside: list[Any] = []
        for at in level:
            kind = type(at)
            if kind is str or kind is bytes:
                size += len(at)
                continue
            if kind is list or kind is tuple:
                inside += at
            elif kind is dict:
                for key, item in at.items():
                    if type(key) is not str:
                        raise _refusal(value, path)
                    inside += (key, item)
            elif kind is int:
                if not I64_MIN <= at <= U64_MAX:
                    raise _refusal(value, path)
            elif at is not None and kind is not float and kind is not bool:
                inside += _inside(at, path, value)
        count += len(inside)
        if count > COMMIT_ITEMS_MAX:
            raise LimitExceeded("COMMIT_ITEMS_MAX", count, COMMIT_ITEMS_MAX)
        if size > COMMIT_BYTES_MAX:
            raise LimitExceeded("COMMIT_BYTES_MAX", size, COMMIT_BYTES_MAX)
        if not inside:
            return
        level = inside
    raise _refusal(value, path)


def _inside(at: Any, path: str, whole: Any) -> Iterator[Any]:
    """Yield what stands in a value of a type of somebody's own: that of a container of theirs, nothing in a scalar."""
    if _problem(at) is not None:
        raise _refusal(whole, path)
    kind = type(at)
    if issubclass(kind, dict):
        yield from (dict(dict.items(at)),)
    elif issubclass(kind, list):
        yield from list.__iter__(at)
    elif issubclass(kind, tuple):
        yield from tuple.__iter__(at)


def _refusal(value: Any, path: str) -> InvalidValue:
    return fault_in(value, path) or InvalidValue(path, _TOO_DEEP, hint=_HINT)


def fault_in(value: Any, path: str) -> InvalidValue | None:
    """Return the refusal of the first value inside of another that is not plain, with its place; None when all are."""
    ahead: list[tuple[str, Any, int]] = [(path, value, 0)]
    seen = 0
    while ahead and seen <= COMMIT_ITEMS_MAX:
        place, at, depth = ahead.pop()
        seen += 1
        problem = _problem(at)
        if problem is not None:
            return InvalidValue(place, f"cannot be kept exactly: {problem}", hint=_HINT)
        kind = type(at)
        if issubclass(kind, list | tuple | dict) and depth >= ENCODED_DEPTH_MAX:
            return InvalidValue(place, _TOO_DEEP, hint=_HINT)
        if issubclass(kind, dict):
            for key in dict.keys(at):
                if type(key) is not str or _problem(key) is not None:
                    shown = f"{key!r:.40}" if type(key) is str else type(key).__name__
                    return InvalidValue(f"{place}.<key {shown}>", "cannot be kept exactly: a key is a text", hint=_HINT)
            ahead += [(f"{place}.{key}", item, depth + 1) for key, item in reversed(dict.items(at))]
        elif issubclass(kind, list | tuple):
            items = list(list.__iter__(at) if issubclass(kind, list) else tuple.__iter__(at))
            ahead += [(f"{place}[{index}]", item, depth + 1) for index, item in reversed([*enumerate(items)])]
    return None


def _problem(at: Any) -> str | None:
    """Return what keeps a value from being kept, whatever it holds inside."""
    kind = type(at)
    if issubclass(kind, str):
        try:
            str.encode(at)
        except UnicodeEncodeError:
            return "text holds a lone surrogate, which has no UTF-8 form"
    elif issubclass(kind, int) and not I64_MIN <= int.__index__(at) <= U64_MAX:
        return "integer outside -2^63 .. 2^64-1"
    elif not issubclass(kind, str | int | float | bytes | NoneType | list | tuple | dict):
        return f"{kind.__module__}.{kind.__qualname__} is no plain value"
    return None
