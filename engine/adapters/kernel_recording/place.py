"""A place in a recording: a value and the path that leads to it. It must never let a value through that is not of the
type that was asked for; every refusal names the step and the path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NoReturn

from engine.core.errors import ImportRefused, InvalidValue
from engine.core.fields import check_id
from engine.core.limits import TIME_MS_MAX, U32_MAX, U64_MAX

__all__ = ["Place"]

SHOWN_CHARS_MAX: Final = 60


def shown(value: Any) -> str:
    """Return a value for a message, at a cost that does not follow its size."""
    if type(value) is str:
        return repr(value[:SHOWN_CHARS_MAX])
    if type(value) is dict or type(value) is list:
        return f"{'an object' if type(value) is dict else 'a list'} of {len(value)}"
    if type(value) is int and value.bit_length() > 128:
        return "a huge number"
    return f"{value!r:.{SHOWN_CHARS_MAX}}"


class Place:
    """One value of a recording. Reading it is checking it."""

    __slots__ = ("path", "step", "value")

    def __init__(self, value: Any, path: str, step: int | None = None) -> None:
        self.value, self.path, self.step = value, path, step

    def refuse(self, problem: str, hint: str = "") -> NoReturn:
        """Raise ImportRefused about this place."""
        where = "" if self.step is None else f"step {self.step}: "
        violation = {
            "step": self.step,
            "path": self.path,
            "value": shown(self.value),
            "rule": problem,
        }
        raise ImportRefused(f"{where}{self.path}: {problem}", [violation], hint=hint or "nothing of it was imported")

    def find(self, key: str) -> Place | None:
        """Return the place of a key, or None when it is absent or null. Refuses anything but an object."""
        if type(self.value) is not dict:
            self.refuse(f"expected an object, found {type(self.value).__name__}")
        value = self.value.get(key)
        return None if value is None else Place(value, f"{self.path}.{key}", self.step)

    def at(self, key: str) -> Place:
        """Return the place of a key that must be there."""
        found = self.find(key)
        if found is None:
            self.refuse(f"{key} is missing")
        return found

    def items(self) -> Iterator[Place]:
        """Yield the places of a list."""
        if type(self.value) is not list:
            self.refuse(f"expected a list, found {type(self.value).__name__}")
        for index, value in enumerate(self.value):
            yield Place(value, f"{self.path}[{index}]", self.step)

    def items_of(self, key: str) -> Iterator[Place]:
        """Yield the places of a list under a key that may be absent."""
        found = self.find(key)
        if found is not None:
            yield from found.items()

    def text(self) -> str:
        """Return the value, which must be text."""
        if type(self.value) is not str:
            self.refuse(f"expected text, found {type(self.value).__name__}")
        return self.value

    def text_of(self, key: str, default: str = "") -> str:
        """Return the text under a key that may be absent."""
        found = self.find(key)
        return default if found is None else found.text()

    def id(self) -> str:
        """Return the value, which must be an id."""
        try:
            return check_id(self.value)
        except InvalidValue as error:
            self.refuse(error.problem)

    def kind(self) -> str:
        """Return the text under ``kind``."""
        return self.at("kind").text()

    def decimal(self, maximum: int) -> int:
        """Return a number the kernel writes as decimal text: digits only, no leading zero."""
        text = self.text()
        plain = text.isascii() and text.isdigit() and len(text) <= 20 and (text == "0" or text[0] != "0")
        if not plain or int(text) > maximum:
            self.refuse(f"expected a decimal number up to {maximum}, without sign or leading zero")
        return int(text)

    def tokens_of(self, key: str) -> int:
        """Return the token count under a key that may be absent."""
        found = self.find(key)
        return 0 if found is None else found.decimal(U64_MAX)

    def turns_of(self, key: str) -> int:
        """Return the turn count under a key that may be absent."""
        found = self.find(key)
        if found is None:
            return 0
        if type(found.value) is not int or not 0 <= found.value <= U32_MAX:
            found.refuse(f"expected a whole number up to {U32_MAX}")
        return found.value

    def time(self) -> int:
        """Return a time in Unix milliseconds."""
        return self.decimal(TIME_MS_MAX)
