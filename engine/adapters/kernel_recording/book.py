"""What following a recording has to remember between its steps: the root, the children, the effects that are out. It
must hold nothing that the recording itself, read from its beginning, does not give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from engine.adapters.kernel_recording.place import Place

__all__ = ["ROOT", "Book", "Child", "Effect", "Fact"]

ROOT: Final = "root"
"""The id of the kernel's one root task."""

Fact: TypeAlias = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class Child:
    """A child task as far as the recording has told: ``state`` is starting, running or done."""

    attempt_id: str
    attempt: int
    state: str = "starting"


class Effect(NamedTuple):
    """An effect that the host has not resolved yet, and the tasks it names."""

    kind: str
    tasks: tuple[str, ...]


@dataclass(slots=True)
class Book:
    """The bookkeeping of one recording, and the facts of the step at hand."""

    root: str | None = None
    """None before configure, then ready, running, approval, join, done."""
    root_kind: str | None = None
    """What the operation runs, from its start on: agent or workflow."""
    awaited: str | None = None
    """The effect whose answer the root waits for, in ``approval``."""
    answer: tuple[str, Any] | None = None
    """How that approval was answered, and with what, until the kernel has the root go on."""
    join: list[str] = field(default_factory=list)
    """The live children the root waits for, in ``join``; empty otherwise."""
    children: dict[str, Child] = field(default_factory=dict)
    pending: dict[str, Effect] = field(default_factory=dict)
    effects: set[str] = field(default_factory=set)
    """Every effect id so far."""
    facts: list[Fact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def tell(self, name: str, **data: Any) -> None:
        """Add a fact to the step at hand."""
        self.facts.append((f"task.{name}", data))

    # -- the root -----------------------------------------------------------------------------------------------------

    def run_root(self, place: Place) -> None:
        """Let the root run, because the kernel has it do something."""
        if self.root == "ready":
            self.tell("started", task_id=ROOT)
        elif self.root == "approval":
            self.end_approval()
        elif self.root == "join":
            waiting = ", ".join(self.join)
            place.refuse(f"the root runs on while it waits for {waiting}; a join ends with its last child")
        self.root = "running"

    def suspend_root(self, place: Place, effect_id: str) -> None:
        """Let the root wait for an approval."""
        if self.root != "ready":
            self.run_root(place)
        self.tell("suspended", task_id=ROOT, wait="approval", waiting_on=[], awaited=effect_id, due_ms=None)
        self.root, self.awaited, self.answer = "approval", effect_id, None

    def answer_approval(self, effect_id: str, how: str, payload: Any) -> None:
        """Keep the answer to an approval that the root waits for. The wait itself ends when the kernel has the root go
        on, which need not be at once."""
        if self.root == "approval" and self.awaited == effect_id:
            self.answer = how, payload

    def end_approval(self) -> None:
        """End the root's wait for an approval, with its answer when there was one."""
        if self.answer is None:
            self.notes.append(f"the kernel went on without the answer to {self.awaited}: that wait timed out")
        how, payload = self.answer or ("timed_out", None)
        self.tell("wait_ended", task_id=ROOT, how=how, awaited=self.awaited, payload=payload)
        self.root, self.answer = "running", None

    def join_root(self, place: Place, spawned: list[str]) -> None:
        """Let the root wait for the children it has just spawned: beside those it waits for already, or, when it was
        running, beside every live one, in the order they were spawned. Out of an approval the kernel lets it wait for
        the new ones alone."""
        if self.root == "join":
            self.join += spawned
            self.tell("join_extended", task_id=ROOT, waiting_on=spawned)
            return
        if self.root == "approval":
            self.end_approval()
            waiting = list(spawned)
        else:
            waiting = [task_id for task_id, _ in self.live()]
        self.join = list(waiting)
        self.tell("suspended", task_id=ROOT, wait="sub_agent_join", waiting_on=waiting, awaited=None, due_ms=None)
        self.root = "join"

    def late_launch(self) -> None:
        """Note that the kernel ends the root over an answer about launches: it does so, in an operation that runs a
        workflow, when that workflow ended before the answer came."""
        if self.root_kind == "workflow" and self.root != "join":
            self.notes.append("the kernel ends the root, and the operation goes on; here the root goes on with it")

    # -- the children -------------------------------------------------------------------------------------------------

    def acknowledge(self, task_id: str, child: Child) -> None:
        """Say that a child runs, unless it is further already."""
        if child.state == "starting":
            self.tell("launch_acknowledged", task_id=task_id, attempt=child.attempt)
            child.state = "running"

    def fail_launch(self, task_id: str, child: Child, reason: str) -> None:
        """Say that a child never ran."""
        if child.state == "starting":
            self.tell("launch_failed", task_id=task_id, attempt=child.attempt, reason=reason)
            self._left(task_id, child)
        else:
            self.not_again(task_id)

    def finish(self, task_id: str, child: Child, termination: str, result: Any = None, because: Any = None) -> None:
        """End a child. The last one a join waits for lets the root run in the same event."""
        self.tell(
            "finished",
            task_id=task_id,
            termination=termination,
            attempt=child.attempt,
            result=result,
            because=because,
        )
        self._left(task_id, child)

    def not_again(self, task_id: str) -> None:
        """Note that the kernel ends a child a second time."""
        self.notes.append(f"the kernel ends {task_id} a second time; here it stays as it first ended")

    def _left(self, task_id: str, child: Child) -> None:
        child.state = "done"
        if task_id in self.join:
            self.join.remove(task_id)
            if not self.join and self.root == "join":
                self.root = "running"

    def live(self) -> list[tuple[str, Child]]:
        """Return the children that are not done, in the order they were spawned."""
        return [(task_id, child) for task_id, child in self.children.items() if child.state != "done"]

    def use(self, task_id: str, usage: Place | None) -> None:
        """Report what a usage report of the recording adds to a task."""
        if usage is None:
            return
        tokens = usage.tokens_of("input_tokens") + usage.tokens_of("output_tokens")
        turns = usage.turns_of("turns")
        if tokens or turns:
            self.tell("usage_reported", task_id=task_id, tokens=tokens, turns=turns)
