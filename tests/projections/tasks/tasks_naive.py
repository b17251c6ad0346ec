"""A second, slow reading of the contract: the task table as plain dicts, for comparing. It shares nothing with the code
under test: no tables of transitions, no events, no indexes; every rule is spelled out, every question scans all rows.
"""

from __future__ import annotations

import copy
from typing import Any

REFUSED, SAME, CHANGED = "refused", "same", "changed"


class Naive:
    """Rows in order of creation, with ``attempt``, ``awaited``, ``due``, ``failure`` and ``answer`` beside the ten
    fields."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    # -- questions ------------------------------------------------------------------------------------------------

    def public(self) -> list[dict[str, Any]]:
        """The ten fields of every row, as JSON."""
        hidden = ("attempt", "awaited", "due", "failure", "answer")
        rows = [{key: value for key, value in row.items() if key not in hidden} for row in self.rows.values()]
        for row in rows:
            row["tokens_used"] = str(row["tokens_used"])
        return copy.deepcopy(rows)

    def alive(self, task: str) -> bool:
        return task in self.rows and self.rows[task]["lifecycle"] != "done"

    def living_children(self, task: str) -> list[str]:
        return [child for child, row in self.rows.items() if row["parent_task_id"] == task and self.alive(child)]

    def below(self, task: str) -> list[tuple[int, str]]:
        """(depth, task) of everything alive under a task."""
        found = []
        for child in self.living_children(task):
            found.append((1, child))
            found += [(depth + 1, deeper) for depth, deeper in self.below(child)]
        return found

    def names_live(self, task: str, attempt: int | None) -> bool:
        row = self.rows[task]
        if attempt is None:
            return row["parent_task_id"] is None and row["attempt"] == 1
        return attempt == row["attempt"]

    # -- commands -------------------------------------------------------------------------------------------------

    def _new(self, task: str, parent: str | None, lifecycle: str, capabilities: list[str], process: Any) -> str:
        self.rows[task] = {
            "task_id": task,
            "parent_task_id": parent,
            "lifecycle": lifecycle,
            "termination": None,
            "wait": None,
            "waiting_on": [],
            "capability_ids": list(capabilities),
            "process": process,
            "tokens_used": 0,
            "turns_used": 0,
            "attempt": 1,
            "awaited": None,
            "due": None,
            "failure": None,
            "answer": None,
        }
        return CHANGED

    def open_root(self, task_id: str, capability_ids: list[str]) -> str:
        if not self.rows:
            return self._new(task_id, None, "ready", capability_ids, None)
        root = next(iter(self.rows.values()))
        return SAME if (root["task_id"], root["capability_ids"]) == (task_id, capability_ids) else REFUSED

    def spawn(self, task_id: str, parent: str, role: str, capability_ids: list[str]) -> str:
        if task_id in self.rows:
            row = self.rows[task_id]
            same = row["parent_task_id"] == parent and row["capability_ids"] == capability_ids
            return SAME if same and row["process"]["role"] == role else REFUSED
        if not self.alive(parent):
            return REFUSED
        process = {"role": role, "isolation": "shared", "context_inheritance": "none", "join_result": None}
        return self._new(task_id, parent, "pending_launch", capability_ids, process)

    def publish_launch(self, task_id: str, attempt: int | None) -> str:
        if task_id not in self.rows or (attempt is not None and not self.names_live(task_id, attempt)):
            return REFUSED
        return self._move(task_id, "pending_launch", "starting")

    def acknowledge_launch(self, task_id: str, attempt: int | None) -> str:
        if task_id not in self.rows or not self.names_live(task_id, attempt):
            return REFUSED
        return self._move(task_id, "starting", "running")

    def start(self, task_id: str) -> str:
        return self._move(task_id, "ready", "running")

    def yield_task(self, task_id: str) -> str:
        return self._move(task_id, "running", "ready")

    def _move(self, task: str, source: str, target: str) -> str:
        if task not in self.rows:
            return REFUSED
        row = self.rows[task]
        if row["lifecycle"] == target:
            return SAME
        if row["lifecycle"] != source:
            return REFUSED
        row["lifecycle"] = target
        return CHANGED

    def suspend(self, task_id: str, wait: str, waiting_on: list[str], awaited: str | None, due_ms: int | None) -> str:
        if task_id not in self.rows:
            return REFUSED
        row = self.rows[task_id]
        now = (row["wait"], row["waiting_on"], row["awaited"], row["due"])
        if row["lifecycle"] == "suspended" and now == (wait, waiting_on, awaited, due_ms):
            return SAME
        if row["lifecycle"] not in ("running", "ready"):
            return REFUSED
        if wait == "sub_agent_join":
            if not waiting_on or awaited is not None or due_ms is not None:
                return REFUSED
            if any(child not in self.living_children(task_id) for child in waiting_on):
                return REFUSED
        elif waiting_on:
            return REFUSED
        row.update(lifecycle="suspended", wait=wait, waiting_on=list(waiting_on), awaited=awaited, due=due_ms)
        return CHANGED

    def extend_join(self, task_id: str, waiting_on: list[str]) -> str:
        if task_id not in self.rows or self.rows[task_id]["wait"] != "sub_agent_join" or not waiting_on:
            return REFUSED
        if any(child not in self.living_children(task_id) for child in waiting_on):
            return REFUSED
        held = self.rows[task_id]["waiting_on"]
        new = [child for child in waiting_on if child not in held]
        held.extend(new)
        return CHANGED if new else SAME

    def deliver(self, task_id: str, kind: str, awaited: str | None) -> str:
        return self._end_wait(task_id, (kind,), awaited)

    def resolve_approval(self, task_id: str, awaited: str | None) -> str:
        return self._end_wait(task_id, ("approval",), awaited)

    def expire_wait(self, task_id: str) -> str:
        name = self.rows[task_id]["awaited"] if task_id in self.rows else None
        return self._end_wait(task_id, ("approval", "signal", "message", "external"), name)

    def resume(self, task_id: str) -> str:
        if task_id in self.rows and self.rows[task_id]["lifecycle"] == "suspended":
            return self._end_wait(task_id, ("timer", "signal", "message", "external"), self.rows[task_id]["awaited"])
        return self.start(task_id)

    def _end_wait(self, task: str, kinds: tuple[str, ...], awaited: str | None) -> str:
        if task not in self.rows or self.rows[task]["wait"] not in kinds:
            return REFUSED
        row = self.rows[task]
        if row["awaited"] is not None and awaited != row["awaited"]:
            return REFUSED
        row.update(lifecycle="running", wait=None, awaited=None, due=None)
        return CHANGED

    def finish(self, task_id: str, termination: str, attempt: int | None, result: Any, on_children: str | None) -> str:
        if task_id not in self.rows or not self.names_live(task_id, attempt):
            return REFUSED
        row = self.rows[task_id]
        answer = None
        if result is not None:
            answer = {
                "final_message": None,
                "turns_used": row["turns_used"],
                "total_tokens_used": row["tokens_used"],
                **result,
                "termination": termination,
            }
        if row["lifecycle"] == "done":
            return (
                SAME if (row["termination"], row["answer"], row["failure"]) == (termination, answer, None) else REFUSED
            )
        if not self._clear_children(task_id, on_children):
            return REFUSED
        self._end(task_id, termination, answer)
        return CHANGED

    def fail_launch(self, task_id: str, attempt: int | None, reason: str, on_children: str | None) -> str:
        if task_id not in self.rows or not self.names_live(task_id, attempt):
            return REFUSED
        row = self.rows[task_id]
        if row["lifecycle"] == "done" and row["failure"] == reason:
            return SAME
        if row["lifecycle"] not in ("pending_launch", "starting") or not self._clear_children(task_id, on_children):
            return REFUSED
        row["failure"] = reason
        self._end(task_id, "error", None)
        return CHANGED

    def cancel(self, task_id: str) -> str:
        if task_id not in self.rows:
            return REFUSED
        row = self.rows[task_id]
        if row["lifecycle"] == "done":
            return SAME if (row["termination"], row["answer"]) == ("user_abort", None) else REFUSED
        self._clear_children(task_id, "cancel_children")
        self._end(task_id, "user_abort", None)
        return CHANGED

    def _clear_children(self, task: str, on_children: str | None) -> bool:
        living = self.living_children(task)
        heir = self.rows[task]["parent_task_id"]
        if not living:
            return True
        if on_children is None or (on_children == "detach" and heir is None):
            return False
        if on_children == "detach":
            for child in living:
                self._leave(child)
                self.rows[child]["parent_task_id"] = heir
        else:
            for _, child in sorted(self.below(task), reverse=True):
                self._end(child, "user_abort", None)
        return True

    def _end(self, task: str, termination: str, answer: Any) -> None:
        self._leave(task)
        row = self.rows[task]
        row.update(lifecycle="done", termination=termination, wait=None, awaited=None, due=None, answer=answer)
        if answer is not None and row["process"] is not None:
            row["process"]["join_result"] = {"agent_id": task, "result": answer}

    def _leave(self, task: str) -> None:
        for row in self.rows.values():
            if task in row["waiting_on"]:
                row["waiting_on"].remove(task)
                if not row["waiting_on"]:
                    row.update(lifecycle="running", wait=None)

    def relaunch(self, task_id: str, mode: str) -> str:
        if task_id not in self.rows or self.rows[task_id]["lifecycle"] not in ("running", "suspended"):
            return REFUSED
        row = self.rows[task_id]
        row.update(lifecycle="pending_launch", wait=None, waiting_on=[], awaited=None, due=None)
        row["attempt"] += 1
        if mode == "restart":
            row.update(tokens_used=0, turns_used=0)
        return CHANGED

    def report_usage(self, task_id: str, tokens: int, turns: int, attempt: int | None) -> str:
        if task_id not in self.rows or (attempt is not None and not self.names_live(task_id, attempt)):
            return REFUSED
        row = self.rows[task_id]
        if tokens == turns == 0:
            return SAME
        total = (row["tokens_used"] + tokens, row["turns_used"] + turns)
        if row["lifecycle"] == "done" or total[0] >= 2**64 or total[1] >= 2**32:
            return REFUSED
        row["tokens_used"], row["turns_used"] = total
        return CHANGED

    def grant_capabilities(self, task_id: str, capability_ids: list[str]) -> str:
        if task_id not in self.rows:
            return REFUSED
        new = [capability for capability in capability_ids if capability not in self.rows[task_id]["capability_ids"]]
        if new and not self.alive(task_id):
            return REFUSED
        self.rows[task_id]["capability_ids"] += new
        return CHANGED if new else SAME

    def revoke_capabilities(self, task_id: str, capability_ids: list[str]) -> str:
        if task_id not in self.rows:
            return REFUSED
        held = self.rows[task_id]["capability_ids"]
        lost = [capability for capability in capability_ids if capability in held]
        if lost and not self.alive(task_id):
            return REFUSED
        self.rows[task_id]["capability_ids"] = [capability for capability in held if capability not in lost]
        return CHANGED if lost else SAME
