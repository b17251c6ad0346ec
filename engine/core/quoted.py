"""Quoting: how a value that somebody else gave stands in a message. It must cost nothing that follows the value's size,
and never run anything of the value: its own representation may fail, go on without end, or give a secret away.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["quoted"]

_ITEMS_MAX: Final = 40
_DEPTH_MAX: Final = 8
_BITS_MAX: Final = 256


def quoted(value: Any, chars_max: int = 60) -> str:
    """Return text that shows a value: a small plain one as Python writes it, cut to ``chars_max``; of any other one its
    type, and how much it holds."""
    kind = type(value)
    if kind is str or kind is bytes:
        return f"{value[: chars_max + 1]!r:.{chars_max}}"
    if _is_small(value):
        return f"{value!r:.{chars_max}}"
    if kind is int:
        return f"a number of {value.bit_length()} bits"
    if kind is list or kind is tuple or kind is dict:
        return f"{'an object' if kind is dict else 'a list'} of {len(value)}"
    return f"an object of type {kind.__name__}"[:chars_max]


def _is_small(value: Any) -> bool:
    """Return whether a value is plain all the way down, and little enough to be written."""
    level, seen = [value], 0
    for _ in range(_DEPTH_MAX):
        inside: list[Any] = []
        for at in level:
            kind = type(at)
            if kind is dict:
                if len(at) > _ITEMS_MAX:
                    return False
                inside += (*at, *at.values())
            elif kind is list or kind is tuple:
                inside += at[: _ITEMS_MAX + 1]
            elif kind is str or kind is bytes:
                seen += len(at) // 100
            elif kind is int:
                if at.bit_length() > _BITS_MAX:
                    return False
            elif at is not None and kind is not bool and kind is not float:
                return False
        seen += len(inside)
        if seen > _ITEMS_MAX:
            return False
        if not inside:
            return True
        level = inside
    return False
