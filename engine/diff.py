"""Diff: what changed between two states, as rows with field paths and as a JSON Patch that provably turns one into the
other. It must never take two values of different types for the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from engine.core.json_patch import Operation, apply_patch, patch_between, same

__all__ = ["Change", "Diff", "below", "diff"]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: ``kind`` of record (tasks, contexts, ...), its ``id``, the ``path`` in it (empty: the whole
    record), before and after."""

    kind: str
    id: str
    what: Literal["added", "removed", "changed"]
    path: str
    before: Any
    after: Any

    def to_json(self) -> dict[str, Any]:
        """Return the change for ``--json``."""
        return {
            "kind": self.kind,
            "id": self.id,
            "what": self.what,
            "path": self.path,
            "before": self.before,
            "after": self.after,
        }


@dataclass(frozen=True, slots=True)
class Diff:
    """All differences of two documents. ``patch`` is RFC 6902; ``proved`` says that patching the first gave the
    second."""

    changes: tuple[Change, ...]
    patch: tuple[Operation, ...]
    proved: bool

    def __bool__(self) -> bool:
        return bool(self.patch)


def diff(before: dict[str, Any], after: dict[str, Any]) -> Diff:
    """Return the difference of two documents (:func:`engine.documents.document`, or a foreign state of the same
    form)."""
    patch = tuple(patch_between(before, after))
    changes = []
    for kind in dict.fromkeys((*before, *after)):
        old, new = before.get(kind, {}), after.get(kind, {})
        for key in dict.fromkeys((*old, *new)):
            if key not in new:
                changes.append(Change(kind, key, "removed", "", old[key], None))
            elif key not in old:
                changes.append(Change(kind, key, "added", "", None, new[key]))
            else:
                changes.extend(_fields(kind, key, "", old[key], new[key]))
    return Diff(tuple(changes), patch, same(apply_patch(before, patch), after))


def below(path: str, name: str) -> str:
    """Return the path of a key inside ``path``; a key that would read like a path itself stands quoted in brackets."""
    if not name or any(char in '.[]"' for char in name):
        return f"{path}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{path}.{name}" if path else name


def _fields(kind: str, key: str, path: str, old: Any, new: Any) -> list[Change]:
    """Return the changed fields of a record, by paths as people write them: ``waiting_on[1]``,
    ``process.join_result``."""
    if type(old) is dict and type(new) is dict:
        found = []
        for name in dict.fromkeys((*old, *new)):
            inner = below(path, name)
            if name not in new:
                found.append(Change(kind, key, "removed", inner, old[name], None))
            elif name not in old:
                found.append(Change(kind, key, "added", inner, None, new[name]))
            else:
                found.extend(_fields(kind, key, inner, old[name], new[name]))
        return found
    if type(old) is list and type(new) is list and len(old) == len(new):
        return [
            change
            for index, (left, right) in enumerate(zip(old, new, strict=True))
            for change in _fields(kind, key, f"{path}[{index}]", left, right)
        ]
    return [] if same(old, new) else [Change(kind, key, "changed", path, old, new)]
