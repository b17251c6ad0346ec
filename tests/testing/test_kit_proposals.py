"""Commands that fit the state: for every projection of refold's, all that can happen to it happens, and most of what is
proposed is taken."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from engine.core.model import Model
from engine.testing import PROPOSERS, Twin, journals, propose
from engine.testing.proposals import proposer_of
from engine.testing.twin import Asked
from projections.model import MODEL
from tests.testing import planted
from tests.toy import BANK


def played(model: Model, runs: int, steps: int) -> tuple[Counter[str], Counter[str]]:
    """Return how often each event came about, and what became of the commands."""
    events: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    for seed in range(runs):
        twin, dice = Twin(model, "run"), Random(seed)
        for at_ms in range(1_000, 1_000 + steps):
            answer = twin.ask(Asked(propose(dice, twin.state), False, at_ms))
            answers["refused" if answer.refused else "events" if answer.events else "nothing new"] += 1
            events.update(event.type.partition("/")[0] for event in answer.events)
    return events, answers


def test_every_event_of_the_four_projections_comes_about() -> None:
    """In a hundred short runs of all four together each of their events is decided, those of reactions included."""
    events, answers = played(MODEL, runs=120, steps=80)
    known = [event_type.name for projection in MODEL.projections for event_type in projection.events]
    assert [name for name in known if not events[name]] == []
    assert answers["events"] > answers.total() / 2 and answers["refused"] > answers.total() / 20


@pytest.mark.parametrize("projection", MODEL.projections, ids=lambda projection: projection.name)
def test_a_projection_alone_has_its_own_commands(projection: object) -> None:
    """Of a model of one projection only that one is asked, and it takes most of what it is asked."""
    model = Model((projection,))  # type: ignore[arg-type]
    events, answers = played(model, runs=30, steps=60)
    assert {model.by_name[name].name for name in PROPOSERS if name in model.by_name} == {projection.name}  # type: ignore[attr-defined]
    assert len(events) > len(projection.events) / 2  # type: ignore[attr-defined]
    assert answers["events"] > answers.total() / 2


def test_the_same_seed_and_state_give_the_same_command() -> None:
    """A proposal reads nothing but its arguments."""
    twin = Twin(MODEL, "run")
    for seed in range(300):
        one, other = propose(Random(seed), twin.state), propose(Random(seed), twin.state)
        assert repr(one) == repr(other)
        twin.ask(Asked(one, False, seed))


def test_only_models_of_our_own_projections_have_a_proposer() -> None:
    """A projection of somebody else's is proposed nothing, whatever it is called."""
    assert proposer_of(MODEL) is propose
    assert proposer_of(Model(MODEL.projections[:2])) is propose
    assert proposer_of(BANK) is None and proposer_of(planted.SOUND) is None
    assert proposer_of(Model((*MODEL.projections, *BANK.projections))) is None


@settings(max_examples=15, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(journals(MODEL, min_commits=8))
def test_drawn_journals_are_runs_in_which_something_happens(twin: Twin) -> None:
    """A journal of the model is made of commands that fit it, and can be proposed more."""
    assert twin.position >= 8
    before = twin.state.digest()
    twin.would([Asked(propose(Random(seed), twin.state), False, 9_999) for seed in range(5)])
    assert twin.state.digest() == before
