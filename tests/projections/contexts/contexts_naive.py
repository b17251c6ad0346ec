"""A second, slow reading of the contract: conversations as the record's JSON, for comparing. It shares nothing with the
fold: no events, no header, no running estimate; every question counts from scratch.

Times come in as ``now``. Each command says whether the contract refuses it, finds that it repeats what is, or changes
something.
"""

from __future__ import annotations

import copy
import json
from typing import Any

REFUSED, SAME, CHANGED = "refused", "same", "changed"
STATUSES = ("pending", "in_progress", "done", "blocked", "skipped")
AUXILIARY = ("system", "note")

Record = dict[str, Any]

# -- tokens -----------------------------------------------------------------------------------------------------------


def text_cost(text: str) -> int:
    return -(-len(text) // 4)


def value_cost(value: Any) -> int:
    if isinstance(value, str):
        return text_cost(value)
    if value is None:
        return 1
    from projections.contexts.tokens import compact  # the number form has its own test

    return text_cost(compact(value))


def message_cost(message: Record) -> int:
    if message["role"] == "tool":
        return 4 + value_cost(message["content"])
    calls = message.get("tool_calls", [])
    return (
        4 + text_cost(message.get("text", "")) + sum(text_cost(c["name"]) + value_cost(c["arguments"]) for c in calls)
    )


def summary_block(summary: Record) -> str:
    titles = {"goals": "Goals:", "decisions": "Decisions:", "open": "Open items:", "facts": "Facts:"}
    out = ""
    for key, title in titles.items():
        if key in summary:
            out += title + "\n" + "".join(f"- {entry}\n" for entry in summary[key])
    if summary.get("narrative"):
        out += summary["narrative"] + "\n"
    return "Summary of earlier conversation:\n" + out if out else ""


def plan_block(plan: Record) -> str:
    marks = {"pending": " ", "in_progress": "~", "done": "x", "blocked": "!", "skipped": "-"}
    done = sum(item["status"] == "done" for item in plan["items"])
    out = f"Plan ({done}/{len(plan['items'])} done): {plan['goal']}\n"
    for item in plan["items"]:
        out += f"[{marks[item['status']]}] {item['id']}. {item['title']}"
        out += f" — {item['detail']}" if "detail" in item else ""
        out += f" ({item['note']})" if "note" in item else ""
        for kind, inner in item.get("bound", {}).items():
            out += f" [{kind} {inner.get('id', inner.get('handle'))}]"
        out += "\n"
    return out


def naive_cost(record: Record) -> int:
    blocks = text_cost(summary_block(record["summary"]))
    blocks += text_cost(plan_block(record["plan"])) if "plan" in record else 0
    return blocks + sum(map(message_cost, record["messages"]))


def same(one: Any, other: Any) -> bool:
    """Equal as JSON texts, so that 1, 1.0 and true stay three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# -- folding ----------------------------------------------------------------------------------------------------------


def call_of(messages: list[Record], index: int) -> int | None:
    """The latest message before a tool result that makes a call with its id."""
    if messages[index]["role"] != "tool":
        return None
    making = [
        at
        for at, message in enumerate(messages[:index])
        if any(call["id"] == messages[index]["id"] for call in message.get("tool_calls", []))
    ]
    return making[-1] if making else None


def splits(messages: list[Record], fold: int) -> bool:
    """Whether a result would be kept whose call would be folded."""
    calls = [call_of(messages, at) for at in range(fold, len(messages))]
    return any(call is not None and call < fold for call in calls)


def only_auxiliary(messages: list[Record]) -> bool:
    return all(message["role"] in AUXILIARY for message in messages)


def fold_point(messages: list[Record], keep_last: int, target: int | None = None) -> int | None:
    """How many messages a compaction folds."""
    count = len(messages)
    if count < keep_last + 2:
        return None
    fold = count - keep_last
    while target is not None and count - fold > 2 and sum(map(message_cost, messages[fold:])) > target:
        fold += 1
    if fold == count:
        return fold
    for boundary in range(fold, 0, -1):
        if messages[boundary]["role"] == "user" and not splits(messages, boundary):
            return boundary
    while fold and not only_auxiliary(messages[:fold]):
        fold -= 1
    return fold or None


def open_calls(messages: list[Record]) -> list[tuple[int, Record]]:
    """The calls without a result; a result answers the latest open call with its id."""
    waiting: list[tuple[int, Record]] = []
    for at, message in enumerate(messages):
        waiting += [(at, call) for call in message.get("tool_calls", [])]
        if message["role"] == "tool":
            answered = [place for place, (_, call) in enumerate(waiting) if call["id"] == message["id"]]
            if answered:
                del waiting[answered[-1]]
    return waiting


def may_fold(messages: list[Record], fold: int) -> bool:
    if not 0 < fold <= len(messages) or splits(messages, fold):
        return False
    if only_auxiliary(messages[:fold]):
        return True
    spoken = [message["role"] for message in messages[fold:] if message["role"] not in AUXILIARY]
    if spoken and spoken[0] != "user":
        return False
    lost = [at for at, _ in open_calls(messages) if at < fold]
    return not lost or any(message["role"] == "user" for message in messages[lost[-1] :])


def line(message: Record) -> str:
    from projections.contexts.tokens import compact

    role = message["role"]
    if role == "tool":
        return f"[tool {message['name']}{' error' if message['is_error'] else ''}] {compact(message['content'])}"
    said = message.get("text", "")
    calls = ", ".join(f"{call['name']}({compact(call['arguments'])})" for call in message.get("tool_calls", []))
    caller = f" {message['principal']}" if "principal" in message else ""
    return f"[{role}{caller}] {said}{' calls: ' if calls else ''}{calls}"


# -- commands ---------------------------------------------------------------------------------------------------------


class NaiveContexts:
    """Records by id, without ``est_tokens``: whoever wants it counts."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def to_json(self, context: str) -> Record:
        """The whole record."""
        record = copy.deepcopy(self.records[context])
        return {**record, "est_tokens": naive_cost(record)}

    def _set(self, context: str, now: int, **changes: Any) -> str:
        """Note what an accepted command changed; None takes away."""
        record = self.records[context]
        record.update(changes, updated=now)
        for key in [key for key, value in changes.items() if value is None]:
            del record[key]
        return CHANGED

    def create(self, context: str, now: int, kind: str = "conversation", window: int = 0, principal: Any = None) -> str:
        if context in self.records:
            there = self.records[context]
            told = (kind, window, principal or there.get("principal"))
            return SAME if told == (there["kind"], there["model_window"], there.get("principal")) else REFUSED
        self.records[context] = {
            "kind": kind,
            "version": 1,
            "summary": {"covers_messages": 0, "updated": 0},
            "messages": [],
            "model_window": window,
            "turns": 0,
            "created": now,
            "updated": now,
            **({} if principal is None else {"principal": principal}),
        }
        return CHANGED

    def take(self, context: str, record: Record, now: int, window: int | None = None) -> str:
        """A record of another runtime is taken in; it says what it says."""
        if context in self.records:
            return REFUSED
        taken = copy.deepcopy(record)
        taken.pop("est_tokens", None)
        self.records[context] = taken
        if window is not None and window != taken["model_window"]:
            self._set(context, now, model_window=window)
        return CHANGED

    def append(self, context: str, now: int, messages: list[Record]) -> str:
        if context not in self.records:
            return REFUSED
        if not messages:
            return SAME
        stamped = [{"ts": now, **message} for message in messages]
        return self._set(context, now, messages=self.records[context]["messages"] + stamped)

    def touch(self, context: str, now: int) -> str:
        if context not in self.records:
            return REFUSED
        return SAME if self.records[context]["updated"] == now else self._set(context, now)

    def load_skill(self, context: str, now: int, name: str, hash: str, limit: int) -> str:
        if context not in self.records:
            return REFUSED
        skills = [dict(skill) for skill in self.records[context].get("skills", [])]
        known = next((skill for skill in skills if skill["name"] == name), None)
        if known is None:
            if len(skills) >= limit:
                return REFUSED
            return self._set(context, now, skills=[*skills, {"name": name, "hash": hash}])
        if known["hash"] == hash:
            return SAME
        known["hash"] = hash
        return self._set(context, now, skills=skills)

    def unload_skill(self, context: str, now: int, name: str) -> str:
        if context not in self.records:
            return REFUSED
        skills = self.records[context].get("skills", [])
        left = [skill for skill in skills if skill["name"] != name]
        return SAME if left == skills else self._set(context, now, skills=left or None)

    # -- the plan -------------------------------------------------------------------------------------------------

    def create_plan(self, context: str, now: int, goal: str, items: list[Any], most: int) -> str:
        shapes = [{"title": item} if isinstance(item, str) else dict(item) for item in items]
        if context not in self.records or not goal.strip() or len(shapes) > most:
            return REFUSED
        if any(not shape["title"].strip() for shape in shapes):
            return REFUSED
        made = [
            {"id": number, **_item(shape), "status": "pending", "updated": now}
            for number, shape in enumerate(shapes, 1)
        ]
        plan = {"goal": goal.strip(), "items": made, "next_id": len(made) + 1, "created": now, "updated": now}
        return self._set(context, now, plan=plan)

    def update_plan(self, context: str, now: int, changes: Record, most: int) -> str:
        before = self.records.get(context, {}).get("plan")
        if before is None or not {"insert", "reorder", "item"} & {k for k, v in changes.items() if v is not None}:
            return REFUSED
        plan = copy.deepcopy(before)
        items = plan["items"]
        if (insert := changes.get("insert")) is not None:
            shape = {"title": insert} if isinstance(insert, str) else dict(insert)
            after = shape.pop("after", None)
            if len(items) >= most or not shape["title"].strip():
                return REFUSED
            ids = [item["id"] for item in items]
            place = ids.index(after) + 1 if after in ids else len(ids)
            free = next(n for n in range(plan["next_id"], plan["next_id"] + len(ids) + 1) if n not in ids)
            items.insert(place, {"id": free, **_item(shape), "status": "pending", "updated": now})
            plan["next_id"] = free + 1
        if (order := changes.get("reorder")) is not None:
            first = [n for n in dict.fromkeys(order) if any(i["id"] == n for i in items)]
            items.sort(key=lambda i: first.index(i["id"]) if i["id"] in first else len(first))
        if changes.get("item") is not None and not _edit(items, changes, now):
            return REFUSED
        plan["updated"] = now
        if _timeless(plan) == _timeless(before):
            return SAME
        return self._set(context, now, plan=plan)

    def settle_plan(self, context: str, now: int, binding: Record, ok: bool, note: str | None = None) -> str:
        if context not in self.records:
            return REFUSED
        plan = copy.deepcopy(self.records[context].get("plan"))
        hit = [
            item
            for item in (plan["items"] if plan else [])
            if item.get("bound") == binding and item["status"] in ("pending", "in_progress")
        ]
        if not hit:
            return SAME
        for item in hit:
            item["status"] = "done" if ok else "blocked"
            item["updated"] = plan["updated"] = now
            item |= {} if note is None else {"note": note}
        return self._set(context, now, plan=plan)

    def clear_plan(self, context: str, now: int) -> str:
        if context not in self.records:
            return REFUSED
        return self._set(context, now, plan=None) if "plan" in self.records[context] else SAME

    # -- what it is about -----------------------------------------------------------------------------------------

    def set_preflight(self, context: str, now: int, value: Any) -> str:
        if context not in self.records:
            return REFUSED
        if same(self.records[context].get("preflight"), value):
            return SAME
        return self._set(context, now, preflight=copy.deepcopy(value))

    def set_principal(self, context: str, now: int, principal: str) -> str:
        if context not in self.records:
            return REFUSED
        return SAME if "principal" in self.records[context] else self._set(context, now, principal=principal)

    def set_task(self, context: str, now: int, task: str | None, known: list[str]) -> str:
        """Attach a task, or let it go. ``known`` are the tasks of the run, none when it has no task table."""
        if context not in self.records:
            return REFUSED
        if self.records[context].get("task") == task:
            return SAME
        if task is not None and known and task not in known:
            return REFUSED
        return self._set(context, now, task=task)

    def begin_turn(self, context: str, now: int) -> str:
        if context not in self.records:
            return REFUSED
        return self._set(context, now, turns=self.records[context]["turns"] + 1)

    def set_window(self, context: str, now: int, window: int) -> str:
        if context not in self.records:
            return REFUSED
        if self.records[context]["model_window"] == window:
            return SAME
        return self._set(context, now, model_window=window)

    # -- compaction -----------------------------------------------------------------------------------------------

    def compact(self, context: str, now: int, fold: int, version: int, verdict: Any) -> str:
        """Fold under a verdict (an object, or a narrative)."""
        said = {"narrative": verdict} if isinstance(verdict, str) else verdict
        lists = ("goals", "decisions", "open", "facts")
        if not isinstance(said, dict) or set(said) - {*lists, "narrative"}:
            return REFUSED
        texts = [said.get("narrative") or "", *(entry for key in lists for entry in said.get(key, []))]
        if not any(text.strip() for text in texts):
            return REFUSED
        return self._fold(context, now, fold, version, said)

    def fall_back(self, context: str, now: int, fold: int, version: int) -> str:
        """Fold into the narrative: the earlier one, then one line a message."""
        if context not in self.records:
            return REFUSED
        record = self.records[context]
        earlier = record["summary"].get("narrative")
        lines = [*([earlier] if earlier else []), *map(line, record["messages"][:fold])]
        return self._fold(context, now, fold, version, {"narrative": "\n".join(lines)})

    def _fold(self, context: str, now: int, fold: int, version: int, said: Record) -> str:
        record = self.records.get(context)
        if record is None or record["version"] != version or not may_fold(record["messages"], fold):
            return REFUSED
        summary = dict(record["summary"])
        for key in ("goals", "decisions", "open", "facts"):
            entries = list(dict.fromkeys([*summary.get(key, []), *said.get(key, [])]))[-32:]
            summary |= {key: entries} if entries else {}
        if said.get("narrative") is not None:
            summary["narrative"] = said["narrative"]
        summary |= {"covers_messages": summary["covers_messages"] + fold, "updated": now}
        return self._set(
            context, now, summary=summary, messages=record["messages"][fold:], version=record["version"] + 1
        )

    def close_calls(self, context: str, now: int, reason: str) -> str:
        if context not in self.records:
            return REFUSED
        results = [
            {"role": "tool", "id": call["id"], "name": call["name"], "content": reason, "is_error": True}
            for _, call in open_calls(self.records[context]["messages"])
        ]
        return self.append(context, now, results)


def _item(shape: Record) -> Record:
    detail = shape.get("detail")
    return {"title": shape["title"].strip(), **({"detail": detail} if detail else {})}


def _edit(items: list[Record], changes: Record, now: int) -> bool:
    """Edit one item; False when the contract refuses."""
    key = changes["item"]
    entry = next((item for item in items if str(item["id"]) == str(key)), None)
    entry = entry or next((item for item in items if item["title"] == key), None)
    if entry is None or changes.get("status") not in (None, *STATUSES):
        return False
    if changes.get("status") is not None:
        entry["status"] = changes["status"]
    if changes.get("title"):
        entry["title"] = changes["title"].strip() or entry["title"]
    for name in ("note", "detail"):
        if changes.get(name) is not None:
            entry.pop(name, None)
            entry |= {name: changes[name]} if changes[name] else {}
    if (bind := changes.get("bind")) is not None:
        ((kind, ref),) = bind.items()
        if kind not in ("run", "subagent", "task"):
            return False
        entry["bound"] = {kind: {"handle" if kind == "subagent" else "id": ref}}
        entry["status"] = "in_progress" if entry["status"] == "pending" else entry["status"]
    entry["updated"] = now
    return True


def _timeless(plan: Record) -> Record:
    return {**plan, "updated": 0, "items": [{**item, "updated": 0} for item in plan["items"]]}
