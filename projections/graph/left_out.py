"""Which optional keys a record does not have, and leaving them out of it again. It must never leave out a key that says
something: what a record lacks reads as a default, and only that default is left out.

A path names a key of a node's record, or of a record inside it: ``network_scope``, ``recovery.state_injection``,
``attempts.0.agent``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from projections.graph.fields import (
    ATTEMPT_SHAPE,
    GRAPH_SHAPE,
    NODE_SHAPE,
    OUTCOME_SHAPE,
    OVER,
    PREDICATE_SHAPE,
    RECOVERY_SHAPE,
    REQUIRED,
    RESULT_SHAPE,
    TIMEOUT_SHAPE,
    Shape,
)

__all__ = ["NEWER_KEYS", "is_graph_key", "is_path", "left_out_of_graph", "left_out_of_node", "without"]

NEWER_KEYS: Final = ("attempts", "cause", "recovery", "routed_from", "tainted_by", "timeout")
"""Keys that the seed's record does not have; a node made here writes them when they hold something."""

_INSIDE: Final[Mapping[str, Shape]] = {
    "result": RESULT_SHAPE,
    "verify_predicate": PREDICATE_SHAPE,
    "predicate_outcome": OUTCOME_SHAPE,
    "timeout": TIMEOUT_SHAPE,
    "recovery": RECOVERY_SHAPE,
}
_ATTEMPTS: Final = "attempts"


def left_out_of_node(data: Any) -> tuple[str, ...]:
    """Return the paths of the optional keys that a node's record does not have, in order."""
    if type(data) is not dict:
        return ()
    paths = list(_missing(NODE_SHAPE, data))
    for name, shape in _INSIDE.items():
        paths += [f"{name}.{key}" for key in _missing(shape, data.get(name))]
    attempts = data.get(_ATTEMPTS)
    for place, attempt in enumerate(attempts if isinstance(attempts, Sequence) else ()):
        paths += [f"{_ATTEMPTS}.{place}.{key}" for key in _missing(ATTEMPT_SHAPE, attempt)]
    return tuple(sorted(paths))


def left_out_of_graph(data: Any) -> tuple[str, ...] | None:
    """Return the optional keys that a graph's record does not have, in order; None for one that is written as a graph
    made here would be: everything is there, and the outcome when it is over."""
    missing = tuple(sorted(_missing(GRAPH_SHAPE, data)))
    told = type(data) is dict and data.get("status") in OVER
    return None if missing == (() if told else ("outcome",)) else missing


def _missing(shape: Shape, data: Any) -> Iterable[str]:
    if type(data) is dict:
        yield from (key.name for key in shape.keys if key.default is not REQUIRED and key.name not in data)


def is_graph_key(name: str) -> bool:
    """Return whether a name is that of an optional key of a graph's record."""
    return any(key.name == name and key.default is not REQUIRED for key in GRAPH_SHAPE.keys)


def is_path(path: str) -> bool:
    """Return whether a path names an optional key of a node's record."""
    name, _, rest = path.partition(".")
    shape: Shape | None = _INSIDE.get(name)
    if name == _ATTEMPTS and rest:
        place, _, rest = rest.partition(".")
        shape = ATTEMPT_SHAPE if place.isascii() and place.isdigit() else None
    if not rest:
        return name in _DEFAULTS
    return shape is not None and any(key.name == rest and key.default is not REQUIRED for key in shape.keys)


_DEFAULTS: Final = {key.name: key.default for key in NODE_SHAPE.keys if key.default is not REQUIRED}


def without(record: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Return a node's record, changed in place: the keys at these paths are gone where they hold their default."""
    for path in paths:
        name, _, rest = path.partition(".")
        if not rest:
            if name in record and _says_nothing(record, name):
                del record[name]
            continue
        inner, shape = record.get(name), _INSIDE.get(name)
        if name == _ATTEMPTS:
            place, _, rest = rest.partition(".")
            inner = inner[int(place)] if inner is not None and int(place) < len(inner) else None
            shape = ATTEMPT_SHAPE
        if shape is not None and isinstance(inner, dict) and rest in inner:
            default = next((key.default for key in shape.keys if key.name == rest), REQUIRED)
            if _same(inner[rest], default):
                del inner[rest]
    return record


def _says_nothing(record: Mapping[str, Any], name: str) -> bool:
    """Whether a key of a node holds its default, or the attempt that an import makes up for a node that runs."""
    value = record[name]
    if name == _ATTEMPTS and len(value) == 1 and record.get("status") == "running":
        told = {key: held for key, held in value[0].items() if held is not None}
        made_up = {"number": 1, "agent": record.get("assigned_agent")}
        return told == {key: held for key, held in made_up.items() if held is not None}
    return _same(value, _DEFAULTS[name])


def _same(value: Any, default: Any) -> bool:
    return bool(value == (list(default) if isinstance(default, tuple) else default))
