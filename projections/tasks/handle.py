"""How callers read and command the tasks of a run. It must never hold anything but the run's two functions; everything
handed out is immutable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

from engine.core.handle import Commands, Outcome, Queries
from projections.tasks import commands
from projections.tasks.commands import OnChildren
from projections.tasks.row import TaskControlState, TaskRows
from projections.tasks.state import TaskTable
from projections.tasks.transitions import DONE, LIFECYCLES

__all__ = ["Envelope", "Launch", "TaskCommands", "TaskQueries", "Usage", "Waiting"]


class Launch(NamedTuple):
    """The identity of a task's live attempt. ``launch_token`` lets a host tell a repeated launch from a new one."""

    task_id: str
    attempt: int
    launch_token: str | None
    lifecycle: str


class Usage(NamedTuple):
    """What a subtree has used: sums over ``tasks`` tasks, unbounded (a single task's are u64 and u32)."""

    tokens_used: int
    turns_used: int
    tasks: int


class Waiting(NamedTuple):
    """A suspended task and what it waits for."""

    task_id: str
    wait: str
    waiting_on: tuple[str, ...]
    awaited: str | None
    due_ms: int | None


class Envelope(TypedDict, total=False):
    """What every command also takes: ``command_id`` makes it repeatable, ``cause`` is a position or an id."""

    command_id: str | None
    actor: str | None
    at_ms: int | None
    cause: int | str | None


class TaskQueries(Queries[TaskTable]):
    """Reading the tasks of a run at one position."""

    def get(self, task_id: str) -> TaskControlState:
        """Return the row of a task. Raises NotFound."""
        return self._ask(lambda state: state.row(task_id))

    def rows(self) -> TaskRows:
        """Return all rows in order of creation; ``TaskTable.from_rows`` gives the table back."""
        return self._ask(TaskTable.rows)

    def root(self) -> TaskControlState | None:
        """Return the root's row, or None before it is opened."""
        return self._ask(lambda state: None if state.root is None else state.row(state.root))

    def children(self, task_id: str) -> tuple[TaskControlState, ...]:
        """Return the rows of a task's children, done ones included, in order of creation. Raises NotFound."""
        return self._ask(lambda state: tuple(map(state.row, _children(state, task_id))))

    def subtree(self, task_id: str) -> tuple[TaskControlState, ...]:
        """Return the row of a task and those of everything under it, each parent before its children. Raises
        NotFound."""
        return self._ask(lambda state: tuple(map(state.row, _subtree(state, task_id))))

    def live(self) -> tuple[TaskControlState, ...]:
        """Return the rows of the tasks that are not done, in order of creation."""
        return self._ask(lambda state: tuple(map(state.row, state.live)))

    def waiting(self) -> tuple[Waiting, ...]:
        """Return every suspended task with what it waits for, and on whom, in order of creation."""
        return self._ask(lambda state: tuple(_waiting(state)))

    def due(self, at_ms: int) -> tuple[Waiting, ...]:
        """Return the waits whose time is over at ``at_ms``: timers to deliver, others to expire; the earliest first."""
        over = [waiting for waiting in self.waiting() if waiting.due_ms is not None and waiting.due_ms <= at_ms]
        return tuple(sorted(over, key=lambda waiting: waiting.due_ms or 0))

    def usage(self, task_id: str) -> Usage:
        """Return the usage of a task and everything under it, summed. Raises NotFound."""
        return self._ask(lambda state: _usage(state, task_id))

    def launch(self, task_id: str) -> Launch:
        """Return the live attempt of a task and its launch token (None for a root that was never relaunched). Raises
        NotFound."""

        def ask(state: TaskTable) -> Launch:
            record = state.find(task_id)
            return Launch(task_id, record.attempt, record.token, record.lifecycle)

        return self._ask(ask)

    def result(self, task_id: str) -> Any:
        """Return what a task finished with, as given and completed at its end, or None. Raises NotFound."""

        def ask(state: TaskTable) -> Any:
            process = state.row(task_id).process
            if process is None:
                return state.extras(task_id).result
            join = process.join_result
            return None if join is None else join["result"]

        return self._ask(ask)

    def counts(self) -> Mapping[str, int]:
        """Return how many tasks are in each lifecycle, zeros included."""

        def ask(state: TaskTable) -> dict[str, int]:
            counts = dict.fromkeys(LIFECYCLES, 0)
            for task_id in state.live:
                counts[state.tasks.rows[task_id].lifecycle] += 1
            counts[DONE] = len(state.tasks) - len(state.live)
            return counts

        return self._ask(ask)


class TaskCommands(TaskQueries, Commands[TaskTable]):
    """Reading and commanding the tasks of a live run.

    Every method also takes ``command_id``, ``actor``, ``at_ms`` and ``cause``, and returns the Outcome: the events,
    none
    when the command repeats exactly what already is. Every method raises InvalidValue for a bad argument, NotFound for
    an unknown task, IllegalTransition when the task's lifecycle has no such step (``done`` has none), and what the
    store raises; after any of them nothing has changed.
    """

    def open_root(self, task_id: str, *, capability_ids: Sequence[str] = (), **envelope: Unpack[Envelope]) -> Outcome:
        """Open the run's one root, ready. Raises Refused when there is another."""
        command = commands.OpenRoot.make(task_id=task_id, capability_ids=capability_ids)
        return self._submit(command, **envelope)

    def spawn(
        self,
        task_id: str,
        *,
        parent: str,
        role: str = "custom",
        isolation: str = "shared",
        context_inheritance: str = "none",
        capability_ids: Sequence[str] = (),
        **envelope: Unpack[Envelope],
    ) -> Outcome:
        """Add a child, pending its launch; its attempt 1 and launch token are minted here (see :meth:`launch`).

        Raises Refused when the parent is done, or the id is taken by a task that differs.
        """
        command = commands.Spawn.make(
            task_id=task_id,
            parent=parent,
            role=role,
            isolation=isolation,
            context_inheritance=context_inheritance,
            capability_ids=capability_ids,
        )
        return self._submit(command, **envelope)

    def publish_launch(self, task_id: str, attempt: int | None = None, **envelope: Unpack[Envelope]) -> Outcome:
        """Say that a pending launch was handed to the host. Raises Refused when ``attempt`` is given and not live."""
        return self._submit(commands.PublishLaunch.make(task_id=task_id, attempt=attempt), **envelope)

    def acknowledge_launch(self, task_id: str, attempt: int | None = None, **envelope: Unpack[Envelope]) -> Outcome:
        """Say that the attempt runs: the only way a child starts to run. Raises Refused unless ``attempt`` is the live
        one."""
        return self._submit(commands.AcknowledgeLaunch.make(task_id=task_id, attempt=attempt), **envelope)

    def fail_launch(
        self,
        task_id: str,
        attempt: int | None = None,
        *,
        reason: str = "",
        on_children: OnChildren | None = None,
        **envelope: Unpack[Envelope],
    ) -> Outcome:
        """Say that the attempt will never run: the task is done with an error. Raises Refused as :meth:`finish`."""
        command = commands.FailLaunch.make(task_id=task_id, attempt=attempt, reason=reason, on_children=on_children)
        return self._submit(command, **envelope)

    def start(self, task_id: str, **envelope: Unpack[Envelope]) -> Outcome:
        """Let a ready task run."""
        return self._submit(commands.Start.make(task_id=task_id), **envelope)

    def yield_task(self, task_id: str, **envelope: Unpack[Envelope]) -> Outcome:
        """Put a running task back into the scheduler's queue."""
        return self._submit(commands.YieldTask.make(task_id=task_id), **envelope)

    def suspend(
        self,
        task_id: str,
        *,
        wait: str,
        waiting_on: Sequence[str] = (),
        awaited: str | None = None,
        due_ms: int | None = None,
        **envelope: Unpack[Envelope],
    ) -> Outcome:
        """Let a task wait: for its children (``wait="sub_agent_join"`` with ``waiting_on``), or for something else.

        ``awaited`` names what is awaited (only that is then accepted), ``due_ms`` says when a timer elapses or until
        when another wait is worth it; nobody but the host looks at a clock. Raises InvalidValue when a join names
        anything but own live children.
        """
        command = commands.Suspend.make(
            task_id=task_id, wait=wait, waiting_on=waiting_on, awaited=awaited, due_ms=due_ms
        )
        return self._submit(command, **envelope)

    def extend_join(self, task_id: str, *, waiting_on: Sequence[str], **envelope: Unpack[Envelope]) -> Outcome:
        """Let a task that waits in a join wait on further children too; those it waits on already change nothing."""
        return self._submit(commands.ExtendJoin.make(task_id=task_id, waiting_on=waiting_on), **envelope)

    def resume(self, task_id: str, **envelope: Unpack[Envelope]) -> Outcome:
        """Let a task go on: a ready one starts, a wait for a timer, signal, message or external event ends.

        Raises Refused for an approval (:meth:`resolve_approval` answers it) and for a join (its children end it).
        """
        return self._submit(commands.Resume.make(task_id=task_id), **envelope)

    def deliver(
        self, task_id: str, *, kind: str, awaited: str | None = None, payload: Any = None, **envelope: Unpack[Envelope]
    ) -> Outcome:
        """Deliver the timer, signal, message or external event that a task waits for; it is running again.

        Raises Refused when it waits for something else, or for another name. Nothing is ever kept for a later wait.
        """
        command = commands.Deliver.make(task_id=task_id, kind=kind, awaited=awaited, payload=payload)
        return self._submit(command, **envelope)

    def resolve_approval(
        self,
        task_id: str,
        *,
        approved: bool,
        awaited: str | None = None,
        payload: Any = None,
        **envelope: Unpack[Envelope],
    ) -> Outcome:
        """Answer the approval a task waits for; it is running again either way, and ``payload`` says the details."""
        command = commands.ResolveApproval.make(task_id=task_id, approved=approved, awaited=awaited, payload=payload)
        return self._submit(command, **envelope)

    def expire_wait(self, task_id: str, *, payload: Any = None, **envelope: Unpack[Envelope]) -> Outcome:
        """Say that an approval, signal, message or external event will not come in time; the task is running again.

        A timeout is an event of its own, never inferred from an empty payload.
        """
        return self._submit(commands.ExpireWait.make(task_id=task_id, payload=payload), **envelope)

    def finish(
        self,
        task_id: str,
        *,
        termination: str = "completed",
        attempt: int | None = None,
        result: dict[str, Any] | None = None,
        on_children: OnChildren | None = None,
        **envelope: Unpack[Envelope],
    ) -> Outcome:
        """End a task; a parent that waited for nothing else runs again in the same commit.

        A child's live ``attempt`` must be named; the root's only after it was relaunched. ``result`` becomes the inner
        object of ``join_result``, with termination, final_message, turns_used and total_tokens_used filled in where
        they are left out. ``on_children`` says what becomes of live children: ``cancel_children`` ends all of them,
        deepest first; ``detach`` lets them go on under the task's own parent (never from the root). Raises Refused for
        a dead attempt, or for live children about whom nothing is said.
        """
        command = commands.Finish.make(
            task_id=task_id, termination=termination, attempt=attempt, result=result, on_children=on_children
        )
        return self._submit(command, **envelope)

    def cancel(self, task_id: str, **envelope: Unpack[Envelope]) -> Outcome:
        """End a task and everything live under it with ``user_abort``, deepest first, in one commit."""
        return self._submit(commands.Cancel.make(task_id=task_id), **envelope)

    def relaunch(self, task_id: str, *, mode: str, **envelope: Unpack[Envelope]) -> Outcome:
        """Begin a running or suspended task's next attempt; ``restart`` zeroes its usage, ``retry`` keeps it.

        The attempt before it is dead: whatever still speaks for it is refused. A wait it was in is over; its live
        children go on.
        """
        return self._submit(commands.Relaunch.make(task_id=task_id, mode=mode), **envelope)

    def report_usage(
        self,
        task_id: str,
        *,
        tokens: int = 0,
        turns: int = 0,
        attempt: int | None = None,
        **envelope: Unpack[Envelope],
    ) -> Outcome:
        """Add to a task's usage. Raises LimitExceeded when u64 tokens or u32 turns would overflow; Refused when
        ``attempt`` is given and not live."""
        command = commands.ReportUsage.make(task_id=task_id, tokens=tokens, turns=turns, attempt=attempt)
        return self._submit(command, **envelope)

    def grant_capabilities(self, task_id: str, capability_ids: Sequence[str], **envelope: Unpack[Envelope]) -> Outcome:
        """Let a task do more; what it holds already changes nothing, and the order of grant is kept."""
        command = commands.GrantCapabilities.make(task_id=task_id, capability_ids=capability_ids)
        return self._submit(command, **envelope)

    def revoke_capabilities(self, task_id: str, capability_ids: Sequence[str], **envelope: Unpack[Envelope]) -> Outcome:
        """Let a task do less; what it does not hold changes nothing."""
        command = commands.RevokeCapabilities.make(task_id=task_id, capability_ids=capability_ids)
        return self._submit(command, **envelope)


def _children(state: TaskTable, task_id: str) -> list[str]:
    state.find(task_id)
    return state.in_creation_order(state.children.get(task_id, ()))


def _subtree(state: TaskTable, task_id: str) -> list[str]:
    """Return a task and everything under it, depth first, without recursion."""
    found = []
    ahead = [task_id]
    while ahead:
        found.append(at := ahead.pop())
        ahead.extend(reversed(_children(state, at)))
    return found


def _waiting(state: TaskTable) -> Iterator[Waiting]:
    for task_id in state.live:
        record = state.tasks.rows[task_id]
        if record.wait is not None:
            joined = tuple(state.joins.get(task_id, ()))
            yield Waiting(task_id, record.wait, joined, record.awaited, record.due_ms)


def _usage(state: TaskTable, task_id: str) -> Usage:
    records = [state.find(under) for under in _subtree(state, task_id)]
    return Usage(sum(r.tokens for r in records), sum(r.turns for r in records), len(records))
