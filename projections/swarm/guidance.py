"""Guidances: what a manager tells a worker to do next. Raw ``props`` are bytes in Python and base64 in a record; they
must never be taken for text.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.core.errors import InvalidValue
from engine.core.fields import JSON, TEXT, one_of
from projections.swarm.shape import base64_bytes, copied, leaf, listed, mapped, maybe, shaped
from projections.swarm.value import Kind, RecordValue

__all__ = ["GUIDANCE", "GUIDANCE_SCOPES", "Guidance"]

GUIDANCE_SCOPES: Final = ("minimal", "self_detail", "with_team_summary", "with_team_detail", "idle")
GUIDANCE: Final = shaped(
    {},
    {
        "actions": listed(leaf(JSON)),
        "content": maybe(leaf(TEXT)),
        "props": mapped(base64_bytes),
        "exploration_target": leaf(JSON),
        "scope": leaf(one_of("guidance scope", GUIDANCE_SCOPES)),
    },
)


class Guidance(RecordValue):
    """What a manager tells a worker to do next. ``props`` are raw bytes here and base64 in the record."""

    __slots__ = ()
    KIND = Kind(
        "guidance",
        GUIDANCE,
        {"actions": [], "content": None, "props": {}, "exploration_target": None, "scope": "minimal"},
    )

    def __init__(
        self,
        actions: Iterable[Any] = (),
        content: str | None = None,
        props: Mapping[str, bytes] | None = None,
        exploration_target: Any = None,
        scope: str = "minimal",
    ) -> None:
        coded = {}
        for key, raw in (props or {}).items():
            if type(raw) is not bytes:
                raise InvalidValue(f"props.{key}", f"expected bytes, found {type(raw).__name__}")
            coded[key] = base64.b64encode(raw).decode()
        self._build(
            {
                "actions": list(actions),
                "content": content,
                "props": coded,
                "exploration_target": exploration_target,
                "scope": scope,
            }
        )

    @property
    def actions(self) -> tuple[Any, ...]:
        """The actions to take, in order: names, or objects as the manager wrote them."""
        return tuple(copied(self._get("actions")))

    @property
    def content(self) -> str | None:
        """Free text for the worker, or None."""
        found: str | None = self._get("content")
        return found

    @property
    def props(self) -> dict[str, bytes]:
        """The raw properties, in a fresh dict."""
        return {key: base64.b64decode(text) for key, text in self._get("props").items()}

    @property
    def exploration_target(self) -> Any:
        """What to explore (a JSON value), or None."""
        return copied(self._get("exploration_target"))

    @property
    def scope(self) -> str:
        """How much the worker is shown: one of GUIDANCE_SCOPES."""
        scope: str = self._get("scope")
        return scope
