"""Hypothesis strategies of what a model takes and holds: field values, event data, commands, states, whole journals.
They
must never make what the model itself would not accept as a value; whether it is legal now, the model decides.

Ids and numbers come from small pools most of the time, so that what is drawn has to do with what was drawn before.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import getclosurevars, isfunction
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic.fields import FieldInfo

from engine.core.catalog import EventType
from engine.core.command import CommandModel
from engine.core.decider import Projection
from engine.core.errors import EngineError
from engine.core.fields import FieldType
from engine.core.limits import I64_MIN, TIME_MS_MAX, U32_MAX, U64_MAX
from engine.core.model import Model

__all__ = [
    "Fact",
    "command_classes",
    "commands",
    "event_data",
    "facts",
    "field_values",
    "from_samples",
    "ids",
    "json_values",
    "register_field_type",
    "register_parameter",
]

Fact: TypeAlias = tuple[str, dict[str, Any]]
"""An event by name, with its data: what ``run.ingest`` takes."""

Lazy: TypeAlias = SearchStrategy[Any] | Callable[[], SearchStrategy[Any]]

POOL: Final = ("a", "b", "c", "root")

# -- plain values -----------------------------------------------------------------------------------------------------

_texts: Final = st.text("ab0 _/.\n\x00ü\u2028\U0001f600", max_size=6)
_names: Final = st.sampled_from(("a", "a", "a", *POOL))  # one of them more often: things happen to what there is
_odd_ids: Final = st.sampled_from(["a/b", "ü", "x" * 256, " a", "0", "{}", "\U0001f600"])


def ids() -> SearchStrategy[str]:
    """Return ids: mostly from a pool of four, now and then one that programs like to stumble over."""
    return st.integers(0, 15).flatmap(lambda die: _odd_ids if die == 15 else _names)


def texts() -> SearchStrategy[str]:
    """Return texts; most are of the pool of ids, for names are often texts."""
    return st.integers(0, 7).flatmap(lambda die: _texts if die == 7 else _names)


def integers(low: int, high: int) -> SearchStrategy[int]:
    """Return whole numbers of a range, small ones mostly."""
    small = st.integers(low if low > -1 else max(low, -1), min(high, max(low, -1) + 4))
    return st.integers(0, 7).flatmap(lambda die: st.integers(low, high) if die == 7 else small)


def floats(low: float | None = None, high: float | None = None) -> SearchStrategy[float]:
    """Return finite floats without -0.0, which is stored as 0.0."""
    drawn = st.floats(low, high, allow_nan=False, allow_infinity=False)
    return drawn.map(lambda number: number + 0.0)


_scalars: Final = st.none() | st.booleans() | st.integers(I64_MIN, U64_MAX) | floats() | texts()


def json_values(max_leaves: int = 6) -> SearchStrategy[Any]:
    """Return JSON values as fields of type JSON take them."""
    return st.recursive(
        _scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
        max_leaves=max_leaves,
    )


def json_objects() -> SearchStrategy[dict[str, Any]]:
    """Return JSON objects."""
    return st.dictionaries(_texts, json_values(4), max_size=3)


# -- fields -----------------------------------------------------------------------------------------------------------

_field_types: dict[str, Lazy] = {
    "id": ids,
    "text": texts,
    "u32": lambda: integers(0, U32_MAX),
    "u64": lambda: integers(0, U64_MAX),
    "time_ms": lambda: integers(0, TIME_MS_MAX),
    "bool": st.booleans,
    "float": floats,
    "float 0..1": lambda: floats(0.0, 1.0),
    "float >= 0": lambda: floats(0.0),
    "bytes": lambda: st.binary(max_size=8),
    "json": json_values,
    "json object": json_objects,
}
_parameters: dict[tuple[str, str, str], Lazy] = {}


def register_field_type(label: str, strategy: Lazy) -> None:
    """Say how values of a field type of your own are made: by a strategy, or a function that returns one. By label."""
    _field_types[label] = strategy


def register_parameter(projection: str, command: str, parameter: str, strategy: Lazy) -> None:
    """Say how one parameter of a command is made, where its type alone says too little."""
    _parameters[projection, command, parameter] = strategy


def from_samples(*samples: Any) -> SearchStrategy[Any]:
    """Return a strategy that picks one of these values, for :func:`register_field_type`."""
    assert samples, "give at least one sample"
    return st.sampled_from(samples)


def field_values(kind: FieldType) -> SearchStrategy[Any]:
    """Return the values that a field type takes, as they are stored. Raises LookupError for a type of your own that was
    never registered."""
    return _raw(kind).map(_kept(kind))


def _kept(kind: FieldType) -> Callable[[Any], Any]:
    def keep(value: Any) -> Any:
        try:
            return kind.check(value)
        except EngineError:
            reject()

    return keep


def _raw(kind: FieldType) -> SearchStrategy[Any]:
    """Return values for a type's check: by its label, by what it was made of, by the shape behind it."""
    _load_domain()
    known = _field_types.get(kind.label)
    if known is not None:
        return known if isinstance(known, SearchStrategy) else known()
    arguments: tuple[Any, ...] = getattr(kind, "arguments", ())
    if arguments and all(type(argument) is str for argument in arguments):
        return st.sampled_from(arguments)
    if arguments and kind.label.endswith(" or null"):
        return st.none() | _raw(arguments[0])
    if arguments and kind.label.startswith("list of "):
        unique = repr if arguments[1:] == ("unique",) else None
        return st.lists(_raw(arguments[0]), max_size=3, unique_by=unique)
    shape = getattr(getattr(kind, "check", None), "__self__", None)
    if shape is not None and all(hasattr(key, "type") for key in getattr(shape, "keys", None) or (0,)):
        return _of_shape(shape.keys)
    raise LookupError(
        f"no strategy for field type {kind.label!r}: "
        "engine.testing.register_field_type(label, engine.testing.from_samples(...)) says how its values are made"
    )


def _of_shape(keys: Sequence[Any]) -> SearchStrategy[dict[str, Any]]:
    """Return JSON records of declared keys, optional ones there or not."""
    required = {key.name: _raw(key.type) for key in keys if _takes_no_absence(key)}
    optional = {key.name: _raw(key.type) for key in keys if key.name not in required}
    return st.fixed_dictionaries(required, optional=optional)


def _takes_no_absence(key: Any) -> bool:
    return type(key.default) is object  # the marker of a required key


# -- events -----------------------------------------------------------------------------------------------------------


def event_data(event_type: EventType) -> SearchStrategy[dict[str, Any]]:
    """Return ``{field: value}`` of an event, every value one that its field takes."""
    return st.fixed_dictionaries({field.name: field_values(field.type) for field in event_type.fields})


def facts(model: Model, *, old: bool = False) -> SearchStrategy[Fact]:
    """Return events of every projection as (name with version, data); with ``old`` those of superseded versions."""
    types = [step.old for step in model.catalog.upcasts] if old else [e for p in model.projections for e in p.events]
    data = {event_type: event_data(event_type) for event_type in types}

    @st.composite
    def fact(draw: st.DrawFn) -> Fact:
        event_type = draw(st.sampled_from(types))
        return event_type.label, draw(data[event_type])

    return fact()


# -- commands ---------------------------------------------------------------------------------------------------------


def command_classes(projection: Projection) -> list[type[CommandModel]]:
    """Return the commands of a projection: those it names in ``commands``, else every class that says it belongs to it
    and lives in the same package. In order of definition."""
    named: Iterable[type[CommandModel]] | None = getattr(projection, "commands", None)
    if named is not None:
        return list(named)
    home = _package_of(projection)
    return [
        kind
        for kind in _descendants(CommandModel)
        if getattr(kind, "projection", None) == projection.name
        and "name" in kind.__dict__
        and (home is None or kind.__module__.partition(".")[0] == home)
    ]


def _package_of(projection: Projection) -> str | None:
    decide = getattr(projection, "_decide", projection.decide)
    module = getattr(decide, "__module__", None)
    return None if module is None else module.partition(".")[0]


def _descendants(kind: type[Any]) -> list[type[Any]]:
    found: dict[type[Any], None] = {}
    for child in kind.__subclasses__():
        found[child] = None
        found.update(dict.fromkeys(_descendants(child)))
    return list(found)


def commands(source: Model | Projection | type[CommandModel]) -> SearchStrategy[CommandModel]:
    """Return commands of a model, of a projection or of one class, built by ``make``. Raises LookupError where there
    are
    none, or a parameter's type tells nothing."""
    if isinstance(source, type):
        return _built(source)
    projections = source.projections if isinstance(source, Model) else (source,)
    classes = [kind for projection in projections for kind in command_classes(projection)]
    if not classes:
        raise LookupError("no command class names these projections: give the projection a tuple 'commands'")
    built = {kind: _built(kind) for kind in classes}
    return st.sampled_from(classes).flatmap(built.__getitem__)


def _built(kind: type[CommandModel]) -> SearchStrategy[CommandModel]:
    required: dict[str, SearchStrategy[Any]] = {}
    optional: dict[str, SearchStrategy[Any]] = {}
    for name, info in kind.model_fields.items():
        (required if info.is_required() else optional)[name] = _parameter(kind, name, info)
    arguments = st.fixed_dictionaries(required, optional=optional)

    @st.composite
    def built(draw: st.DrawFn) -> CommandModel:
        try:
            return kind.make(**draw(arguments))
        except EngineError:
            reject()

    return built()


def _parameter(kind: type[CommandModel], name: str, info: FieldInfo) -> SearchStrategy[Any]:
    """Return values for one parameter: as registered, as the event's field of the same name, as its validator's field
    type, as its annotation."""
    _load_domain()
    known = _parameters.get((kind.projection, kind.name, name))
    if known is not None:
        return known if isinstance(known, SearchStrategy) else known()
    event = getattr(kind, "event", None)
    if isinstance(event, EventType) and name in event.names:
        values = _raw(event.fields[event.names.index(name)].type)
        return st.none() | values if name in getattr(kind, "filled_in", ()) else values
    return _of_annotation(info.annotation, info.metadata, f"{kind.__name__}.{name}")


def _of_annotation(annotation: Any, metadata: Sequence[Any], where: str) -> SearchStrategy[Any]:
    for validator in metadata:
        if (field_type := _field_type_in(validator)) is not None:
            return _raw(field_type)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _of_annotation(arguments[0], arguments[1:], where)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([_of_annotation(argument, (), where) for argument in arguments])
    if annotation is int:
        return integers(*_bounds(metadata))
    if origin in (list, tuple) and arguments:
        return st.lists(_of_annotation(arguments[0], (), where), max_size=3).map(origin)
    simple = _ANNOTATIONS.get(origin or annotation) if _hashable(annotation) else None
    if simple is None:
        hint = "engine.testing.register_parameter says how it is made"
        raise LookupError(f"{where}: no strategy for {annotation!r}; {hint}")
    return simple()


def _bounds(metadata: Sequence[Any]) -> tuple[int, int]:
    """Return the range that an integer's metadata (``Field(ge=1)``) leaves."""
    low = [m.ge for m in metadata if hasattr(m, "ge")] + [m.gt + 1 for m in metadata if hasattr(m, "gt")]
    high = [m.le for m in metadata if hasattr(m, "le")] + [m.lt - 1 for m in metadata if hasattr(m, "lt")]
    return max([I64_MIN, *low]), min([U64_MAX, *high])


_ANNOTATIONS: Final[Mapping[Any, Callable[[], SearchStrategy[Any]]]] = {
    str: texts,
    bool: st.booleans,
    float: floats,
    bytes: lambda: st.binary(max_size=8),
    type(None): st.none,
    None: st.none,
    Any: json_values,
    object: json_values,
    dict: json_objects,
    list: lambda: st.lists(json_values(3), max_size=3),
}


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _field_type_in(validator: Any) -> FieldType | None:
    """Return the field type that a pydantic validator was made from: commands check their values by the types of the
    events they lead to."""
    function = getattr(validator, "func", None)
    if not isfunction(function):
        return None
    for value in getclosurevars(function).nonlocals.values():
        if hasattr(value, "label") and hasattr(value, "check"):
            kind: FieldType = value
            return kind
    return None


def _load_domain() -> None:
    """Load what refold knows of its own projections' types, once; it registers itself."""
    from engine.testing import domain

    domain.register()
