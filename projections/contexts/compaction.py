"""Where a conversation may be folded, and what the summariser reads. Pure functions over message arrays; they must
never leave a tool result without its call.

A compaction is two halves round the caller's model call: the plan says how many leading messages to fold and at which
version; applying it refuses when the context has been folded since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from engine.core.errors import InvalidValue, Refused
from engine.core.limits import NARRATIVE_BYTES_MAX, TRANSCRIPT_CHARS_MAX
from projections.contexts.message import ASSISTANT, NOTE, SYSTEM, TOOL, USER, Msg, body_tokens
from projections.contexts.summary import Summary, read_summary
from projections.contexts.tokens import compact

__all__ = [
    "KEEP_LAST",
    "CompactionPlan",
    "check_fold",
    "fallback_narrative",
    "fold_point",
    "open_calls",
    "read_verdict",
    "transcript",
]

KEEP_LAST: Final = 12
"""Messages that a compaction keeps, unless the caller says otherwise."""

Body: TypeAlias = Sequence[Any]

_ELIDED: Final = "(earlier messages elided)"
_AUXILIARY: Final = frozenset({SYSTEM, NOTE})


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What to fold: the ``fold`` oldest messages, planned at ``version``. ``messages`` and ``summary`` are what the
    summariser reads."""

    fold: int
    version: int
    messages: tuple[Msg, ...]
    summary: Summary

    @property
    def transcript(self) -> str:
        """The messages to fold as text, one line each, long parts cut at TRANSCRIPT_CHARS_MAX."""
        return "\n".join(transcript([message.dump() for message in self.messages]))


# -- where ------------------------------------------------------------------------------------------------------------


def fold_point(bodies: Sequence[Body], keep_last: int = KEEP_LAST, target: int | None = None) -> int | None:
    """Return how many leading messages to fold, or None when there is nothing worth folding.

    Fewer than ``keep_last + 2`` messages give none. Otherwise all but ``keep_last`` are to go; with a ``target``, more
    of them while the kept estimate is above it and more than two are kept; then the boundary walks back to a user
    message that splits no call from its result. Where there is none, notes and system messages are folded up to the
    first message of a turn.
    """
    count = len(bodies)
    if count < keep_last + 2:
        return None
    fold = count - keep_last
    if target is not None:
        kept = sum(map(body_tokens, bodies[fold:]))
        while kept > target and count - fold > 2:
            kept -= body_tokens(bodies[fold])
            fold += 1
    if fold == count:
        return fold
    calls = _calls(bodies)
    needed = min((call for call in calls[fold:] if call is not None), default=count)
    for boundary in range(fold, 0, -1):
        call = calls[boundary]
        needed = needed if call is None else min(needed, call)
        if bodies[boundary][0] == USER and needed >= boundary:
            return boundary
    return _leading(bodies, fold) or None


def check_fold(bodies: Sequence[Body], fold: int) -> None:
    """Refuse a fold that would leave a broken window, judged by the messages as they are now.

    Rules: fold_range (1 to all messages), orphaned_result (a kept tool result whose call is folded), bad_start (the
    kept window starts inside a turn), open_call (a call that still waits for its result).
    """
    if not 0 < fold <= len(bodies):
        raise Refused(f"cannot fold {fold} of {len(bodies)} messages", hint=_AGAIN, rule="fold_range")
    calls = _calls(bodies)
    for index in range(fold, len(bodies)):
        call = calls[index]
        if call is not None and call < fold:
            raise Refused(
                f"message {index} is the result of a call that would be folded", hint=_AGAIN, rule="orphaned_result"
            )
    if _leading(bodies, fold) == fold:
        return  # only notes and system messages go: whatever the window starts with, it started with before
    start = next((body[0] for body in bodies[fold:] if body[0] not in _AUXILIARY), USER)
    if start != USER:
        raise Refused("the kept messages would start inside a turn", hint=_AGAIN, rule="bad_start")
    waiting = [index for index, _ in open_calls(bodies) if index < fold]
    if waiting and all(body[0] != USER for body in bodies[waiting[-1] :]):
        raise Refused(
            "a call that waits for its result would be folded",
            hint="append the result first, or close_calls when it will not come",
            rule="open_call",
        )


_AGAIN: Final = "ask plan_compaction again: the conversation has moved on"


def open_calls(bodies: Sequence[Body]) -> list[tuple[int, Sequence[Any]]]:
    """Return (index of the message, call) for every tool call without a result, oldest first."""
    waiting: dict[str, list[tuple[int, Sequence[Any]]]] = {}
    for index, body in enumerate(bodies):
        if body[0] == ASSISTANT and len(body) > 3:
            for call in body[3]:
                waiting.setdefault(call[0], []).append((index, call))
        elif body[0] == TOOL and waiting.get(body[2]):
            waiting[body[2]].pop()
    return sorted((entry for entries in waiting.values() for entry in entries), key=lambda entry: entry[0])


def _calls(bodies: Sequence[Body]) -> list[int | None]:
    """Return for each message the index of the assistant message whose call it answers, None when it answers none."""
    latest: dict[str, int] = {}
    found: list[int | None] = []
    for index, body in enumerate(bodies):
        found.append(latest.get(body[2]) if body[0] == TOOL else None)
        if body[0] == ASSISTANT and len(body) > 3:
            latest.update((call[0], index) for call in body[3])
    return found


def _leading(bodies: Sequence[Body], fold: int) -> int:
    """Return how many of the first ``fold`` messages are notes and system messages with no other before them."""
    return next((index for index, body in enumerate(bodies[:fold]) if body[0] not in _AUXILIARY), fold)


# -- what -------------------------------------------------------------------------------------------------------------


def read_verdict(verdict: Any) -> Summary:
    """Return what the summariser said: an object with any of goals, decisions, open, facts, narrative; or a narrative.

    Raises Refused with rule verdict_schema when it is neither, empty_verdict when every entry is blank: folding under
    it would erase history.
    """
    try:
        said = read_summary({"narrative": verdict} if type(verdict) is str else verdict)
    except InvalidValue as error:
        raise Refused(
            f"the verdict does not fit: {error.message}",
            hint="an object with goals, decisions, open and facts (lists of text) and a narrative; or a text",
            rule="verdict_schema",
            path=error.path,
        ) from None
    if said.says_nothing():
        raise Refused(
            "the verdict is empty: folding under it would erase history",
            hint="ask the summariser again, or use apply_fallback",
            rule="empty_verdict",
        )
    return said


def transcript(bodies: Iterable[Body]) -> list[str]:
    """Return one line a message, in the form that summarisers and fallback narratives use."""
    return [_line(body) for body in bodies]


def _line(body: Body) -> str:
    role = body[0]
    if role == TOOL:
        error = " error" if len(body) > 5 and body[5] else ""
        return f"[tool {body[3]}{error}] {_clipped(compact(body[4]))}"
    text = _clipped(body[2] or "")
    if role == ASSISTANT:
        calls = [f"{call[1]}({_clipped(compact(call[2]))})" for call in (body[3] if len(body) > 3 else ())]
        return f"[assistant] {text}{' calls: ' if calls else ''}{', '.join(calls)}"
    if role == USER:
        caller = f" {body[3]}" if len(body) > 3 and body[3] is not None else ""
        return f"[user{caller}] {text}"
    return f"[{'system' if role == SYSTEM else 'note'}] {text}"


def _clipped(text: str) -> str:
    return text if len(text) <= TRANSCRIPT_CHARS_MAX else f"{text[:TRANSCRIPT_CHARS_MAX]}…"


def fallback_narrative(earlier: str | None, bodies: Iterable[Body]) -> str:
    """Return the narrative when no summariser is at hand: the earlier one, then one line a message.

    At most NARRATIVE_BYTES_MAX bytes: the oldest lines make room for the newest, and the text says so.
    """
    lines = [*(earlier.split("\n") if earlier else ()), *transcript(bodies)]
    sizes = [len(line.encode()) + 1 for line in lines]
    elided = lines[0] == _ELIDED
    first = 1 if elided else 0
    total = sum(sizes[first:]) - 1
    head = len(_ELIDED) + 1
    while first < len(lines) - 1 and total + (head if first else 0) > NARRATIVE_BYTES_MAX:
        total -= sizes[first]
        first += 1
    shown = "\n".join(([_ELIDED] if first else []) + lines[first:])
    return shown.encode()[:NARRATIVE_BYTES_MAX].decode(errors="ignore")
