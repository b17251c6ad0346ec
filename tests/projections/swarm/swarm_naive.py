"""A second, slow reading of the contract: a swarm as plain Python values, for comparing. It knows nothing of events,
tables or folds; rates and phases are worked out at each question.

Each command says whether the contract refuses it, finds that it repeats what is, or changes something.
"""

from __future__ import annotations

import copy
from typing import Any

REFUSED, SAME, CHANGED = "refused", "same", "changed"


def same(one: Any, other: Any) -> bool:
    """Equal with their types: 1, 1.0 and true are three values."""
    return repr(_sorted(one)) == repr(_sorted(other))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((key, _sorted(item)) for key, item in value.items())
    return [_sorted(item) for item in value] if isinstance(value, list) else value


class Worker:
    """What a worker did so far. ``idle_at`` is the tick at which it said last that it was idle."""

    def __init__(self) -> None:
        self.failures = self.history = 0
        self.last: tuple[Any, Any, Any] = (None, None, None)
        self.idle = True
        self.idle_at: int | None = None
        self.done: tuple[bool, str | None] | None = None


class NaiveSwarm:
    def __init__(self) -> None:
        self.told: list[Any] | None = None
        self.taken: list[Any] | None = None
        """What an imported swarm showed at first."""
        self.threshold = self.max_ticks = self.tick = self.visits = self.successes = 0
        self.workers: dict[int, Worker] = {}
        self.open: list[list[Any]] = []
        """Worker, reason, tick, in the order in which they were raised."""
        self.attempts: dict[int, int] = {}
        self.guidances: dict[int, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.excluded: list[str] = []
        self.v2: list[Any] | None = None
        self.actions: Any = None
        self.verdict: list[Any] | None = None

    # -- questions ------------------------------------------------------------------------------------------------

    @property
    def success_rate(self) -> float:
        return self.successes / self.visits if self.visits else 0.0

    @property
    def progress(self) -> float:
        return min(1.0, self.tick / self.max_ticks) if self.max_ticks else 0.0

    def escalated(self) -> list[int]:
        return [worker for worker, _, _ in self.open]

    def phase(self, worker: int) -> str:
        if self.workers[worker].done is not None:
            return "done"
        if worker in self.escalated():
            return "escalated"
        return "idle" if self.workers[worker].idle else "working"

    def check(self, context: Any) -> None:
        """Compare a TaskContext with this, field by field."""
        assert context.tick == self.tick
        assert context.success_rate == self.success_rate
        assert context.progress == self.progress
        assert [[w, e.reason.to_record(), e.raised_at_tick] for w, e in context.escalations] == self.open
        assert context.done_workers == {w for w, worker in self.workers.items() if worker.done is not None}
        assert {w: g.to_record() for w, g in context.previous_guidances.items()} == self.guidances
        assert list(context.excluded_actions) == self.excluded
        assert (context.v2_guidances is None) == (self.v2 is None)
        assert [g.to_record() for g in context.v2_guidances or ()] == (self.v2 or [])
        assert same(dict(context.metadata), self.metadata)
        assert (context.available_actions and context.available_actions.to_record()) == self.actions
        assert context.worker_ids() == sorted(self.workers)
        for number, worker in self.workers.items():
            summary = context.worker(number)
            assert (summary.consecutive_failures, summary.history_len) == (worker.failures, worker.history)
            assert (summary.last_action, summary.last_success, summary.last_output) == worker.last
            assert summary.has_escalation is (number in self.escalated())
            assert summary.phase == self.phase(number)

    # -- commands -------------------------------------------------------------------------------------------------

    def start(self, count: int, max_ticks: int, threshold: int, task: Any) -> str:
        told = [count, max_ticks, threshold, task]
        if self.told is not None:
            return SAME if same(self.told, told) else REFUSED
        self.told = told
        self.max_ticks, self.threshold = max_ticks, threshold
        self.workers = {number: Worker() for number in range(count)}
        return CHANGED

    def take(self, record: Any, visits: int, successes: int, max_ticks: int, threshold: int) -> str:
        """A record of workers that have been idle or at work so far, with the numbers behind its rates."""
        told = ["imported", record, visits, successes, max_ticks, threshold]
        if self.told is not None:
            return SAME if same(self.told, told) and same(self.seen(), self.taken) else REFUSED
        self.told = copy.deepcopy(told)
        self.tick, self.visits, self.successes = record["tick"], visits, successes
        self.max_ticks, self.threshold = max_ticks, threshold
        for summary in record["workers"].values():
            worker = self.workers[summary["id"]] = Worker()
            worker.failures, worker.history = summary["consecutive_failures"], summary["history_len"]
            worker.last = (summary["last_action"], summary["last_success"], summary["last_output"])
            worker.idle = summary["phase"] == "idle"
        self.metadata = copy.deepcopy(record["metadata"])
        self.taken = self.seen()
        return CHANGED

    def seen(self) -> list[Any]:
        """What a record of the swarm would show."""
        workers = [[n, w.failures, w.history, *w.last, self.phase(n)] for n, w in sorted(self.workers.items())]
        more = [self.guidances, self.metadata, self.excluded, self.v2, self.actions]
        return copy.deepcopy([self.tick, self.visits, self.successes, workers, self.open, *more])

    def configure_actions(self, config: Any) -> str:
        if self.told is None:
            return REFUSED
        if same(self.actions, config):
            return SAME
        self.actions = copy.deepcopy(config)
        return CHANGED

    def act(self, worker: int, action: str, success: bool, output: str | None, kind: str) -> str:
        if worker not in self.workers:
            return REFUSED
        if kind != "worker":
            return CHANGED
        model = self.workers[worker]
        self.visits += 1
        self.successes += success
        model.history += 1
        model.last = (action, success, output)
        model.failures = 0 if success else model.failures + 1
        model.idle = False
        if model.failures and model.failures == self.threshold:
            self._raise(worker, {"consecutive_failures": self.threshold})
        return CHANGED

    def _raise(self, worker: int, reason: Any) -> None:
        if worker in self.escalated():
            self.attempts[worker] += 1
        else:
            self.open.append([worker, reason, self.tick])
            self.attempts[worker] = 0

    def idle(self, worker: int) -> str:
        if worker not in self.workers:
            return REFUSED
        model = self.workers[worker]
        if model.idle and model.idle_at == self.tick:
            return SAME
        model.idle, model.idle_at = True, self.tick
        return CHANGED

    def advance(self, tick: int | None) -> str:
        tick = self.tick + 1 if tick is None else tick
        if self.told is None or tick < self.tick:
            return REFUSED
        if tick == self.tick:
            return SAME
        self.tick = tick
        return CHANGED

    def escalate(self, worker: int, reason: Any) -> str:
        if worker not in self.workers:
            return REFUSED
        self._raise(worker, reason)
        return CHANGED

    def clear(self, worker: int) -> str:
        if worker not in self.workers:
            return REFUSED
        if worker not in self.escalated():
            return SAME
        self.open = [entry for entry in self.open if entry[0] != worker]
        return CHANGED

    def finish(self, worker: int, success: bool, message: str | None) -> str:
        if worker not in self.workers:
            return REFUSED
        model = self.workers[worker]
        if model.done is not None:
            return SAME if model.done == (success, message) else REFUSED
        model.done = (success, message)
        return CHANGED

    def guide(self, worker: int, guidance: Any) -> str:
        if worker not in self.workers or self.workers[worker].done is not None:
            return REFUSED
        if worker in self.guidances and same(self.guidances[worker], guidance):
            return SAME
        self.guidances[worker] = copy.deepcopy(guidance)
        return CHANGED

    def explore(self, excluded: list[str], v2: list[Any] | None) -> str:
        if self.told is None:
            return REFUSED
        if same([self.excluded, self.v2], [excluded, v2]):
            return SAME
        self.excluded, self.v2 = list(excluded), copy.deepcopy(v2)
        return CHANGED

    def put(self, key: str, value: Any) -> str:
        if self.told is None:
            return REFUSED
        if key in self.metadata and same(self.metadata[key], value):
            return SAME
        self.metadata[key] = copy.deepcopy(value)
        return CHANGED

    def drop(self, key: str) -> str:
        if self.told is None:
            return REFUSED
        return SAME if self.metadata.pop(key, self) is self else CHANGED

    def judge(self, success: bool, reason: str | None, details: Any) -> str:
        if self.told is None:
            return REFUSED
        told = [success, reason, details]
        if self.verdict is not None:
            return SAME if same(self.verdict, told) else REFUSED
        self.verdict = copy.deepcopy(told)
        return CHANGED
