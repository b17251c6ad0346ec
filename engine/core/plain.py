"""A projection written as plain functions: what there is at first, what a command leads to, what an event does. It must
never let a function's slip reach the record: whatever they are handed is a copy, and what they return is normalised.

For states that are small. The whole state is one record, so every event costs what the state holds; a projection whose
state grows is written against :class:`~engine.core.table.Table` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from inspect import signature
from typing import Any, Final, Generic, TypeAlias, TypeVar

from engine.core.catalog import EventType, Upcast, Wire
from engine.core.codec import normalise
from engine.core.decider import Evolve, Moment
from engine.core.errors import InvalidValue
from engine.core.limits import JSON_ENTRIES_MAX
from engine.core.table import Table

__all__ = ["Draft", "PlainEvent", "PlainProjection", "PlainState"]

S = TypeVar("S")

Draft: TypeAlias = tuple[EventType | str, Mapping[str, Any]]
"""An event as a plain ``decide`` returns it: its type or name, and its data."""

_KEY: Final = "state"


@dataclass(frozen=True, slots=True)
class PlainEvent:
    """An event as a plain ``evolve`` takes it. ``data`` is a copy of its own; ``event["by"]`` reads a field."""

    name: str
    seq: int
    data: Mapping[str, Any]

    def __getitem__(self, field: str) -> Any:
        return self.data[field]


class _Whole:
    """The whole state, in its JSON form. A value is replaced, never changed, so copies may share it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def dump(self) -> list[Any]:
        return [_copied(self.value)]

    @classmethod
    def load(cls, dumped: list[Any]) -> _Whole:
        return cls(_copied(dumped[0]))


class PlainState(Generic[S]):
    """A plain projection's state as the engine holds it. ``value`` is the state itself, as a copy."""

    __slots__ = ("_initial", "_load", "table", "tables")

    def __init__(self, initial: Callable[[], Any], load: Callable[[Any], S]) -> None:
        self.table: Table[_Whole] = Table("state", _Whole)
        self.tables: tuple[Table[Any], ...] = (self.table,)
        self._initial = initial
        self._load = load

    @property
    def value(self) -> S:
        """The state as of now; a copy, to be kept and changed at will."""
        return self._load(self.form())

    def form(self) -> Any:
        """Return a copy of the state in its JSON form."""
        whole = self.table.get(_KEY)
        return self._initial() if whole is None else _copied(whole.value)

    def put(self, form: Any) -> None:
        """Replace the state by the one of this JSON form."""
        if _KEY in self.table:
            self.table.edit(_KEY).value = form
        else:
            self.table.add(_KEY, _Whole(form))

    def reindex(self) -> None:
        """Nothing is derived."""


class PlainProjection(Generic[S]):
    """A projection of three functions and a list of event types; everything else has a default.

    ``initial()`` returns the state before the first event: a JSON value, or a dataclass whose fields are JSON values.
    ``decide(state, command)`` returns drafts, ``[(event type or name, {field: value}), ...]``, empty or None when
    nothing follows, or raises Refused; it may take the moment as a third argument. ``evolve(state, event)`` returns the
    next state, or None when it changed the given one in place; it may also be a mapping from event name to function.
    ``admit(state, event)`` may refuse a fact that another runtime decided; without it every fact is taken.
    ``commands`` names the command classes, for the testing kit; left out, it finds those that name this projection.
    """

    def __init__(
        self,
        name: str,
        events: Iterable[EventType],
        *,
        initial: Callable[[], S],
        decide: Callable[..., Iterable[Draft] | None],
        evolve: Callable[[Any, PlainEvent], Any] | Mapping[str, Callable[[Any, PlainEvent], Any]],
        admit: Callable[[Any, PlainEvent], None] | None = None,
        upcasts: Iterable[Upcast] = (),
        commands: Iterable[type[Any]] | None = None,
        state_version: int = 1,
    ) -> None:
        self.name = name
        self.events = tuple(events)
        self.upcasts = tuple(upcasts)
        self.state_version = state_version
        if commands is not None:
            self.commands = tuple(commands)
        self._types = {event_type.name: event_type for event_type in self.events}
        self._initial = initial
        self._decide = decide
        self._takes_moment = len(signature(decide).parameters) > 2
        self._admit = admit
        first = initial()
        self._class: type[Any] | None = type(first) if is_dataclass(first) else None
        self.evolve: Mapping[str, Evolve] = {
            event_type.name: self._fold_of(
                event_type, evolve[event_type.name] if isinstance(evolve, Mapping) else evolve
            )
            for event_type in self.events
        }
        self._form(first)

    def initial(self) -> PlainState[S]:
        """Return the state before the first event."""
        return PlainState(lambda: self._form(self._initial()), self._value)

    def decide(self, state: PlainState[S], command: Any, moment: Moment) -> Sequence[Wire]:
        """Return the events that follow from the command; raise what the function raises, or InvalidValue when a draft
        does not fit its event."""
        drafts = self._decide(state.value, command, *((moment,) if self._takes_moment else ()))
        return [self._wire(event, data) for event, data in drafts or ()]

    def admit(self, state: PlainState[S], wire: Wire, moment: Moment) -> Sequence[Wire]:
        """Return the fact itself, unless the function refuses it."""
        if self._admit is not None:
            event_type = next(known for known in self.events if known.tag == wire[0])
            self._admit(state.value, self._event(event_type, wire, moment.seq))
        return [wire]

    def document(self, state: PlainState[S]) -> dict[str, Any]:
        """Return the state as a JSON object, for diffs."""
        form = state.form()
        return form if type(form) is dict else {_KEY: form}

    # -- between the function's values and the record's ---------------------------------------------------------------

    def _wire(self, event: EventType | str, data: Mapping[str, Any]) -> Wire:
        name = event if isinstance(event, str) else event.name
        event_type = self._types.get(name)
        if event_type is None:
            known = ", ".join(self._types)
            raise InvalidValue(name, f"no event of projection {self.name!r}", hint=f"its events: {known}")
        return event_type.check(data)

    def _fold_of(self, event_type: EventType, function: Callable[[Any, PlainEvent], Any]) -> Evolve:
        def fold(state: PlainState[S], wire: Wire, seq: int) -> None:
            value = state.value
            after = function(value, self._event(event_type, wire, seq))
            state.put(self._form(value if after is None else after))

        return fold

    @staticmethod
    def _event(event_type: EventType, wire: Wire, seq: int) -> PlainEvent:
        return PlainEvent(event_type.name, seq, {name: _copied(value) for name, value in event_type.data(wire).items()})

    def _form(self, value: Any) -> Any:
        """Return the JSON form of a state, a copy of it. Raises InvalidValue naming what JSON cannot hold."""
        if self._class is not None:
            if type(value) is not self._class:
                found = type(value).__name__
                raise InvalidValue(f"{self.name} state", f"expected {self._class.__name__}, found {found}")
            value = {field.name: getattr(value, field.name) for field in fields(value)}
        try:
            return normalise(value, entries_max=JSON_ENTRIES_MAX)
        except InvalidValue as error:
            raise error.at(f"{self.name} state") from None

    def _value(self, form: Any) -> Any:
        return form if self._class is None else self._class(**form)


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    return value
