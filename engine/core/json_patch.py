"""JSON Patch (RFC 6902): the difference of two JSON values as add, remove and replace operations, and how to apply
them.

Values are compared with their types: ``true`` is not ``1`` and ``1`` is not ``1.0``. Patching A with
``patch_between(A, B)`` gives B.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from engine.core.errors import InvalidValue

__all__ = ["Operation", "Pointer", "apply_patch", "patch_between", "pointer", "same"]

Operation: TypeAlias = dict[str, Any]
Pointer: TypeAlias = tuple[str | int, ...]


def same(a: Any, b: Any) -> bool:
    """Return whether two JSON values are equal in type and value at every level."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def pointer(path: Pointer) -> str:
    """Return a path as a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def parse_pointer(text: str) -> list[str]:
    """Return the steps of a JSON Pointer. Raises InvalidValue."""
    if text and not text.startswith("/"):
        raise InvalidValue(text, "a JSON Pointer is empty or starts with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def patch_between(a: Any, b: Any, path: Pointer = ()) -> Iterator[Operation]:
    """Yield the operations that turn ``a`` into ``b``, in an order in which they apply."""
    if type(a) is dict and type(b) is dict:
        for key in a:
            if key not in b:
                yield {"op": "remove", "path": pointer((*path, key))}
        for key, value in b.items():
            if key not in a:
                yield {"op": "add", "path": pointer((*path, key)), "value": value}
            else:
                yield from patch_between(a[key], value, (*path, key))
    elif type(a) is list and type(b) is list:
        yield from _between_lists(a, b, path)
    elif not same(a, b):
        yield {"op": "replace", "path": pointer(path), "value": b}


def _between_lists(a: Sequence[Any], b: Sequence[Any], path: Pointer) -> Iterator[Operation]:
    """As patch_between for lists: what both begin and end with stays; the middle is changed pairwise, then cut or
    extended."""
    start = 0
    while start < len(a) and start < len(b) and same(a[start], b[start]):
        start += 1
    end = 0
    while end < len(a) - start and end < len(b) - start and same(a[-1 - end], b[-1 - end]):
        end += 1
    middle_a, middle_b = a[start : len(a) - end], b[start : len(b) - end]
    shared = min(len(middle_a), len(middle_b))
    for index in range(shared):
        yield from patch_between(middle_a[index], middle_b[index], (*path, start + index))
    for index in range(len(middle_a) - 1, shared - 1, -1):
        yield {"op": "remove", "path": pointer((*path, start + index))}
    for index in range(shared, len(middle_b)):
        yield {"op": "add", "path": pointer((*path, start + index)), "value": middle_b[index]}


def apply_patch(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return a copy of ``document`` with the operations applied. Raises InvalidValue naming the operation that does
    not apply."""
    result = _copied(document)
    for number, operation in enumerate(operations):
        try:
            result = _applied(result, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            where = f"operation[{number}]"
            raise InvalidValue(
                where, f"{operation.get('op')} {operation.get('path')} does not apply: {error}"
            ) from error
    return result


def _applied(document: Any, operation: Mapping[str, Any]) -> Any:
    kind = operation["op"]
    if kind not in ("add", "remove", "replace"):
        raise ValueError(f"unknown operation {kind!r}")
    steps = parse_pointer(operation["path"])
    value = None if kind == "remove" else _copied(operation["value"])
    if not steps:
        return value
    parent = document
    for step in steps[:-1]:
        parent = parent[_index(parent, step)] if type(parent) is list else parent[step]
    last = steps[-1]
    if type(parent) is list:
        index = len(parent) if last == "-" and kind == "add" else _index(parent, last, adding=kind == "add")
        if kind == "add":
            parent.insert(index, value)
        elif kind == "remove":
            del parent[index]
        else:
            parent[index] = value
    elif kind == "remove":
        del parent[last]
    else:
        if kind == "replace" and last not in parent:
            raise KeyError(last)
        parent[last] = value
    return document


def _index(items: Sequence[Any], step: str, *, adding: bool = False) -> int:
    if not step.isdigit() or (len(step) > 1 and step[0] == "0"):
        raise ValueError(f"{step!r} is not an index")
    index = int(step)
    if index >= len(items) + (1 if adding else 0):
        raise IndexError(f"index {index} of {len(items)}")
    return index


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    return value
