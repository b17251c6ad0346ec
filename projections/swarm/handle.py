"""``run.swarm``: how callers read and command a swarm. It must never keep state of its own.

Every command method takes ``command_id``, ``actor``, ``at_ms`` and ``cause`` and returns the Outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack

from engine.core.command import listed
from engine.core.handle import Commands, Outcome, Queries
from projections.swarm import commands as c
from projections.swarm.actions import ActionsConfig
from projections.swarm.context import TaskContext
from projections.swarm.escalation import EscalationReason
from projections.swarm.guidance import Guidance
from projections.swarm.query import Counts, Verdict, context_of, counts_of, header_of, verdict_of, worker_of
from projections.swarm.shape import copied
from projections.swarm.state import HEADER, SwarmState
from projections.swarm.value import check_worker_id
from projections.swarm.worker import WorkerSummary

__all__ = ["Options", "SwarmCommands", "SwarmQueries"]


class Recorded(Protocol):
    """A value that has a JSON record."""

    def to_record(self) -> Any: ...


def _record(value: Recorded | Mapping[str, Any] | str) -> Any:
    """Return the JSON record of a value, or what was given when it already is one."""
    to_record: Callable[[], Any] | None = getattr(value, "to_record", None)
    return value if to_record is None else to_record()


class SwarmQueries(Queries[SwarmState]):
    """Reading side of a run's swarm. Answers share nothing with the run."""

    def started(self) -> bool:
        """Return whether this run has a swarm."""
        return self._ask(lambda state: HEADER in state.swarm)

    def context(self) -> TaskContext:
        """Return the swarm's situation, read-only. Raises NotFound before it begins."""
        return self._ask(context_of)

    def worker(self, worker: int) -> WorkerSummary | None:
        """Return one worker's summary, or None. Raises NotFound before the swarm begins."""
        check_worker_id(worker)
        return self._ask(lambda state: worker_of(state, worker))

    def worker_ids(self) -> list[int]:
        """Return the ids of all workers, in numeric order."""
        return self._ask(lambda state: sorted(key for key in state.workers.rows if isinstance(key, int)))

    def escalation_attempts(self, worker: int) -> int:
        """Return how often a worker's open escalation was raised again; 0 without an open one."""
        check_worker_id(worker)

        def attempts(state: SwarmState) -> int:
            number = state.open.get(worker)
            return 0 if number is None else state.escalations.rows[number].attempts

        return self._ask(attempts)

    def counts(self) -> Counts:
        """Return the whole numbers behind the rates, and the limits. Raises NotFound before the swarm begins."""
        return self._ask(counts_of)

    def task(self) -> Any:
        """Return what the swarm is for (a fresh JSON value), or None. Raises NotFound before it begins."""
        return self._ask(lambda state: (header_of(state), copied(state.setting("task")))[1])

    def verdict(self) -> Verdict | None:
        """Return how the swarm was judged, or None. Raises NotFound before it begins."""
        return self._ask(verdict_of)


class Options(TypedDict, total=False):
    """What every command takes beside its own arguments."""

    command_id: str | None
    actor: str | None
    at_ms: int | None
    cause: int | str | None


class SwarmCommands(Commands[SwarmState], SwarmQueries):
    """Reading and commanding side of a live run's swarm."""

    def start(
        self,
        worker_count: int,
        *,
        max_ticks: int = 0,
        failure_threshold: int = 3,
        task: Any = None,
        **options: Unpack[Options],
    ) -> Outcome:
        """Begin a swarm of workers 0..worker_count-1 at tick 0. ``max_ticks`` 0 is unlimited, ``failure_threshold`` 0
        never raises by itself. Raises IllegalTransition when the run already holds another swarm."""
        limits = {"max_ticks": max_ticks, "failure_threshold": failure_threshold}
        return self._submit(c.Start.make(worker_count=worker_count, task=task, **limits), **options)

    def import_record(
        self,
        record: TaskContext | Mapping[str, Any],
        *,
        visits: int | None = None,
        successes: int | None = None,
        max_ticks: int | None = None,
        failure_threshold: int = 0,
        task: Any = None,
        **options: Unpack[Options],
    ) -> Outcome:
        """Take over a swarm from its record; ``context().to_record()`` then equals it.

        A record holds ratios, not the numbers behind them. Give ``visits`` and ``successes`` (they must make the rate)
        and ``max_ticks`` (it must make the progress) where they are known; otherwise the stated ratios stand until the
        first ordinary action and the first tick, and are counted from the import on. Raises ImportRefused naming
        everything that is wrong, IllegalTransition when the run already holds another swarm.
        """
        numbers = {"visits": visits, "successes": successes, "max_ticks": max_ticks}
        command = c.ImportRecord.make(record=_record(record), failure_threshold=failure_threshold, task=task, **numbers)
        return self._submit(command, **options)

    def configure_actions(self, config: ActionsConfig | Mapping[str, Any], **options: Unpack[Options]) -> Outcome:
        """Set all available actions and groups, replacing what was there."""
        return self._submit(c.ConfigureActions.make(config=_record(config)), **options)

    def advance_tick(self, tick: int | None = None, **options: Unpack[Options]) -> Outcome:
        """Move the clock to ``tick``, or by one. Raises Refused for a tick that lies behind; the current one is no
        change."""
        return self._submit(c.AdvanceTick.make(tick=tick), **options)

    def complete_action(
        self,
        worker: int,
        action: str,
        *,
        success: bool,
        target: str | None = None,
        output: str | None = None,
        error: str | None = None,
        duration_ms: int = 0,
        kind: str = "worker",
        **options: Unpack[Options],
    ) -> Outcome:
        """Record that an action ended. A failure that reaches the threshold raises an escalation in the same commit.

        Actions of kind ``llm`` and ``manager`` count neither in the rates nor in the worker's history.
        """
        texts = {"action": action, "target": target, "output": output, "error": error, "kind": kind}
        command = c.CompleteAction.make(worker=worker, success=success, duration_ms=duration_ms, **texts)
        return self._submit(command, **options)

    def idle(self, worker: int, **options: Unpack[Options]) -> Outcome:
        """Record that a worker did nothing in this tick: neither a visit nor history."""
        return self._submit(c.Idle.make(worker=worker), **options)

    def raise_escalation(
        self,
        worker: int,
        reason: EscalationReason | Mapping[str, Any] | str,
        *,
        context: str | None = None,
        **options: Unpack[Options],
    ) -> Outcome:
        """Ask for help for a worker. While a request is open the first one stays, and the attempt is recorded."""
        command = c.RaiseEscalation.make(worker=worker, reason=_record(reason), context=context)
        return self._submit(command, **options)

    def clear_escalation(self, worker: int, **options: Unpack[Options]) -> Outcome:
        """Settle a worker's open request for help; no change when none is open. Nothing else ever clears one."""
        return self._submit(c.ClearEscalation.make(worker=worker), **options)

    def finish_worker(
        self, worker: int, *, success: bool, message: str | None = None, **options: Unpack[Options]
    ) -> Outcome:
        """Record that a worker is done. Raises IllegalTransition when it already is, otherwise than now said."""
        return self._submit(c.FinishWorker.make(worker=worker, success=success, message=message), **options)

    def issue_guidance(
        self, worker: int, guidance: Guidance | Mapping[str, Any], **options: Unpack[Options]
    ) -> Outcome:
        """Tell a worker what to do next. Raises IllegalTransition for a worker that is done."""
        return self._submit(c.IssueGuidance.make(worker=worker, guidance=_record(guidance)), **options)

    def update_exploration(
        self,
        excluded_actions: Iterable[str],
        v2_guidances: Sequence[Guidance | Mapping[str, Any]] | None = None,
        **options: Unpack[Options],
    ) -> Outcome:
        """Replace the excluded actions and the guidances of the exploration. None: no exploration, unlike []."""
        excluded = listed(excluded_actions, "update_exploration.excluded_actions")
        given = None if v2_guidances is None else listed(v2_guidances, "update_exploration.v2_guidances")
        guidances = None if given is None else [_record(found) for found in given]
        command = c.UpdateExploration.make(excluded_actions=excluded, v2_guidances=guidances)
        return self._submit(command, **options)

    def set_metadata(self, key: str, value: Any, **options: Unpack[Options]) -> Outcome:
        """Set one metadata value. Raises InvalidValue for what JSON cannot hold exactly."""
        return self._submit(c.SetMetadata.make(key=key, value=value), **options)

    def remove_metadata(self, key: str, **options: Unpack[Options]) -> Outcome:
        """Remove one metadata value; no change when there is none."""
        return self._submit(c.RemoveMetadata.make(key=key), **options)

    def record_verdict(
        self, success: bool, reason: str | None = None, *, details: Any = None, **options: Unpack[Options]
    ) -> Outcome:
        """Judge the swarm. Raises IllegalTransition when it was judged otherwise before."""
        return self._submit(c.RecordVerdict.make(success=success, reason=reason, details=details), **options)
