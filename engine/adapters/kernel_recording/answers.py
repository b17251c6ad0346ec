"""What the kernel's answers mean for the task table: spawns, waits, the end. Observations are left alone: whatever they
tell stands in the inputs and effects as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from engine.adapters.kernel_recording.book import ROOT, Book, Child, Effect
from engine.adapters.kernel_recording.inputs import RESULT_OF, refuse_when_it_names_tasks
from engine.adapters.kernel_recording.place import Place
from projections.tasks import TERMINATIONS

__all__ = ["follow_answer"]

ATTEMPT: Final = re.compile(r":attempt:(\d{1,9})$")
MOVES_ROOT: Final = ("call_provider", "execute_tools", "request_approval", "spawn_tasks")
AGENT_ENDS: Final[Mapping[str, str]] = {"deadline": "timeout"}
"""Terminations of an agent that the task table calls by another name."""


def follow_answer(book: Book, answer: Place, input_id: str) -> None:
    """Add the facts that an answer means."""
    disposition = answer.at("disposition")
    kind = disposition.at("kind")
    if kind.text() == "effects":
        effects = [_effect(book, effect, input_id) for effect in disposition.items_of("effects")]
        _move_root(book, effects)
    elif kind.text() == "terminal":
        _terminal(book, disposition.at("terminal"))
    else:
        kind.refuse(f"a disposition {kind.text()!r} is not known")


class Move(NamedTuple):
    """What one effect asks of the root."""

    kind: str
    place: Place
    effect_id: str
    tasks: tuple[str, ...]


def _move_root(book: Book, effects: list[Move]) -> None:
    """Move the root as the last effect that moves it says: of a spawn and tools in one step, the tools let it run."""
    moves = [move for move in effects if move.kind in MOVES_ROOT and (move.kind != "spawn_tasks" or move.tasks)]
    if not moves:
        return
    kind, place, effect_id, tasks = moves[-1]
    if kind == "request_approval":
        book.suspend_root(place, effect_id)
    elif kind == "spawn_tasks":
        book.join_root(place, list(tasks))
    else:
        book.run_root(place)


def _effect(book: Book, envelope: Place, input_id: str) -> Move:
    """Note an effect that is out, add the children it spawns, and return what it asks of the root."""
    effect_id = envelope.at("effect_id")
    name = effect_id.id()
    if name in book.effects:
        effect_id.refuse(f"the effect {name!r} came before")
    cause = envelope.find("causation_input_id")
    if cause is not None and cause.text() != input_id:
        cause.refuse(f"an effect of {cause.text()!r} in the answer to {input_id!r}")
    effect = envelope.at("effect")
    kind = effect.kind()
    tasks: tuple[str, ...] = ()
    if kind == "spawn_tasks":
        tasks = tuple(_spawn(book, task) for task in effect.at("tasks").items())
    elif kind == "preempt_tasks":
        tasks = tuple(_preempt(book, attempt) for attempt in effect.at("attempts").items())
    elif kind not in RESULT_OF:
        refuse_when_it_names_tasks(effect)
    book.effects.add(name)
    book.pending[name] = Effect(kind, tasks)
    return Move(kind, effect, name, tasks)


def _spawn(book: Book, task: Place) -> str:
    """Add a child whose launch is published. The kernel's parent is always the root."""
    task_id = task.at("task_id")
    name = task_id.id()
    if name in book.children or name == ROOT:
        task_id.refuse(f"the task {name!r} is spawned a second time", hint="task ids are unique in a run")
    attempt_id = task.at("attempt_id").id()
    numbered = ATTEMPT.search(attempt_id)
    attempt = int(numbered[1]) if numbered else 1
    token, spec = task.find("launch_token"), task.find("spec")
    book.tell(
        "spawned",
        task_id=name,
        parent_task_id=ROOT,
        role="custom" if spec is None else spec.text_of("role", "custom"),
        isolation="shared" if spec is None else spec.text_of("isolation", "shared"),
        context_inheritance="none" if spec is None else spec.text_of("context_inheritance", "none"),
        capability_ids=[],
        attempt=attempt,
        launch_token=None if token is None else token.id(),
    )
    book.tell("launch_published", task_id=name, attempt=attempt)
    book.children[name] = Child(attempt_id, attempt)
    return name


def _preempt(book: Book, attempt: Place) -> str:
    task_id = attempt.at("task_id")
    if task_id.text() not in book.children:
        task_id.refuse(f"there is no child {task_id.text()!r}")
    return task_id.text()


def _terminal(book: Book, terminal: Place) -> None:
    """End the root: its own usage first, then whatever is still live under it."""
    kind = terminal.at("kind")
    result: dict[str, Any]
    if kind.text() == "agent":
        told = terminal.at("result")
        said = told.at("termination").text()
        termination = AGENT_ENDS.get(said, said)
        if termination not in TERMINATIONS:
            told.at("termination").refuse(f"an agent that ends as {said!r} is not known")
        result = {**told.value, "termination": termination}
    elif kind.text() == "workflow":
        termination, result = "completed", {"outcome": terminal.at("outcome").value}
    elif kind.text() == "failed":
        termination, result = "error", {"failure": terminal.at("failure").value}
    elif kind.text() == "cancelled":
        termination, result = "user_abort", {"reason": terminal.text_of("reason")}
    else:
        kind.refuse(f"a terminal {kind.text()!r} is not known")
    if book.answer is not None:
        book.end_approval()
    book.use(ROOT, terminal.find("usage"))
    live = book.live()
    if live and kind.text() != "cancelled":
        names = ", ".join(task_id for task_id, _ in live)
        book.notes.append(f"the operation ended over live children, which are cancelled here: {names}")
    for task_id, child in live:
        book.finish(task_id, child, "user_abort", because=ROOT)
    book.tell("finished", task_id=ROOT, termination=termination, attempt=None, result=result)
    book.root = "done"
    book.pending.clear()
