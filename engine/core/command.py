"""Commands at the boundary: frozen pydantic models in strict mode, the one place where a caller's values are validated.

Replay never comes here. A command must never hold a clock reading or a made-up id; the shell puts time and actor into
the Moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from engine.core.errors import InvalidValue

__all__ = ["CommandModel", "invalid", "listed"]


class CommandModel(BaseModel):
    """Base of all commands. A subclass names its ``projection`` and its ``name`` (imperative, ``spawn``) as class
    variables."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)

    projection: ClassVar[str]
    name: ClassVar[str]

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Build the command, or raise InvalidValue naming the first bad field by its path."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise invalid(error, cls.name) from None

    def content(self) -> Any:
        """Return what makes two commands the same, as plain values in field order."""
        return [getattr(self, field) for field in type(self).model_fields]


def invalid(error: ValidationError, what: str) -> InvalidValue:
    """Return a pydantic error as InvalidValue: path to the first bad field, and how many more there are."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    first = errors[0]
    path = what
    for step in first["loc"]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return InvalidValue(path, f"{first['msg']}{more}")


def listed(value: Any, path: str) -> list[Any]:
    """Return the items of a caller's sequence, in its order. Raises InvalidValue for what has no items, or none in an
    order that is the same everywhere: a text, a mapping, a set."""
    if isinstance(value, str | bytes | bytearray | Mapping | Set) or not isinstance(value, Iterable):
        raise InvalidValue(path, f"expected a list, found {type(value).__name__}")
    return list(value)
