"""What the host's inputs mean for the task table: launches, completions, answers. An input that this module does not
know is taken for one that changes no task only when it names none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.adapters.kernel_recording.book import Book, Child, Effect
from engine.adapters.kernel_recording.place import Place

__all__ = ["RESULT_OF", "follow_input", "refuse_when_it_names_tasks"]

RESULT_OF: Final[Mapping[str, str]] = {
    "call_provider": "provider",
    "execute_tools": "tools",
    "request_approval": "approval",
    "spawn_tasks": "tasks_spawned",
    "preempt_tasks": "tasks_preempted",
    "persist_memory": "memory_persisted",
    "query_memory": "memory_queried",
    "archive_page_out": "page_out_archived",
    "load_payload": "payload_loaded",
    "evaluate_milestone": "milestone_evaluated",
}
"""Effect kind -> the kind of result that resolves it."""

CHILD_ENDS: Final[Mapping[str, str]] = {"completed": "completed", "failed": "error", "cancelled": "user_abort"}
"""How a child says it ended -> its termination."""

PREEMPTIONS: Final = ("preempted", "already_finished", "failed")
"""How a host may answer a preemption. Whatever it says, the kernel gives the task up."""

NAMES_TASKS: Final = frozenset(("task_id", "task_ids", "tasks", "attempts", "attempt_id", "agent_id", "launch_token"))
WITHOUT_TASKS: Final = frozenset(("host_control", "deliver_signal"))
"""Known to change no task by themselves, whatever they name: a signal's target is only its address, and what a control
command brings about stands in the answer."""


def follow_input(book: Book, given: Place) -> None:
    """Add the facts that an input after the first means."""
    kind = given.kind()
    if (kind == "start_operation") is not (book.root == "ready"):
        given.refuse(f"{kind} in the wrong place: an operation is started once, after it was configured")
    if kind == "start_operation":
        entry = given.at("entry").at("kind")
        if entry.text() not in ("agent", "workflow"):
            entry.refuse(f"an entry of kind {entry.text()!r} is not known")
        book.root_kind = entry.text()
    elif kind == "resolve_effect":
        _resolve(book, given)
    elif kind == "deliver_external_event":
        event = given.at("event")
        if event.kind() == "child_completed":
            _child_completed(book, event)
        else:
            refuse_when_it_names_tasks(event)
    else:
        refuse_when_it_names_tasks(given)


def refuse_when_it_names_tasks(place: Place) -> None:
    """Refuse something of unknown kind that could change the task table: it names tasks somewhere."""
    kind = place.kind()
    if kind in WITHOUT_TASKS:
        return
    open_values = [place.value]
    while open_values:
        value = open_values.pop()
        if type(value) is dict:
            if not NAMES_TASKS.isdisjoint(value):
                place.refuse(f"{kind!r} is not known, and names tasks: it could change the task table")
            open_values += value.values()
        elif type(value) is list:
            open_values += value


def _resolve(book: Book, given: Place) -> None:
    effect_id = given.at("effect_id")
    effect = book.pending.pop(effect_id.text(), None)
    if effect is None:
        effect_id.refuse(f"no effect {effect_id.text()!r} is out")
    outcome = given.at("outcome")
    status = outcome.at("status")
    if status.text() == "failed":
        _failed(book, effect_id.text(), effect, outcome.at("failure"))
        return
    if status.text() != "succeeded":
        status.refuse(f"an outcome {status.text()!r} is not known")
    result = outcome.at("result")
    wanted = RESULT_OF.get(effect.kind, result.kind())
    if result.kind() != wanted:
        result.at("kind").refuse(f"{effect.kind} is resolved by {wanted}, not by {result.kind()}")
    follow = _RESULTS.get(effect.kind)
    if follow is not None:
        follow(book, effect_id.text(), effect, result)
    elif effect.kind not in RESULT_OF:
        refuse_when_it_names_tasks(result)


def _failed(book: Book, effect_id: str, effect: Effect, failure: Place) -> None:
    """The host could not carry out an effect: launches failed, an approval will not come."""
    reason = _reason(failure)
    if effect.kind == "spawn_tasks":
        book.late_launch()
        for task_id in effect.tasks:
            book.fail_launch(task_id, book.children[task_id], reason)
    elif effect.kind == "request_approval":
        book.answer_approval(effect_id, "timed_out", {"failure": reason})


def _reason(failure: Place) -> str:
    kind, message = failure.text_of("kind", "unknown"), failure.text_of("message")
    return f"{kind}: {message}" if message else kind


def _approved(book: Book, effect_id: str, effect: Effect, result: Place) -> None:
    approved = [call.text() for call in result.items_of("approved_call_ids")]
    denied = [call.text() for call in result.items_of("denied_call_ids")]
    how = "approved" if approved else "denied"
    book.answer_approval(effect_id, how, {"approved_call_ids": approved, "denied_call_ids": denied})


def _spawned(book: Book, effect_id: str, effect: Effect, result: Place) -> None:
    book.late_launch()
    for attempt in result.at("attempts").items():
        task_id, child = _named(book, effect, attempt)
        outcome = attempt.at("outcome")
        status = outcome.at("status")
        if status.text() == "started":
            book.acknowledge(task_id, child)
        elif status.text() == "failed":
            book.fail_launch(task_id, child, _reason(outcome.at("failure")))
        else:
            status.refuse(f"a launch that is {status.text()!r} is not known")


def _preempted(book: Book, effect_id: str, effect: Effect, result: Place) -> None:
    for attempt in result.at("attempts").items():
        task_id, child = _named(book, effect, attempt)
        status = attempt.at("outcome").at("status")
        if status.text() not in PREEMPTIONS:
            status.refuse(f"a preemption that is {status.text()!r} is not known")
        if child.state == "done":
            book.not_again(task_id)
        else:
            book.finish(task_id, child, "user_abort")


def _named(book: Book, effect: Effect, attempt: Place) -> tuple[str, Child]:
    """Return the child that an attempt of a result names. Refuses one that the effect does not name."""
    task_id = attempt.at("task_id")
    if task_id.text() not in effect.tasks:
        task_id.refuse(f"{task_id.text()!r} is not a task of this effect")
    return task_id.text(), _live_attempt(book, task_id.text(), attempt)


def _live_attempt(book: Book, task_id: str, place: Place) -> Child:
    child = book.children[task_id]
    attempt_id = place.at("attempt_id")
    if attempt_id.text() != child.attempt_id:
        attempt_id.refuse(f"the live attempt of {task_id!r} is {child.attempt_id!r}")
    return child


_RESULTS: Final[Mapping[str, Callable[[Book, str, Effect, Place], None]]] = {
    "request_approval": _approved,
    "spawn_tasks": _spawned,
    "preempt_tasks": _preempted,
}


def _child_completed(book: Book, event: Place) -> None:
    task_id = event.at("task_id")
    if task_id.text() not in book.children:
        task_id.refuse(f"there is no child {task_id.text()!r}")
    child = _live_attempt(book, task_id.text(), event)
    if child.state == "done":
        task_id.refuse(f"{task_id.text()!r} is done already")
    result = event.at("result")
    status = result.at("status")
    if status.text() not in CHILD_ENDS:
        status.refuse(f"a child that is {status.text()!r} is not known")
    termination = CHILD_ENDS[status.text()]
    usage = result.find("usage")
    book.use(task_id.text(), usage)
    book.finish(task_id.text(), child, termination, _join_result(result, usage, termination))


def _join_result(result: Place, usage: Place | None, termination: str) -> dict[str, Any]:
    """Return what the kernel's join reads. Its token count leaves the input tokens out; the task's own usage does
    not."""
    output = result.find("output")
    return {
        "termination": termination,
        "final_message": None if output is None else {"role": "assistant", "content": output.text()},
        "turns_used": 0 if usage is None else usage.turns_of("turns"),
        "total_tokens_used": 0 if usage is None else usage.tokens_of("output_tokens"),
    }
