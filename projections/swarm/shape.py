"""The shapes of swarm records: checks that walk a JSON value, name every fault by its path and return a normalised
copy.
A shape must never coerce, never drop an unknown key, and never stop at the first fault.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from engine.core.errors import ImportRefused, InvalidValue
from engine.core.fields import JSON, TEXT, Checked, FieldType
from engine.core.limits import U64_MAX
from engine.core.quoted import quoted
from projections.swarm.rules import RULE_TEXTS

__all__ = [
    "Faults",
    "Shape",
    "base64_bytes",
    "copied",
    "field_of",
    "leaf",
    "listed",
    "mapped",
    "maybe",
    "ordered",
    "read",
    "shaped",
    "worker_key",
]

SHOWN_CHARS_MAX: Final = 60


class Faults:
    """The faults found so far, in the order of the walk. Each says where, what was found, the name of the rule that it
    breaks, and in words how."""

    def __init__(self) -> None:
        self.found: list[dict[str, str]] = []

    def add(self, path: str, value: Any, rule: str, text: str) -> None:
        """Note a fault at ``path``."""
        assert rule in RULE_TEXTS
        self.found.append({"path": path, "value": quoted(value, SHOWN_CHARS_MAX), "rule": rule, "text": text})


Shape: TypeAlias = Callable[[Any, str, Faults], Any]
"""``shape(value, path, faults)`` returns a normalised copy, or anything at all after it has noted a fault."""


def below(path: str, key: str) -> str:
    """Return the path of ``key`` inside ``path``."""
    return f"{path}.{key}" if path else key


def leaf(kind: FieldType) -> Shape:
    """Return the shape of a value that a field type of the core checks."""

    def check(value: Any, path: str, faults: Faults) -> Any:
        try:
            return kind.check(value)
        except InvalidValue as error:
            inner = error.path.removeprefix(".")
            joined = path + inner if not inner or inner.startswith("[") else below(path, inner)
            faults.add(joined, value, "swarm.field", error.problem)
            return None

    return check


def maybe(inner: Shape) -> Shape:
    """Return the shape that also takes null."""
    return lambda value, path, faults: None if value is None else inner(value, path, faults)


def listed(inner: Shape, entries_max: int | None = None) -> Shape:
    """Return the shape of a list of ``inner``, in order."""

    def check(value: Any, path: str, faults: Faults) -> list[Any]:
        if type(value) is not list:
            faults.add(path, value, "swarm.field", f"expected a list, found {type(value).__name__}")
            return []
        if entries_max is not None and len(value) > entries_max:
            faults.add(path, len(value), "swarm.entries_max", f"more than {entries_max} entries")
            return []
        return [inner(item, f"{path}[{index}]", faults) for index, item in enumerate(value)]

    return check


def mapped(inner: Shape, key: Shape | None = None, entries_max: int | None = None) -> Shape:
    """Return the shape of an object with free keys; ``key`` checks them beyond being text."""

    def check(value: Any, path: str, faults: Faults) -> dict[str, Any]:
        if type(value) is not dict:
            faults.add(path, value, "swarm.field", f"expected an object, found {type(value).__name__}")
            return {}
        if entries_max is not None and len(value) > entries_max:
            faults.add(path, len(value), "swarm.entries_max", f"more than {entries_max} entries")
            return {}
        result = {}
        for name, item in value.items():
            if not _is_key(name, path, faults):
                continue
            here = below(path, name)
            if key is not None:
                key(name, here, faults)
            result[name] = inner(item, here, faults)
        return ordered(result)

    return check


def shaped(required: Mapping[str, Shape], optional: Mapping[str, Shape]) -> Shape:
    """Return the shape of an object with known keys. Unknown keys are kept; absent optional ones stay absent."""

    def check(value: Any, path: str, faults: Faults) -> dict[str, Any]:
        if type(value) is not dict:
            faults.add(path, value, "swarm.field", f"expected an object, found {type(value).__name__}")
            return {}
        for name in required:
            if name not in value:
                faults.add(below(path, name), None, "swarm.missing", "is missing")
        result = {}
        for name, item in value.items():
            if _is_key(name, path, faults):
                inner = required.get(name) or optional.get(name) or _ANY
                result[name] = inner(item, below(path, name), faults)
        return ordered(result)

    return check


def _is_key(name: Any, path: str, faults: Faults) -> bool:
    try:
        TEXT.check(name)
    except InvalidValue as error:
        faults.add(f"{path}.<key {name!r:.40}>", name, "swarm.key", error.problem)
        return False
    return True


_ANY: Final = leaf(JSON)


def worker_key(value: Any, path: str, faults: Faults) -> None:
    """Note a fault unless the key is a worker id as JSON writes it: decimal digits, no sign, no leading zero, u64."""
    plain = value.isascii() and value.isdigit() and (value == "0" or value[0] != "0") and len(value) <= 20
    if not plain or int(value) > U64_MAX:
        said = "expected a worker id as the key: decimal digits without a leading zero, at most 2^64-1"
        faults.add(path, value, "swarm.worker_key", said)


def _base64(value: Any) -> str:
    text: str = TEXT.check(value)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = None
    if raw is None or base64.b64encode(raw).decode() != text:
        raise InvalidValue("", "expected bytes as padded standard base64")
    return text


base64_bytes: Final = leaf(Checked("bytes as base64", _base64))


def ordered(value: dict[str, Any]) -> dict[str, Any]:
    """Return the object with its keys in the order of their encoded bytes, the one form the codec keeps."""
    return dict(sorted(value.items(), key=lambda pair: (len(raw := pair[0].encode()), raw)))


def copied(value: Any) -> Any:
    """Return a copy of a plain value that shares no list or object with it."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) is list:
        return [copied(item) for item in value]
    return value


def field_of(label: str, shape: Shape) -> Checked:
    """Return the event field type of a shape. Its check raises InvalidValue at the first fault and says how many
    follow."""

    def check(value: Any) -> Any:
        faults = Faults()
        result = shape(value, "", faults)
        if faults.found:
            first, more = faults.found[0], len(faults.found) - 1
            raise InvalidValue(first["path"], first["text"] + (f" (and {more} more faults)" if more else ""))
        return result

    return Checked(label, check)


def read(what: str, shape: Shape, record: Any) -> Any:
    """Return the normalised copy of a record from outside. Raises ImportRefused naming every fault at once."""
    faults = Faults()
    result = shape(record, "", faults)
    refuse(what, faults)
    return result


def refuse(what: str, faults: Faults) -> None:
    """Raise ImportRefused when there are faults."""
    if faults.found:
        first = faults.found[0]
        count = len(faults.found)
        said = f"{first['path'] or 'value'}: {first['text']} [{first['rule']}]"
        raise ImportRefused(
            f"{what} breaks {count} rule{'s' if count > 1 else ''}; first: {said}",
            faults.found,
            hint="every fault is listed in the violations; nothing was imported",
        )
