"""Why: the chain of events that led to the present state of one subject, in words a person reads. The state says what
is, the journal since when, by whom and because of what. It must never write, nor say what neither of them says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from engine.core.envelope import Event
from engine.core.errors import NotFound
from engine.core.model import Model
from engine.documents import Queried
from engine.history import HistoryFilter, history, subjects
from engine.store import Journal
from projections.contexts.context_state import COMPACT_AT

__all__ = ["Step", "Why", "why_context", "why_node", "why_task", "why_worker"]

_CHAIN_MAX = 50  # tasks followed from one to the next that it waits on


@dataclass(frozen=True, slots=True)
class Step:
    """One event on the way to the present state, in words."""

    seq: int
    type: str
    actor: str | None
    command_id: str | None
    cause: int | str | None
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the step for ``--json``."""
        return {
            "seq": self.seq,
            "type": self.type,
            "actor": self.actor,
            "command_id": self.command_id,
            "cause": self.cause,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Why:
    """The answer: what the subject is and since when in one sentence, and the steps that led there, oldest first."""

    subject: str
    answer: str
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the answer for ``--json``."""
        return {"subject": self.subject, "answer": self.answer, "steps": [step.to_json() for step in self.steps]}


# -- tasks ------------------------------------------------------------------------------------------------------------


def why_task(
    journal: Journal, model: Model, state: Queried, run_id: str, task_id: str, *, until: int | None = None
) -> Why:
    """Return why a task is in its state, followed through the tasks it waits on. Raises NotFound, CorruptJournal.

    ``state`` is the run, or its view at ``until``. Reads the history once.
    """
    involved = _chain(state, task_id)
    lives: dict[str, list[Event]] = {name: [] for name in involved}
    for event in history(journal, model, run_id, HistoryFilter(types=frozenset(("task",)), until=until)):
        if event.type.startswith("task.usage_reported"):
            continue
        for name in subjects(event) & lives.keys():
            if name == event.data.get("task_id") or name == event.data.get("wakes"):
                lives[name].append(event)
    answer = f"{task_id} is {_task_in_words(state, task_id, lives, set())}"
    steps = tuple(_step(event, _task_event_in_words(event, task_id)) for event in lives[task_id])
    return Why(f"task {task_id}", answer, steps)


def _chain(state: Queried, task_id: str) -> list[str]:
    """Return the task and those it waits on, directly or through others."""
    involved = [task_id]
    for name in involved:
        if len(involved) >= _CHAIN_MAX:
            break
        involved.extend(child for child in state.tasks.get(name).waiting_on if child not in involved)
    return involved[:_CHAIN_MAX]


def _task_in_words(state: Queried, task_id: str, lives: dict[str, list[Event]], told: set[str]) -> str:
    """Return what a task is, since when and why: ``suspended since #812, waiting on fetch-3 (running since #790,
    attempt 2 ...)``."""
    told.add(task_id)
    row = state.tasks.get(task_id)
    events = lives.get(task_id, [])
    last = _last_step(events, task_id)
    since = "" if last is None else f" since #{last.seq}"
    by = "" if last is None or last.actor is None else f" by {last.actor}"
    words = row.lifecycle.replace("_", " ")
    if row.lifecycle == "done":
        return f"done ({row.termination}){since}{by}{_because(last)}"
    if row.lifecycle == "suspended" and row.wait == "sub_agent_join":
        waits = []
        for child in row.waiting_on:
            if child in lives and child not in told:
                waits.append(f"{child} ({_task_in_words(state, child, lives, told)})")
            else:
                waits.append(child)
        return f"suspended{since}, waiting on {', '.join(waits)}"
    if row.lifecycle == "suspended":
        what = f"for {row.wait}" if last is None else _waiting({**last.data, "wait": row.wait})
        return f"suspended{since}{by}, waiting {what}"
    return f"{words}{since}{by}{_attempts(state, task_id, events)}{_because(last, task_id)}"


def _last_step(events: Iterable[Event], task_id: str) -> Event | None:
    """Return the last event that moved the task along its life cycle."""
    last = None
    for event in events:
        own = event.data.get("task_id") == task_id
        upkeep = event.type.partition("/")[0] in (
            "task.capabilities_granted",
            "task.capabilities_revoked",
            "task.join_extended",
        )
        if (own and not upkeep and not event.type.startswith("task.detached")) or event.data.get("wakes") == task_id:
            last = event
    return last


def _attempts(state: Queried, task_id: str, events: Iterable[Event]) -> str:
    """Return which attempt lives, and what became of the one before."""
    number = state.tasks.launch(task_id).attempt if state.tasks.get(task_id).process is not None else 1
    if number <= 1:
        return ""
    relaunched = [event for event in events if event.type.startswith("task.relaunched")]
    after = (
        f" after the {relaunched[-1].data['mode']} of attempt {number - 1} at #{relaunched[-1].seq}"
        if relaunched
        else ""
    )
    return f", attempt {number}{after}"


def _because(last: Event | None, task_id: str | None = None) -> str:
    if last is None:
        return ""
    if task_id is not None and last.data.get("wakes") == task_id:
        return f", because {last.data['task_id']}, the last it waited on, ended"
    if last.type.startswith("task.launch_failed"):
        return f", because the launch of attempt {last.data['attempt']} failed" + _reason(last.data.get("reason"))
    if last.data.get("because"):
        return f", because {last.data['because']} ended"
    if isinstance(last.cause, int):
        return f", because of #{last.cause}"
    return "" if last.cause is None else f", because of {last.cause}"


def _task_event_in_words(event: Event, task_id: str) -> str:
    data = event.data
    if data.get("wakes") == task_id and data.get("task_id") != task_id:
        return f"resumed: {data['task_id']}, the last child it waited on, ended"
    name = event.type.partition("/")[0].removeprefix("task.")
    details = {
        "root_opened": "opened as the root",
        "spawned": f"spawned under {data.get('parent_task_id')} as {data.get('role')}",
        "launch_published": f"launch of attempt {data.get('attempt')} published",
        "launch_acknowledged": f"attempt {data.get('attempt')} acknowledged: running",
        "launch_failed": f"launch of attempt {data.get('attempt')} failed" + _reason(data.get("reason")),
        "started": "started",
        "yielded": "yielded to the scheduler",
        "suspended": "suspended, waiting " + _waiting(data),
        "join_extended": f"waits on {', '.join(data.get('waiting_on') or [])} as well",
        "wait_ended": f"wait ended: {data.get('how')}",
        "finished": f"finished: {data.get('termination')}",
        "relaunched": f"relaunched ({data.get('mode')}) as attempt {data.get('attempt')}",
        "capabilities_granted": f"may also {', '.join(data.get('capability_ids') or [])}",
        "capabilities_revoked": f"may no longer {', '.join(data.get('capability_ids') or [])}",
        "detached": f"detached, now under {data.get('parent_task_id')}",
    }
    return details.get(name, name.replace("_", " "))


def _waiting(data: dict[str, Any]) -> str:
    if data.get("waiting_on"):
        return "on " + ", ".join(data["waiting_on"])
    due = "" if data.get("due_ms") is None else f" until {_time(data['due_ms'])}"
    return f"for {data.get('wait')}" + (f" {data['awaited']!r}" if data.get("awaited") else "") + due


def _time(at_ms: int) -> str:
    """Return a time as people read it, in UTC; a number that no calendar holds as the number."""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"


def _reason(reason: Any) -> str:
    return "" if not reason else f": {reason}"


def _step(event: Event, text: str) -> Step:
    return Step(event.seq, event.type, event.actor, event.command_id, event.cause, text)


def _plain(event: Event) -> Step:
    """Return a step whose words are the event's name and its short fields."""
    name = event.type.partition("/")[0].partition(".")[2].replace("_", " ")
    skip = ("graph", "node", "context", "worker", "at_ms", "extra")
    shown = [
        f"{key} {value}"
        for key, value in event.data.items()
        if key not in skip and value is not None and isinstance(value, str | int | float) and len(str(value)) <= 60
    ]
    return _step(event, f"{name}: {', '.join(shown)}" if shown else name)


# -- graphs, contexts, workers ----------------------------------------------------------------------------------------


def why_node(
    journal: Journal, model: Model, state: Queried, run_id: str, graph: str, node: int, *, until: int | None = None
) -> Why:
    """Return why a node is in its status: what holds it, and what has happened to it. Raises NotFound,
    CorruptJournal."""
    now = state.graphs.node(graph, node)
    wanted = HistoryFilter(graph=graph, node=node, until=until)
    steps = tuple(_plain(event) for event in history(journal, model, run_id, wanted))
    own = [step for step in steps if step.type.startswith("node.")]  # the graph's steps name nodes too
    since = f" since #{own[-1].seq}" if own else ""
    cause = own[-1].cause if own else None
    because = f", because of #{cause}" if isinstance(cause, int) else ""
    last = now.attempts[-1] if now.attempts and now.status == "failed" else None
    ended = "" if last is None else f", attempt {last.number} ended with {last.outcome}{_reason(last.error)}"
    held = "; ".join(blockage.reason for blockage in state.graphs.why(graph, node))
    answer = f"node {node} ({now.title}) is {now.status}{since}{because}{ended}" + (f": {held}" if held else "")
    return Why(f"node {graph}/{node}", answer, steps)


def why_context(
    journal: Journal, model: Model, state: Queried, run_id: str, context: str, *, until: int | None = None
) -> Why:
    """Return why a conversation needs compaction or not, and what shaped it. Raises NotFound, CorruptJournal."""
    estimate, count = state.contexts.est_tokens(context), state.contexts.message_count(context)
    steps = [
        _plain(event)
        for event in history(journal, model, run_id, HistoryFilter(context=context, until=until))
        if event.type.partition("/")[0] not in ("context.messages_appended", "context.touched", "context.turn_begun")
    ]
    window = state.contexts.get(context).model_window
    compacted = [step for step in steps if step.type.startswith("context.compacted")]
    last = f"last compacted at #{compacted[-1].seq}" if compacted else "never compacted"
    if window == 0:
        size = f"holds about {estimate} tokens in {count} messages; its window is unknown"
    elif state.contexts.needs_compaction(context):
        size = f"is over its window: about {estimate} tokens in {count} messages, more than {COMPACT_AT:g} of {window}"
    else:
        size = f"is within its window: about {estimate} of {window} tokens in {count} messages"
    return Why(f"context {context}", f"{context} {size}; {last}", tuple(steps))


def why_worker(
    journal: Journal, model: Model, state: Queried, run_id: str, worker: int, *, until: int | None = None
) -> Why:
    """Return why a worker of the swarm is in its phase, an open escalation among it. Raises NotFound,
    CorruptJournal."""
    summary = state.swarm.worker(worker)
    if summary is None:
        raise NotFound(
            f"there is no worker {worker} in the swarm of run {run_id!r}", hint="'refold show RUN --swarm' lists them"
        )
    steps = [_plain(event) for event in history(journal, model, run_id, HistoryFilter(worker=worker, until=until))]
    raised = [step for step in steps if step.type.startswith(("swarm.escalation_raised", "swarm.escalation_cleared"))]
    since = f" since #{raised[-1].seq} ({raised[-1].text})" if raised and summary.has_escalation else ""
    failures = summary.consecutive_failures
    answer = f"worker {worker} is {summary.phase}{since}; {failures} failures in a row, {summary.history_len} actions"
    return Why(f"worker {worker}", answer, tuple(steps))
