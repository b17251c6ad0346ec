"""A state machine: random commands against an independent model of the contract, every law at the end."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.core.errors import IllegalTransition, Refused
from projections.swarm import Guidance
from tests.projections.swarm.swarm_harness import SwarmRun, check_laws, restored

WORKERS = st.integers(0, 3)
REASONS = st.sampled_from(["timeout", "resource_exhausted", {"unknown": "x"}, {"agent_requested": ""}])
KEYS = st.sampled_from(["a", "b", "ü"])
VALUES = st.none() | st.booleans() | st.integers(-1, 1) | st.just(1.0) | st.lists(st.integers(0, 1), max_size=2)


class Worker:
    def __init__(self) -> None:
        self.failures = self.history = 0
        self.last = (None, None, None)
        self.idle = True
        self.done = None


class SwarmMachine(RuleBasedStateMachine):
    """The model keeps plain Python values and knows nothing of events, tables or folds."""

    @initialize(threshold=st.integers(0, 3), max_ticks=st.integers(0, 4))
    def begin(self, threshold, max_ticks):
        self.run = SwarmRun()
        self.run.swarm.start(4, max_ticks=max_ticks, failure_threshold=threshold)
        self.threshold, self.max_ticks = threshold, max_ticks
        self.tick = self.visits = self.successes = 0
        self.workers = [Worker() for _ in range(4)]
        self.open = []  # [worker, reason, tick]
        self.guidances, self.metadata = {}, {}
        self.excluded, self.v2 = [], None

    def raise_(self, worker, reason):
        if worker not in [entry[0] for entry in self.open]:
            self.open.append([worker, reason, self.tick])

    @rule(worker=WORKERS, success=st.booleans(), kind=st.sampled_from(["worker", "worker", "llm", "manager"]))
    def act(self, worker, success, kind):
        output = None if success else "out"
        self.run.swarm.complete_action(worker, "act", success=success, kind=kind, output=output)
        if kind != "worker":
            return
        model = self.workers[worker]
        self.visits += 1
        self.successes += success
        model.history += 1
        model.last = ("act", success, output)
        model.failures = 0 if success else model.failures + 1
        model.idle = False
        if model.failures and model.failures == self.threshold:
            self.raise_(worker, {"consecutive_failures": self.threshold})

    @rule(worker=WORKERS)
    def idle(self, worker):
        self.run.swarm.idle(worker)
        self.workers[worker].idle = True

    @rule(step=st.integers(-1, 2))
    def advance(self, step):
        if self.tick + step < 0:
            return
        if step < 0:
            with pytest.raises(Refused):
                self.run.swarm.advance_tick(self.tick + step)
            return
        assert self.run.swarm.advance_tick(self.tick + step).changed is (step > 0)
        self.tick += step

    @rule(worker=WORKERS, reason=REASONS)
    def escalate(self, worker, reason):
        assert self.run.swarm.raise_escalation(worker, reason).changed
        self.raise_(worker, reason)

    @rule(worker=WORKERS)
    def clear(self, worker):
        was_open = worker in [entry[0] for entry in self.open]
        assert self.run.swarm.clear_escalation(worker).changed is was_open
        self.open = [entry for entry in self.open if entry[0] != worker]

    @rule(worker=WORKERS, success=st.booleans())
    def finish(self, worker, success):
        model = self.workers[worker]
        if model.done is not None and model.done != success:
            with pytest.raises(IllegalTransition):
                self.run.swarm.finish_worker(worker, success=success)
            return
        assert self.run.swarm.finish_worker(worker, success=success).changed is (model.done is None)
        model.done = success

    @rule(worker=WORKERS, action=KEYS)
    def guide(self, worker, action):
        if self.workers[worker].done is not None:
            with pytest.raises(IllegalTransition):
                self.run.swarm.issue_guidance(worker, Guidance([action]))
            return
        self.run.swarm.issue_guidance(worker, Guidance([action]))
        self.guidances[worker] = Guidance([action])

    @rule(
        excluded=st.lists(KEYS, max_size=2), v2=st.none() | st.lists(KEYS.map(lambda key: Guidance([key])), max_size=2)
    )
    def explore(self, excluded, v2):
        self.run.swarm.update_exploration(excluded, v2)
        self.excluded, self.v2 = excluded, v2

    @rule(key=KEYS, value=VALUES)
    def put(self, key, value):
        known = key in self.metadata and repr(self.metadata[key]) == repr(value)
        assert self.run.swarm.set_metadata(key, value).changed is not known
        self.metadata[key] = value

    @rule(key=KEYS)
    def drop(self, key):
        assert self.run.swarm.remove_metadata(key).changed is (key in self.metadata)
        self.metadata.pop(key, None)

    @rule()
    def restart(self):
        """The process dies; the state comes back from a checkpoint and goes on."""
        self.run.state = restored(self.run.state)

    @invariant()
    def shows_what_the_model_says(self):
        if not hasattr(self, "run"):
            return
        context = self.run.swarm.context()
        assert context.tick == self.tick
        assert context.success_rate == (self.successes / self.visits if self.visits else 0.0)
        assert context.progress == (min(1.0, self.tick / self.max_ticks) if self.max_ticks else 0.0)
        assert [[w, e.reason.to_record(), e.raised_at_tick] for w, e in context.escalations] == self.open
        assert context.done_workers == {w for w, model in enumerate(self.workers) if model.done is not None}
        assert dict(context.previous_guidances) == self.guidances
        assert list(context.excluded_actions) == self.excluded
        assert context.v2_guidances == (None if self.v2 is None else tuple(self.v2))
        assert repr(sorted(context.metadata.items())) == repr(sorted(self.metadata.items()))
        escalated = [entry[0] for entry in self.open]
        for worker, model in enumerate(self.workers):
            summary = context.worker(worker)
            assert (summary.consecutive_failures, summary.history_len) == (model.failures, model.history)
            assert (summary.last_action, summary.last_success, summary.last_output) == model.last
            assert summary.has_escalation is (worker in escalated)
            phase = "idle" if model.idle else "working"
            phase = "escalated" if worker in escalated else phase
            assert summary.phase == ("done" if model.done is not None else phase)

    def teardown(self):
        if hasattr(self, "run"):
            check_laws(self.run)


SwarmMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestSwarmMachine = SwarmMachine.TestCase
TestSwarmMachine.__doc__ = "Every sequence of commands shows what an independent model shows, and keeps every law."
