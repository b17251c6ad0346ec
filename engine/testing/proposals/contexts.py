"""Commands to conversations: they are said something, planned in, folded, bound to tasks, imported. It must never look
at anything but the state it is given."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from engine.core.state import ModelState
from engine.testing.proposals.values import json_value, likely, some_task
from projections.contexts import commands as contexts
from projections.contexts import from_record
from projections.contexts.compaction import fold_point
from projections.contexts.message import message_array
from projections.contexts.record import record_parts

__all__ = ["context_command"]

_IDS: Final = ("chat", "a/b", "a//b", "ü")
_KEEP: Final = 2
"""How many messages a compaction keeps here, so that there is something to fold."""

_ASK: Final[dict[str, Any]] = {"role": "user", "text": "a question"}
_CALL: Final[dict[str, Any]] = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "name": "look", "arguments": [1, True]}],
}
_RESULT: Final[dict[str, Any]] = {
    "role": "tool", "id": "c1", "name": "look", "content": {"found": None}, "is_error": False, "ts": 7,
}  # fmt: skip
_MESSAGES: Final = tuple(
    message_array(shape)
    for shape in (
        _ASK,
        _ASK,
        {"role": "user", "text": "ü", "principal": "ada", "ts": 3},
        {"role": "assistant", "text": "an answer"},
        _CALL,
        _RESULT,
        {"role": "note", "text": "aside", "trace": {"id": 1}},
        {"role": "system", "text": ""},
    )
)
_ITEMS: Final = ("a", "b", "b", {"title": "c", "detail": "d"}, "e", "f", "g", " ")
_VERDICTS: Final[tuple[Any, ...]] = (
    {"goals": ["g"]},
    {"facts": ["f"], "narrative": "so far"},
    "prose",
    {"open": ["o"]},
    {},
    " ",
)


def context_command(random: Random, state: ModelState) -> Any:
    """Return a command to one of a few conversations."""
    table = state.parts["contexts"]
    known = table.contexts.rows
    new = [name for name in _IDS if name not in known]
    if not known or random.randrange(15) == 0:
        return _new(random, state, likely(random, new, _IDS))
    to = {"context": likely(random, known, _IDS)}
    kind = random.choice(("say", "say", "say", "plan", "plan", "bind", "bind", "fold", "fold", "about", "task"))
    if kind == "say":
        said = [random.choice(_MESSAGES) for _ in range(random.randrange(3) + bool(random.randrange(8)))]
        return contexts.AppendMessages.make(**to, messages=said)
    if kind == "fold":
        return _fold(random, table, to)
    if kind == "about":
        return _about(random, to)
    if kind == "task":
        if random.randrange(3):
            return contexts.AttachTask.make(**to, task=some_task(random, state))
        return contexts.DetachTask.make(**to)
    return _plan(random, state, to, bind=kind == "bind")


def _new(random: Random, state: ModelState, context: str) -> Any:
    if random.randrange(3):
        principal = random.choice((None, "ada"))
        return contexts.CreateContext.make(context=context, model_window=random.randrange(40), principal=principal)
    parts = record_parts(from_record(_record(random, state)).state)  # type: ignore[arg-type]
    return contexts.ImportContext.make(context=context, parts=parts, model_window=random.choice((None, 9)))


def _record(random: Random, state: ModelState) -> dict[str, Any]:
    """Return the record of a conversation that has lived elsewhere."""
    bound = [some_task(random, state) for _ in range(random.randrange(3))]
    items = [
        {"id": n, "title": f"t{n}", "status": "in_progress", "bound": {"task": {"id": task}}, "updated": 2}
        for n, task in enumerate(bound, 1)
    ]
    plan = {"goal": "imported", "items": items, "next_id": len(items) + 1, "created": 1, "updated": 2}
    record = {
        "kind": random.choice(("root", "conversation")),
        "version": 3,
        "summary": {"covers_messages": 5, "facts": ["old"], "updated": 1},
        "messages": [{**_ASK, "ts": 1}, {**_CALL, "ts": 2}, _RESULT],
        "skills": [{"name": "s1", "hash": "x"}],
        "preflight": json_value(random, 2),
        "model_window": 100,
        "turns": 2,
        "created": 1,
        "updated": 2,
        "x-own": json_value(random, 2),
    }
    return record | ({"plan": plan} if items else {}) | ({"task": some_task(random, state)} if bound else {})


def _fold(random: Random, table: Any, to: dict[str, str]) -> Any:
    kind = random.choice(("verdict", "verdict", "fallback", "close"))
    if kind == "close":
        return contexts.CloseCalls.make(**to, reason="gone")
    known = to["context"] in table.contexts
    fold = (fold_point(table.bodies(to["context"]), _KEEP) if known else None) or random.randrange(1, 4)
    version = (table.contexts.rows[to["context"]].version if known else 1) + (random.randrange(12) == 0)
    if kind == "fallback":
        return contexts.ApplyFallback.make(**to, fold=fold, version=version)
    return contexts.ApplyCompaction.make(**to, fold=fold, version=version, verdict=random.choice(_VERDICTS))


def _plan(random: Random, state: ModelState, to: dict[str, str], *, bind: bool) -> Any:
    plan = state.parts["contexts"].plan(to["context"])
    if plan is None or (not bind and random.randrange(10) == 0):
        items = [random.choice(_ITEMS) for _ in range(random.randrange(4))]
        return contexts.CreatePlan.make(**to, goal=random.choice(("g", "g", "g", "g", " ")), items=items)
    item = likely(random, [item.id for item in plan.items], (1, 99))
    if bind:
        kind = random.choice(("task", "task", "task", "run", "subagent", "nope"))
        return contexts.UpdatePlan.make(**to, changes={"item": item, "bind": {kind: some_task(random, state)}})
    roll = random.randrange(8)
    if roll == 0:
        return contexts.ClearPlan.make(**to)
    if roll == 1:
        binding = ["task", some_task(random, state)]
        return contexts.SettlePlan.make(**to, binding=binding, ok=random.random() < 0.5, note="by hand")
    return contexts.UpdatePlan.make(**to, changes=_change(random, item), max_items=5)


def _change(random: Random, item: int) -> dict[str, Any]:
    change: dict[str, Any] = {}
    if random.randrange(2):
        change["insert"] = random.choice(("e", {"title": "f", "after": 1}))
    if random.randrange(4) == 0:
        change["reorder"] = [random.randrange(1, 5) for _ in range(random.randrange(3))]
    if random.randrange(2):
        status = random.choice(("pending", "in_progress", "done", "skipped", "bogus"))
        change |= {"item": item, "status": status, "note": random.choice(("", "n"))}
    return change


def _about(random: Random, to: dict[str, str]) -> Any:
    kind = random.randrange(7)
    name = random.choice(("s1", "s2"))
    if kind == 0:
        return contexts.LoadSkill.make(**to, skill=name, hash=random.choice("xy"), max_loaded=random.choice((1, 8)))
    if kind == 1:
        return contexts.UnloadSkill.make(**to, skill=name)
    if kind == 2:
        return contexts.SetWindow.make(**to, model_window=random.randrange(3))
    if kind == 3:
        return contexts.SetPreflight.make(**to, value=json_value(random, 2))
    if kind == 4:
        return contexts.SetPrincipal.make(**to, principal=random.choice(("ada", "bob")))
    return (contexts.BeginTurn if kind == 5 else contexts.TouchContext).make(**to)
