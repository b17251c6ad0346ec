"""Hypothesis strategies for tasks: every command of the handle, legal now or not, over a small family of ids."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from projections.tasks import TERMINATIONS, WAITS

TASKS = st.sampled_from(["root", "a", "b", "c", "d", "e"])
SUBSETS = st.lists(TASKS, unique=True, max_size=3)
ATTEMPTS = st.sampled_from([1, 1, 1, 1, 2, 2, None, 3])
CAPABILITIES = st.lists(st.sampled_from(["read", "write", "exec"]), unique=True, max_size=2)
CHILDREN = st.sampled_from(["a", "b", "c", "d", "e"])
ON_CHILDREN = st.sampled_from([None, "cancel_children", "detach"])
RARELY = st.sampled_from([None, None, None, "cancel_children", "detach", "detach"])
NAMES = st.sampled_from([None, None, "go", "stop"])
RESULTS = st.sampled_from([None, None, {}, {"final_message": "x"}, {"turns_used": 7, "extra": [1, {"k": None}]}])
TOKENS = st.sampled_from([0, 1, 40, 2**63, 2**64 - 1])
TURNS = st.sampled_from([0, 0, 1, 2**32 - 1])

COMMANDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "open_root": {"task_id": st.sampled_from(["root", "root", "a"]), "capability_ids": st.just([])},
    "spawn": {
        "task_id": TASKS,
        "parent": TASKS,
        "role": st.sampled_from(["custom", "custom", "plan"]),
        "capability_ids": st.sampled_from([[], [], ["read"]]),
    },
    "publish_launch": {"task_id": TASKS, "attempt": st.sampled_from([None, 1, 2])},
    "acknowledge_launch": {"task_id": TASKS, "attempt": ATTEMPTS},
    "fail_launch": {
        "task_id": TASKS,
        "attempt": ATTEMPTS,
        "reason": st.sampled_from(["", "full"]),
        "on_children": ON_CHILDREN,
    },
    "start": {"task_id": TASKS},
    "yield_task": {"task_id": TASKS},
    "suspend": {
        "task_id": TASKS,
        "wait": st.sampled_from(WAITS),
        "waiting_on": st.just([]),
        "awaited": NAMES,
        "due_ms": st.sampled_from([None, 5]),
    },
    "extend_join": {"task_id": TASKS, "waiting_on": SUBSETS},
    "resume": {"task_id": TASKS},
    "deliver": {"task_id": TASKS, "kind": st.sampled_from(["timer", "signal", "message"]), "awaited": NAMES},
    "resolve_approval": {"task_id": TASKS, "approved": st.booleans(), "awaited": NAMES},
    "expire_wait": {"task_id": TASKS},
    "finish": {
        "task_id": TASKS,
        "termination": st.sampled_from(TERMINATIONS),
        "attempt": ATTEMPTS,
        "result": RESULTS,
        "on_children": ON_CHILDREN,
    },
    "cancel": {"task_id": TASKS},
    "relaunch": {"task_id": TASKS, "mode": st.sampled_from(["restart", "retry"])},
    "report_usage": {"task_id": TASKS, "tokens": TOKENS, "turns": TURNS, "attempt": st.sampled_from([None, 1, 2])},
    "grant_capabilities": {"task_id": TASKS, "capability_ids": CAPABILITIES},
    "revoke_capabilities": {"task_id": TASKS, "capability_ids": CAPABILITIES},
}
JOIN = {
    "task_id": TASKS,
    "wait": st.just("sub_agent_join"),
    "waiting_on": SUBSETS,
    "awaited": st.none(),
    "due_ms": st.none(),
}


def command(name: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.fixed_dictionaries(COMMANDS[name]).map(lambda arguments: (name, arguments))


GHOST = st.sampled_from(sorted(COMMANDS)).flatmap(command).map(lambda c: (c[0], {**c[1], "task_id": "ghost"}))
ANY = st.one_of(
    GHOST, *map(command, COMMANDS), st.fixed_dictionaries(JOIN).map(lambda arguments: ("suspend", arguments))
)
