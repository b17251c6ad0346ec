"""Times and positions as people write them, and the options that take them. It must never read a clock, nor the time
zone of the machine: a time without a zone is UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import click

from engine.app.shell import POSITION
from engine.core.limits import TIME_MS_MAX

if TYPE_CHECKING:
    from engine.open_store import Store

    _ParamType = click.ParamType[int]
else:
    _ParamType = click.ParamType

__all__ = ["TIME", "Time", "Where", "moment_options", "parse_time", "parse_where", "position_in"]

F = TypeVar("F", bound=Callable[..., Any])

Rounding = Literal["down", "up"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_DIGITS_MAX: Final = 18  # more are no time, and Python would take long to read them


def parse_time(text: str, rounding: Rounding = "down") -> int:
    """Return a time in Unix milliseconds: digits are Unix milliseconds already, everything else is ISO 8601, in UTC
    when it names no zone.

    A time between two milliseconds is rounded. Raises ValueError saying what is wrong.
    """
    if text.isascii() and text.isdigit():
        at_ms = int(text) if len(text) <= _DIGITS_MAX else TIME_MS_MAX + 1
    else:
        try:
            moment = datetime.fromisoformat(text)
            since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
        except (ValueError, OverflowError):
            raise ValueError(
                f"{text!r:.60} is neither Unix milliseconds nor ISO 8601, e.g. 2026-05-01T12:00 (UTC) or "
                "2026-05-01T12:00+02:00"
            ) from None
        at_ms = since // _MS if rounding == "down" else -(-since // _MS)
    if not 0 <= at_ms <= TIME_MS_MAX:
        raise ValueError(f"{text!r:.60} is outside the times that can be recorded: 1970 to 2^53-1 ms")
    return at_ms


class Where(NamedTuple):
    """A place in a run: a position, or a time, or (both None) its end."""

    at: int | None = None
    at_time: int | None = None


def parse_where(text: str) -> Where:
    """Return the place that a word names: digits are a position, ``now`` the end, everything else an ISO 8601 time.

    Raises ValueError saying what is wrong.
    """
    if text == "now":
        return Where()
    if text.isascii() and text.isdigit():
        if len(text) > _DIGITS_MAX:
            raise ValueError(f"{text!r:.60} is no position: it is longer than any run")
        return Where(at=int(text))
    return Where(at_time=parse_time(text))


class Time(_ParamType):
    """A time on the command line, as Unix milliseconds."""

    name = "time"

    def __init__(self, rounding: Rounding = "down") -> None:
        self.rounding: Rounding = rounding

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds, or fail as wrong usage."""
        if isinstance(value, int):
            return value
        try:
            return parse_time(value, self.rounding)
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME: Final = Time()


def moment_options(function: F) -> F:
    """Add ``--at N`` and ``--at-time TIME``, which exclude each other (as ``at`` and ``at_time``)."""
    at = click.option("--at", type=POSITION, metavar="N", help="As of event N (0: before the first). Default: now.")
    at_time = click.option(
        "--at-time",
        type=TIME,
        metavar="TIME",
        help="As of a time: Unix milliseconds or ISO 8601, UTC without a zone.",
    )
    return at(at_time(function))


def position_in(store: Store, run: str, at: int | None, at_time: int | None) -> int | None:
    """Return the position that ``--at`` or ``--at-time`` names, None for neither. Raises NotFound, CorruptJournal."""
    if at is not None and at_time is not None:
        raise click.UsageError("--at and --at-time exclude each other")
    if at_time is None:
        return at
    from engine.moments import position_at

    return position_at(store.journal, run, at_time)
