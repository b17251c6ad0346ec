"""Following a recording: each step becomes the facts it means for the task table. Nothing here decides whether a fact
is legal; that is for the table of transitions, when the facts are ingested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.adapters.kernel_recording.answers import follow_answer
from engine.adapters.kernel_recording.book import ROOT, Book, Fact
from engine.adapters.kernel_recording.inputs import follow_input
from engine.adapters.kernel_recording.place import Place
from engine.adapters.kernel_recording.reading import check

__all__ = ["Step", "steps"]

ACTOR: Final = "deepstrike"
NOT_COMMITTED: Final = ("rejected", "aborted", "replayed")
"""What an answer says when its input changed nothing."""

STEP_OF_EFFECT: Final = re.compile(r":step:(\d{1,18}):effect:\d{1,18}$")


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded step as facts: (event name, data) in order. ``notes`` say where the kernel was not followed."""

    index: int
    input_id: str
    at_ms: int
    actor: str | None
    facts: tuple[Fact, ...]
    notes: tuple[str, ...] = ()


def steps(recording: Mapping[str, Any]) -> Iterator[Step]:
    """Yield every step of a recording, in order, as the facts it means; a step without facts changes nothing.

    Only ``decoded_inputs`` and ``planned_steps`` are read. Raises ImportRefused at the first step that cannot be
    followed, naming it and the place in it.
    """
    check(dict(recording) if isinstance(recording, Mapping) else recording)
    book = Book()
    known: dict[str, Any] = {}
    committed = 0
    pairs = zip(recording["decoded_inputs"], recording["planned_steps"], strict=True)
    for index, (given, answered) in enumerate(pairs):
        envelope = Place(given, f"decoded_inputs[{index}]", index)
        answer = Place(answered, f"planned_steps[{index}]", index)
        input_id, at_ms = envelope.at("input_id").id(), envelope.at("observed_at_ms").time()
        book.facts, book.notes = [], []
        if input_id in known:
            if not _same(known[input_id], given):
                envelope.at("input_id").refuse(f"the input {input_id!r} came before with other content")
        elif _committed(answer):
            known[input_id] = given
            _in_step(answer, committed)
            committed += 1
            _follow(book, envelope, answer, input_id)
        yield Step(index, input_id, at_ms, ACTOR, tuple(book.facts), tuple(book.notes))


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except RecursionError:  # only a recording that was never JSON nests so deeply
        return False


def _committed(answer: Place) -> bool:
    """Return whether the kernel took the input at all. One that it did not take may come again under its id."""
    if answer.value is None:
        return False
    disposition = answer.find("disposition")
    kind = answer.text_of("status") if disposition is None else disposition.text_of("kind")
    return kind not in NOT_COMMITTED


def _in_step(answer: Place, committed: int) -> None:
    """Refuse an answer whose effects number themselves otherwise than it stands: steps are missing or out of order."""
    for effect in answer.at("disposition").items_of("effects"):
        effect_id = effect.at("effect_id")
        numbered = STEP_OF_EFFECT.search(effect_id.text())
        if numbered and int(numbered[1]) != committed:
            effect_id.refuse(f"an effect of step {numbered[1]}, but {committed} steps came before: some are missing")


def _follow(book: Book, envelope: Place, answer: Place, input_id: str) -> None:
    given = envelope.at("input")
    kind = given.kind()
    if book.root == "done":
        envelope.refuse("the operation has ended; nothing can follow")
    if (kind == "configure_operation") is not (book.root is None):
        given.refuse(f"{kind} in the wrong place: an operation is configured first, and once")
    if book.root is None:
        book.tell("root_opened", task_id=ROOT, capability_ids=[])
        book.root = "ready"
    else:
        follow_input(book, given)
    follow_answer(book, answer, input_id)
