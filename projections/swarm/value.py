"""The base of the swarm's small values. A value must never change after it is made, and must never hand out a list or
object that it still holds.

Each value is a view over its own record: the JSON it was read from, normalised, with unknown keys and absent keys as
they were. So what comes in goes out equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TypeAlias

from engine.core.codec import encode
from engine.core.errors import InvalidValue
from engine.core.fields import U64
from projections.swarm.shape import Shape, copied, field_of, read

__all__ = ["Kind", "RecordValue", "WorkerId", "check_worker_id"]

WorkerId: TypeAlias = int
"""A worker's number, 0..2^64-1. A bool is not one."""


def check_worker_id(value: Any, path: str = "worker") -> WorkerId:
    """Return ``value`` if it is a worker id, or raise InvalidValue naming ``path``."""
    try:
        number: int = U64.check(value)
    except InvalidValue as error:
        raise error.at(path) from None
    return number


class Kind(NamedTuple):
    """What a value is called, the shape of its record, and what an absent optional key of it means."""

    what: str
    shape: Shape
    absent: Mapping[str, Any]


class RecordValue:
    """Base of the values: immutable, equal when their records say the same, hashable."""

    __slots__ = ("_record",)

    KIND: ClassVar[Kind]

    _record: dict[str, Any]

    def _build(self, record: dict[str, Any]) -> None:
        object.__setattr__(self, "_record", field_of(self.KIND.what, self.KIND.shape).check(record))

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """Return the value of a JSON record. Raises ImportRefused naming every malformed entry by its path."""
        return cls.trusted(read(cls.KIND.what, cls.KIND.shape, record))

    @classmethod
    def trusted(cls, record: dict[str, Any]) -> Self:
        """Return the value of a record that has been checked and that nobody else will change."""
        value = cls.__new__(cls)
        object.__setattr__(value, "_record", record)
        return value

    def to_record(self) -> dict[str, Any]:
        """Return a fresh JSON record, equal to the one this value was read from."""
        record: dict[str, Any] = copied(self._record)
        return record

    def _get(self, key: str) -> Any:
        return self._record[key] if key in self._record else self.KIND.absent[key]

    def _identity(self) -> bytes:
        return encode(sorted({**self.KIND.absent, **self._record}.items()))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; build another one")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._record!r})"
