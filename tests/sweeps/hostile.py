"""Texts of JSON and of CBOR that no honest writer would give: doubled keys, numbers without end, lone surrogates, tags,
wrong lengths, nesting. It must never take long to write one.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from tests.sweeps.mutate import Dice, paths_of, replaced

__all__ = ["cbor_bytes", "json_bytes"]

# -- JSON -------------------------------------------------------------------------------------------------------------

_MARK: Final = "here stands something that is no JSON"
_RAW: Final = (
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e-999", "9" * 400, "9" * 5_000, "-" + "9" * 4_301, "00", "01",
    "+1", ".5", "1.", "0x10", "1_000", "1E5", "-0", "-0.0", "undefined", "None", "True", "'x'", '"\\ud800"', '"\\x"',
    '"\\u0000"', '"\t"', "[" * 5_000, '{"a":' * 3_000, "[" * 60_000, "[" * 250 + "]" * 250, "[" * 480 + "]" * 480,
    "[" * 900 + "]" * 900, '{"a":' * 300 + "1" + "}" * 300, '{"a":[' * 400 + "]}" * 400, '{"a":1,"a":2}', '{"a":1,}',
    "[1,]", "[,]", "/**/1", '"\\ud83d\\ude00"', '"\\udc00\\ud800"', "1" + "0" * 300, "0." + "1" * 5_000,
    "1e" + "9" * 400, "",
)  # fmt: skip


def json_bytes(dice: Dice, value: Any, *, honest: float = 0.5) -> bytes:
    """Return a tree as the bytes of a JSON file: honest ones with this probability, else with something in them that
    JSON does not have, or should not have."""
    value = _of_json(value)
    tricky = dice.random() >= honest
    if tricky and dice.random() < 0.6:
        value = replaced(value, dice.choice(paths_of(value)), _MARK)
    text = json.dumps(value, ensure_ascii=dice.random() < 0.5, separators=dice.choice(((",", ":"), (", ", ": "))))
    text = text.replace(f'"{_MARK}"', dice.choice(_RAW))
    data = text.encode("utf-8", "surrogatepass")
    if not tricky:
        return data
    kind = dice.randrange(10)
    if kind == 0:
        return b"\xef\xbb\xbf" * dice.choice((1, 2)) + data
    if kind == 1:
        return text.encode(dice.choice(("utf-16", "utf-32", "utf-16-be")), "surrogatepass")
    if kind == 2:
        return _doubled_key(dice, data)
    if kind == 3:
        return data + dice.choice((b"\n", b"\0", b" x", data, b"\x1a", b"]"))
    if kind == 4:
        return dice.choice((b" ", b"\n\n", b"\0", b"//\n")) + data
    return data


def _of_json(value: Any) -> Any:
    """Return a tree without bytes, which JSON cannot write, and with texts as keys."""
    if type(value) is bytes:
        return value.hex()
    if type(value) is list:
        return [_of_json(item) for item in value]
    if type(value) is dict:
        return {str(key): _of_json(item) for key, item in value.items()}
    return value


def _doubled_key(dice: Dice, data: bytes) -> bytes:
    """Write one of the objects with its first key a second time."""
    starts = [at for at in range(len(data)) if data[at : at + 2] == b'{"']
    if not starts:
        return data
    at = dice.choice(starts)
    end = data.find(b'"', at + 2)
    return data[: end + 1] + b":0," + data[at + 1 :]


# -- CBOR -------------------------------------------------------------------------------------------------------------

_TAGS: Final = (
    0, 1, 2, 3, 4, 5, 21, 22, 24, 25, 27, 28, 29, 30, 32, 35, 36, 37, 64, 100, 256, 258, 260, 261, 1004, 1040, 43000,
    55799, 2**32, 2**64 - 1,
)  # fmt: skip
_LENGTHS: Final = (0, 1, 2**16, 2**20, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1)
_ITEMS: Final = (b"\xf7", b"\xe0", b"\xf8\x20", b"\xf8\x00", b"\xff", b"\xfc", b"\x1c", b"\x5f\xff", b"\xf9\x7e\x00")
"""Items that no value of ours has: undefined, simple values, an end of nothing, heads that are reserved."""
_OBJECTS: Final = (
    b"\xd8\x1b\x82\x69os.system\x81\x62id",
    b"\xd8\x23\x66(a+)+$",
    b"\xc4\x82\x1a\x7f\xff\xff\xff\x01",
    b"\xc5\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xd8\x25\x50" + bytes(16),
    b"\xd8\x1c\x81\xd8\x1d\x00",
    b"\xd9\x01\x02\x81\x00",
)
"""What some decoders make an object of: a call, a regular expression, numbers with very long exponents, a UUID, a list
that holds itself, a set."""


def cbor_bytes(dice: Dice, value: Any, *, honest: float = 0.5) -> bytes:
    """Return a tree as CBOR: honest bytes with this probability, else with tags, long heads, wrong lengths, endless
    strings and what else a reader must not take."""
    writer = _Writer(dice, 0.0 if dice.random() < honest else dice.choice((0.005, 0.05, 0.3)))
    writer.write(value, 0)
    return bytes(writer.out)


class _Writer:
    """Writes CBOR, and at any item may play a trick."""

    def __init__(self, dice: Dice, tricks: float) -> None:
        self.out = bytearray()
        self._dice, self._tricks = dice, tricks

    def write(self, value: Any, depth: int) -> None:
        trick = self._dice.random() < self._tricks
        if trick and self._play():
            return
        kind = type(value)
        if kind is int:
            self._whole(value, trick)
        elif kind is str or kind is bytes:
            raw = value.encode("utf-8", "surrogatepass") if kind is str else value
            self._string(3 if kind is str else 2, raw, trick)
        elif kind is list or kind is dict:
            self._container(value, trick, depth)
        elif kind is float:
            self._float(value, trick)
        else:
            self.out.append({None: 0xF6, True: 0xF5, False: 0xF4}[value])

    def _head(self, major: int, number: int, *, long: bool = False) -> None:
        sizes = [size for size, limit in ((0, 24), (1, 2**8), (2, 2**16), (4, 2**32), (8, 2**64)) if number < limit]
        size = self._dice.choice(sizes) if long else sizes[0]
        self.out.append(major << 5 | (number if size == 0 else {1: 24, 2: 25, 4: 26, 8: 27}[size]))
        self.out += number.to_bytes(size, "big") if size else b""

    def _whole(self, value: int, trick: bool) -> None:
        major, number = (0, value) if value >= 0 else (1, -1 - value)
        if number < 2**64:
            self._head(major, number, long=trick)
            return
        self._head(6, 2 + major)
        self._string(2, number.to_bytes((number.bit_length() + 7) // 8, "big"), trick)

    def _string(self, major: int, raw: bytes, trick: bool) -> None:
        if trick and self._dice.random() < 0.5:  # in pieces, of no stated length
            half = len(raw) // 2
            self.out.append(major << 5 | 31)
            for piece in (raw[:half], raw[half:]):
                self._head(major, len(piece))
                self.out += piece
            self.out.append(0xFF)
            return
        self._head(major, self._length(len(raw), trick), long=trick)
        self.out += raw

    def _container(self, value: Any, trick: bool, depth: int) -> None:
        major = 4 if type(value) is list else 5
        endless = trick and self._dice.random() < 0.4
        if endless:
            self.out.append(major << 5 | 31)
        else:
            self._head(major, self._length(len(value), trick), long=trick)
        for item in value if major == 4 else value.items():
            if major == 5:
                key, item = item
                self.write(key, depth + 1)
                if trick and self._dice.random() < 0.3:  # the same key once more
                    self.out.append(0)
                    self.write(key, depth + 1)
            self.write(item if depth < 450 else None, depth + 1)
        if endless:
            self.out.append(0xFF)

    def _length(self, length: int, trick: bool) -> int:
        """Return what is said of a length: the truth, unless a trick is played."""
        if not trick or self._dice.random() < 0.5:
            return length
        return self._dice.choice((length + 1, max(0, length - 1), *_LENGTHS))

    def _float(self, value: float, trick: bool) -> None:
        form, head = self._dice.choice(((">e", 0xF9), (">f", 0xFA), (">d", 0xFB))) if trick else (">d", 0xFB)
        try:
            packed = struct.pack(form, value)
        except OverflowError:
            head, packed = 0xFB, struct.pack(">d", value)
        self.out.append(head)
        self.out += packed

    def _play(self) -> bool:
        """Write something in front of an item, or in its place; return whether it was in its place."""
        dice = self._dice
        kind = dice.randrange(8)
        if kind < 2:
            self._head(6, dice.choice(_TAGS))
        elif kind == 2:
            self.out += b"\x81" * dice.choice((1, 60, 80, 1_000, 100_000))
        elif kind == 3:
            self.out += dice.choice(_ITEMS)
            return True
        elif kind == 4:
            self._head(dice.randrange(2, 6), dice.choice(_LENGTHS))
            return True
        elif kind == 5:
            self.out += dice.choice(_OBJECTS)
            return True
        return False
