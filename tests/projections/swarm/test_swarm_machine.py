"""A state machine: random commands against an independent model of the contract, every law at the end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.core.errors import EngineError
from projections.swarm import Guidance
from tests.projections.swarm.swarm_harness import SwarmRun, check_laws, restored
from tests.projections.swarm.swarm_naive import CHANGED, REFUSED, SAME, NaiveSwarm

WORKERS = st.integers(0, 4)  # the last of them is not there
REASONS = st.sampled_from(["timeout", "resource_exhausted", {"unknown": "x"}, {"agent_requested": ""}])
KEYS = st.sampled_from(["a", "b", "ü"])
VALUES = st.none() | st.booleans() | st.integers(-1, 1) | st.just(1.0) | st.lists(st.integers(0, 1), max_size=2)


class SwarmMachine(RuleBasedStateMachine):
    """The model keeps plain Python values and knows nothing of events, tables or folds."""

    @initialize(threshold=st.integers(0, 3), max_ticks=st.integers(0, 4), early=st.booleans())
    def begin(self, threshold, max_ticks, early):
        self.run = SwarmRun()
        self.naive = NaiveSwarm()
        if early:
            self.both(self.naive.advance(None), self.run.swarm.advance_tick)
            self.both(self.naive.put("a", 1), self.run.swarm.set_metadata, "a", 1)
        limits = {"max_ticks": max_ticks, "failure_threshold": threshold}
        for count in (4, 4, 3):
            told = self.naive.start(count, max_ticks, threshold, None)
            self.both(told, self.run.swarm.start, count, **limits)

    def both(self, told, call, *arguments, **named):
        """Give a command to the run; it must answer as the model does."""
        try:
            said = CHANGED if call(*arguments, **named).changed else SAME
        except EngineError as error:
            assert error.message
            said = REFUSED
        assert said == told

    @rule(worker=WORKERS, success=st.booleans(), kind=st.sampled_from(["worker", "worker", "llm", "manager"]))
    def act(self, worker, success, kind):
        output = None if success else "out"
        told = self.naive.act(worker, "act", success, output, kind)
        self.both(told, self.run.swarm.complete_action, worker, "act", success=success, kind=kind, output=output)

    @rule(worker=WORKERS)
    def idle(self, worker):
        self.both(self.naive.idle(worker), self.run.swarm.idle, worker)

    @rule(step=st.integers(-1, 2), by_one=st.booleans())
    def advance(self, step, by_one):
        tick = None if by_one else max(0, self.naive.tick + step)
        self.both(self.naive.advance(tick), self.run.swarm.advance_tick, tick)

    @rule(worker=WORKERS, reason=REASONS)
    def escalate(self, worker, reason):
        self.both(self.naive.escalate(worker, reason), self.run.swarm.raise_escalation, worker, reason)

    @rule(worker=WORKERS)
    def clear(self, worker):
        self.both(self.naive.clear(worker), self.run.swarm.clear_escalation, worker)

    @rule(worker=WORKERS, success=st.booleans(), message=st.sampled_from([None, None, "m"]))
    def finish(self, worker, success, message):
        told = self.naive.finish(worker, success, message)
        self.both(told, self.run.swarm.finish_worker, worker, success=success, message=message)

    @rule(worker=WORKERS, action=KEYS)
    def guide(self, worker, action):
        guidance = Guidance([action])
        told = self.naive.guide(worker, guidance.to_record())
        self.both(told, self.run.swarm.issue_guidance, worker, guidance)

    @rule(
        excluded=st.lists(KEYS, max_size=2), v2=st.none() | st.lists(KEYS.map(lambda key: Guidance([key])), max_size=2)
    )
    def explore(self, excluded, v2):
        told = self.naive.explore(excluded, None if v2 is None else [guidance.to_record() for guidance in v2])
        self.both(told, self.run.swarm.update_exploration, excluded, v2)

    @rule(key=KEYS, value=VALUES)
    def put(self, key, value):
        self.both(self.naive.put(key, value), self.run.swarm.set_metadata, key, value)

    @rule(key=KEYS)
    def drop(self, key):
        self.both(self.naive.drop(key), self.run.swarm.remove_metadata, key)

    @rule(success=st.booleans(), reason=st.none() | KEYS)
    def judge(self, success, reason):
        self.both(self.naive.judge(success, reason, None), self.run.swarm.record_verdict, success, reason)

    @rule()
    def restart(self):
        """The process dies; the state comes back from a checkpoint and goes on."""
        self.run.state = restored(self.run.state)

    @invariant()
    def shows_what_the_model_says(self):
        if hasattr(self, "run"):
            self.naive.check(self.run.swarm.context())
            for worker in self.naive.workers:
                told = self.naive.attempts[worker] if worker in self.naive.escalated() else 0
                assert self.run.swarm.escalation_attempts(worker) == told

    def teardown(self):
        if hasattr(self, "run"):
            check_laws(self.run)


SwarmMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestSwarmMachine = SwarmMachine.TestCase
TestSwarmMachine.__doc__ = "Every sequence of commands shows what an independent model shows, and keeps every law."
