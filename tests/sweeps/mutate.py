"""Changes of what was honest: trees with something else at any place, bytes that were flipped, cut, doubled. It must
never change what it is given.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, TypeAlias

__all__ = ["Dice", "changed_bytes", "changed_tree", "odd_value", "paths_of", "pick", "replaced"]

Dice: TypeAlias = random.Random
Path: TypeAlias = tuple[str | int, ...]


def pick(dice: Dice, *choices: Callable[[], Any]) -> Any:
    """Return what one of the functions gives."""
    return dice.choice(choices)()


# -- trees ------------------------------------------------------------------------------------------------------------

_NUMBERS: Final = (
    0, 1, -1, 2, 15, 16, 17, 23, 24, 255, 256, 1000, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53,
    2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**31), -(2**63), -(2**63) - 1, -(2**64), 2**200, 10**400,
    0.0, -0.0, 0.5, 1.0, 1e16, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, True, False,
)  # fmt: skip
_TEXTS: Final = (
    "", " ", "x", "root", "r", "fetch", "0", "-1", "None", "null", "task", "task.finished", "task.finished/1",
    "swarm.metadata_set", "a\0b", "\0", "\n", "\x1b[31m", "\x7f\x85", "\ud800", "\udfff\ud800", "\U0001f600",
    "e\u0301", "\u202e", "\ufeff", "__class__", "__proto__", "../x", "%s%n", "{0}", "' OR 1=1", "$bytes", "a" * 257,
    "\u00e9" * 129, "9" * 5000, "1e999",
)  # fmt: skip
_KEYS: Final = (
    "", "id", "kind", "type", "data", "$bytes", "$map", "__class__", "py/object", "\ud800", "0", "messages", "nodes",
    "run", "seq", "x" * 300,
)  # fmt: skip


def odd_value(dice: Dice, depth: int = 0) -> Any:
    """Return a value that a reader may not expect: plain types, at their limits and past them."""
    kind = dice.random()
    if kind < 0.35:
        return dice.choice(_NUMBERS)
    if kind < 0.65:
        return dice.choice(_TEXTS)
    if kind < 0.7:
        return None
    if kind < 0.76:
        return dice.randbytes(dice.choice((0, 1, 16, 31, 32, 33)))
    if kind < 0.8 and depth == 0:
        return _nested(dice)
    if kind < 0.82:
        return "ab\u00e9"[dice.randrange(3)] * dice.choice((255, 256, 8_000, 70_000))
    if kind < 0.84:
        return [dice.choice((0, None, "x", []))] * dice.choice((2, 100, 1_025, 5_000))
    if depth > 3:
        return []
    size = dice.choice((0, 1, 1, 2, 3))
    if kind < 0.92:
        return [odd_value(dice, depth + 1) for _ in range(size)]
    return {dice.choice(_KEYS): odd_value(dice, depth + 1) for _ in range(size)}


def _nested(dice: Dice) -> Any:
    value: Any = dice.choice((0, "x", None))
    for level in range(dice.choice((3, 62, 63, 64, 65, 66, 80))):
        value = {"k": value} if level % 2 and dice.random() < 0.7 else [value]
    return value


def paths_of(value: Any, *, at_most: int = 20_000) -> list[Path]:
    """Return the paths to every value in a tree, the tree itself first, as far as so many."""
    found: list[Path] = []
    ahead: list[tuple[Path, Any]] = [((), value)]
    while ahead and len(found) < at_most:
        path, at = ahead.pop()
        found.append(path)
        inside = at.items() if type(at) is dict else enumerate(at) if type(at) is list else ()
        ahead.extend(((*path, key), item) for key, item in inside)
    return found


def replaced(value: Any, path: Path, new: Any) -> Any:
    """Return a copy of a tree with another value at a path."""
    if not path:
        return new
    made = deepcopy(value)
    at = made
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = new
    return made


def changed_tree(dice: Dice, value: Any, *, times: int | None = None) -> Any:
    """Return a copy of a tree that was changed in one place or several."""
    made = deepcopy(value)
    for _ in range(dice.choice((1, 1, 1, 2, 3)) if times is None else times):
        made = _changed_once(dice, made)
    return made


def _changed_once(dice: Dice, made: Any) -> Any:
    paths = paths_of(made)
    path = dice.choice(paths)
    at = _at(made, path)
    if not path:
        if type(at) not in (list, dict) or dice.random() < 0.1:
            return odd_value(dice)
    elif dice.random() < 0.55 or type(at) not in (list, dict):
        return _put_other(dice, made, path, at, paths)
    if type(at) is dict:
        _change_object(dice, at)
    else:
        _change_list(dice, at)
    return made


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _put_other(dice: Dice, made: Any, path: Path, at: Any, paths: list[Path]) -> Any:
    """Put something else where a value stands: an odd one, a near one, or one from another place of the tree."""
    holder, key = _at(made, path[:-1]), path[-1]
    kind = dice.random()
    if kind < 0.3 and type(at) in (int, float, str):
        holder[key] = _near(dice, at)
    elif kind < 0.5:
        holder[key] = deepcopy(_at(made, dice.choice(paths)))
    elif kind < 0.6:
        holder[key] = [at] if dice.random() < 0.5 else {dice.choice(_KEYS): at}
    elif kind < 0.7:
        del holder[key]
    else:
        holder[key] = odd_value(dice)
    return made


def _near(dice: Dice, at: Any) -> Any:
    """Return a value that is nearly this one."""
    if type(at) is str:
        return pick(
            dice, lambda: at + "x", lambda: at[:-1], lambda: at.upper(), lambda: at * 2, lambda: at[::-1],
            lambda: at.encode("utf-8", "surrogatepass"), lambda: f" {at}", lambda: at + "\0",
        )  # fmt: skip
    return pick(dice, lambda: at + 1, lambda: -at, lambda: at - 1, lambda: float(at) if abs(at) < 1e300 else at,
                lambda: f"{at}" if abs(at) < 1e300 else "", lambda: at == 0)  # fmt: skip


def _change_object(dice: Dice, at: dict[Any, Any]) -> None:
    keys = list(at)
    kind = dice.random()
    if keys and kind < 0.3:
        del at[dice.choice(keys)]
    elif keys and kind < 0.5:
        key = dice.choice(keys)
        at[str(_near(dice, key))] = at.pop(key)
    elif keys and kind < 0.6:
        dice.shuffle(keys)
        for key in keys:
            at[key] = at.pop(key)
    else:
        at[dice.choice(_KEYS)] = odd_value(dice)


def _change_list(dice: Dice, at: list[Any]) -> None:
    kind = dice.random()
    if at and kind < 0.25:
        at.pop(dice.randrange(len(at)))
    elif at and kind < 0.5:
        at.insert(dice.randrange(len(at) + 1), deepcopy(dice.choice(at)))
    elif at and kind < 0.6:
        dice.shuffle(at)
    elif at and kind < 0.65:
        at.extend(deepcopy(at[:50]) * dice.choice((1, 3, 10)))
    else:
        at.insert(dice.randrange(len(at) + 1), odd_value(dice))


# -- bytes ------------------------------------------------------------------------------------------------------------


_BYTES: Final = (0, 1, 0x1F, 0x22, 0x5B, 0x5F, 0x7B, 0x7F, 0x80, 0x9F, 0xBF, 0xC0, 0xDB, 0xF7, 0xFB, 0xFF)


def changed_bytes(dice: Dice, data: bytes, other: bytes = b"", *, times: int | None = None) -> bytes:
    """Return bytes that were changed in one place or several: flipped, cut, doubled, overwritten, put in, exchanged
    with bytes of ``other``."""
    made = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 16)) if times is None else times):
        _change_bytes(dice, made, other or data)
    return bytes(made)


def _change_bytes(dice: Dice, made: bytearray, other: bytes) -> None:
    if not made:
        made += dice.randbytes(8)
        return
    at = dice.randrange(len(made))
    length = dice.choice((1, 1, 2, 4, 8, 64, 1024))
    kind = dice.randrange(8)
    if kind == 0:
        made[at] ^= 1 << dice.randrange(8)
    elif kind == 1:
        made[at] = dice.choice(
            (0, 1, 0x1F, 0x5F, 0x7F, 0x80, 0x9F, 0xBF, 0xC0, 0xDB, 0xF7, 0xFB, 0xFF, 0x22, 0x5B, 0x7B)
        )
    elif kind == 2:
        del made[at : at + length]
    elif kind == 3:
        made[at:at] = made[at : at + length] * dice.choice((1, 2, 8))
    elif kind == 4:
        made[at:at] = dice.randbytes(length)
    elif kind == 5:
        value = dice.choice((0, 1, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1))
        made[at : at + 8] = value.to_bytes(8, dice.choice(("big", "little")))
    elif kind == 6:
        start = dice.randrange(max(1, len(other)))
        made[at : at + length] = other[start : start + length]
    else:
        del made[at:]
