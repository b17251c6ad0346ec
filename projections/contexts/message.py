"""Messages: what was said in a conversation, tagged by role. A message must never change once it is recorded.

Each has two plain forms. ``to_json`` is the record's JSON, field names as in the contract. ``dump`` is the array that
events and state hold: ``[role, ts, ...]`` with the role as a number and trailing defaults left out; a null ``ts``
stands for the time of the event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self, TypeAlias

from engine.core.fields import BOOL, JSON, TEXT, U64, Checked, list_of, one_of, optional
from projections.contexts.tokens import MESSAGE_OVERHEAD, compact, text_tokens, value_tokens
from projections.contexts.values import JsonObject, ObjectReader, array_of, copy_json, trimmed

__all__ = [
    "ASSISTANT",
    "MESSAGE",
    "NOTE",
    "ROLES",
    "SYSTEM",
    "TOOL",
    "USER",
    "AssistantMsg",
    "Msg",
    "NoteMsg",
    "SystemMsg",
    "ToolCall",
    "ToolMsg",
    "UserMsg",
    "body_tokens",
    "load_message",
    "message_array",
    "read_message",
]

ROLES: Final = ("system", "user", "assistant", "tool", "note")
SYSTEM, USER, ASSISTANT, TOOL, NOTE = range(5)
_ROLE: Final = one_of("role", ROLES)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an assistant made: ``arguments`` is a JSON value; ``extra`` holds keys this version does not know."""

    id: str
    name: str
    arguments: Any
    extra: JsonObject | None = None

    def to_json(self) -> JsonObject:
        """Return the call as the record's JSON."""
        return {"id": self.id, "name": self.name, "arguments": copy_json(self.arguments), **copy_json(self.extra or {})}

    def dump(self) -> list[Any]:
        """Return the call as an array."""
        return trimmed([self.id, self.name, copy_json(self.arguments), copy_json(self.extra)], None)

    @classmethod
    def load(cls, dumped: Sequence[Any]) -> ToolCall:
        """Return the call of an array that :meth:`dump` wrote."""
        return cls(*copy_json(dumped))


def _read_call(value: Any) -> ToolCall:
    reader = ObjectReader(value, "a tool call")
    return ToolCall(reader.take("id", TEXT), reader.take("name", TEXT), reader.take("arguments", JSON), reader.extra())


_CALLS: Final = list_of(Checked("tool call", _read_call))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What every message has. ``ts`` is Unix milliseconds; None means the time of the command that records it."""

    ts: int | None = None
    extra: JsonObject | None = None

    role: ClassVar[str]

    def at(self, at_ms: int) -> Self:
        """Return the message with ``at_ms`` for its time when it has none of its own."""
        return self if self.ts is not None else replace(self, ts=at_ms)

    def _json(self, **parts: Any) -> JsonObject:
        shape = {"role": self.role, **parts, **copy_json(self.extra or {})}
        if self.ts is not None:
            shape["ts"] = self.ts
        return shape


@dataclass(frozen=True, slots=True)
class _Text(_Base):
    text: str

    number: ClassVar[int]

    def to_json(self) -> JsonObject:
        """Return the message as the record's JSON."""
        return self._json(text=self.text)

    def dump(self) -> list[Any]:
        """Return the message as an array."""
        return trimmed([self.number, self.ts, self.text, copy_json(self.extra)], None)

    def est_tokens(self) -> int:
        """Return the token estimate: the text, and what every message costs."""
        return text_tokens(self.text) + MESSAGE_OVERHEAD


class SystemMsg(_Text):
    """An instruction to the model."""

    __slots__ = ()
    role = "system"
    number = SYSTEM

    def to_wire(self) -> JsonObject:
        """Return the provider-neutral form."""
        return {"role": "system", "text": self.text}


class NoteMsg(_Text):
    """A note of the runtime; the model sees it as a system message."""

    __slots__ = ()
    role = "note"
    number = NOTE

    def to_wire(self) -> JsonObject:
        """Return the provider-neutral form, a system message prefixed ``[note] ``."""
        return {"role": "system", "text": f"[note] {self.text}"}


@dataclass(frozen=True, slots=True)
class UserMsg(_Base):
    """What a caller said; ``principal`` names the caller."""

    text: str
    principal: str | None = None

    role = "user"

    def to_json(self) -> JsonObject:
        """Return the message as the record's JSON; no principal, no key."""
        return self._json(text=self.text, **_present(principal=self.principal))

    def to_wire(self) -> JsonObject:
        """Return the provider-neutral form."""
        return {"role": "user", "text": self.text}

    def dump(self) -> list[Any]:
        """Return the message as an array."""
        return trimmed([USER, self.ts, self.text, self.principal, copy_json(self.extra)], None, None)

    def est_tokens(self) -> int:
        """Return the token estimate: the text, and what every message costs."""
        return text_tokens(self.text) + MESSAGE_OVERHEAD


@dataclass(frozen=True, slots=True)
class AssistantMsg(_Base):
    """What the model said: text, calls, or both."""

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    role = "assistant"

    def to_json(self) -> JsonObject:
        """Return the message as the record's JSON; no text or no calls, no key."""
        calls = [call.to_json() for call in self.tool_calls] or None
        return self._json(**_present(text=self.text, tool_calls=calls))

    def to_wire(self) -> JsonObject:
        """Return the provider-neutral form; text and calls are always there."""
        calls = [{"id": call.id, "name": call.name, "arguments": copy_json(call.arguments)} for call in self.tool_calls]
        return {"role": "assistant", "text": self.text, "tool_calls": calls}

    def dump(self) -> list[Any]:
        """Return the message as an array."""
        calls = [call.dump() for call in self.tool_calls]
        return trimmed([ASSISTANT, self.ts, self.text, calls, copy_json(self.extra)], [], None)

    def est_tokens(self) -> int:
        """Return the token estimate: text, names and arguments, and what every message costs."""
        return body_tokens(self.dump())


@dataclass(frozen=True, slots=True)
class ToolMsg(_Base):
    """The result of a tool call: ``id`` is the call's, ``content`` a JSON value."""

    id: str
    name: str
    content: Any
    is_error: bool = False

    role = "tool"

    def to_json(self) -> JsonObject:
        """Return the message as the record's JSON; ``is_error`` is always there."""
        return self._json(id=self.id, name=self.name, content=copy_json(self.content), is_error=self.is_error)

    def to_wire(self) -> JsonObject:
        """Return the provider-neutral form: text content as it is, other content as compact JSON."""
        content = self.content if type(self.content) is str else compact(self.content)
        return {"role": "tool", "id": self.id, "content": content, "is_error": self.is_error}

    def dump(self) -> list[Any]:
        """Return the message as an array."""
        content, extra = copy_json(self.content), copy_json(self.extra)
        return trimmed([TOOL, self.ts, self.id, self.name, content, self.is_error, extra], False, None)

    def est_tokens(self) -> int:
        """Return the token estimate: the content alone, and what every message costs."""
        return value_tokens(self.content) + MESSAGE_OVERHEAD


Msg: TypeAlias = SystemMsg | UserMsg | AssistantMsg | ToolMsg | NoteMsg
"""A message of any role."""


def _present(**parts: Any) -> JsonObject:
    return {key: value for key, value in parts.items() if value is not None}


# -- from JSON --------------------------------------------------------------------------------------------------------


def read_message(value: Any, ts: int | None = 0) -> Msg:
    """Return the message of a JSON object; ``ts`` stands in for a missing one. Unknown keys are kept as ``extra``.

    Raises InvalidValue with the path to what is missing or of another type.
    """
    reader = ObjectReader(value, "a message")
    role = reader.take("role", _ROLE)
    return _READERS[role](reader, {"ts": reader.take("ts", U64, ts)})


def _read_system(reader: ObjectReader, base: JsonObject) -> Msg:
    return SystemMsg(reader.take("text", TEXT), extra=reader.extra(), **base)


def _read_note(reader: ObjectReader, base: JsonObject) -> Msg:
    return NoteMsg(reader.take("text", TEXT), extra=reader.extra(), **base)


def _read_user(reader: ObjectReader, base: JsonObject) -> Msg:
    parts = reader.take("text", TEXT), reader.take("principal", optional(TEXT), None)
    return UserMsg(*parts, extra=reader.extra(), **base)


def _read_assistant(reader: ObjectReader, base: JsonObject) -> Msg:
    parts = reader.take("text", optional(TEXT), None), tuple(reader.take("tool_calls", _CALLS, ()))
    return AssistantMsg(*parts, extra=reader.extra(), **base)


def _read_tool(reader: ObjectReader, base: JsonObject) -> Msg:
    parts = reader.take("id", TEXT), reader.take("name", TEXT), reader.take("content", JSON)
    return ToolMsg(*parts, is_error=reader.take("is_error", BOOL, False), extra=reader.extra(), **base)


_READERS: Final[Mapping[str, Callable[[ObjectReader, JsonObject], Msg]]] = {
    "system": _read_system,
    "user": _read_user,
    "assistant": _read_assistant,
    "tool": _read_tool,
    "note": _read_note,
}

# -- from arrays ------------------------------------------------------------------------------------------------------


def load_message(body: Sequence[Any]) -> Msg:
    """Return the message of an array that :meth:`dump` wrote, sharing nothing with it."""
    role, ts, *rest = copy_json(body)
    if type(role) is not int or len(rest) > _PLACES[role]:
        raise ValueError(f"no message: {body!r:.80}")
    if role == USER:
        return UserMsg(*rest[:2], extra=_at(rest, 2), ts=ts)
    if role == ASSISTANT:
        calls = tuple(ToolCall.load(call) for call in _at(rest, 1) or ())
        return AssistantMsg(rest[0], calls, extra=_at(rest, 2), ts=ts)
    if role == TOOL:
        return ToolMsg(*rest[:4], extra=_at(rest, 4), ts=ts)
    if role == SYSTEM:
        return SystemMsg(rest[0], extra=_at(rest, 1), ts=ts)
    return NoteMsg(rest[0], extra=_at(rest, 1), ts=ts)


_PLACES: Final = {SYSTEM: 2, USER: 3, ASSISTANT: 3, TOOL: 5, NOTE: 2}
"""How many places the array of each role has after role and ts, the place of unknown keys included."""


def _at(rest: Sequence[Any], place: int) -> Any:
    return rest[place] if len(rest) > place else None


MESSAGE: Final = array_of("message [role, ts or null, ...]", load_message, lambda shape: read_message(shape, None))
"""The field type of a message in an event."""


def body_tokens(body: Sequence[Any]) -> int:
    """Return the token estimate of a message's array. The one rule; every other count comes here."""
    role = body[0]
    if role == TOOL:
        return value_tokens(body[4]) + MESSAGE_OVERHEAD
    tokens = MESSAGE_OVERHEAD + text_tokens(body[2] or "")
    if role == ASSISTANT and len(body) > 3:
        for call in body[3]:
            tokens += text_tokens(call[1]) + value_tokens(call[2])
    return tokens


def message_array(message: Msg | JsonObject) -> list[Any]:
    """Return a message that a caller hands in, as a value or as JSON, as a checked array. Raises InvalidValue with the
    path."""
    return read_message(message.to_json() if isinstance(message, _Base) else message, None).dump()
