"""Strategies of whole runs: what a model makes of random commands. Every run they give is one that the model took."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from engine.core.decider import Projection
from engine.core.model import Model
from engine.core.state import ModelState
from engine.testing import strategies
from engine.testing.proposals import Propose, proposer_of
from engine.testing.twin import Asked, Twin

__all__ = ["journals", "states"]


def journals(
    source: Model | Projection,
    *,
    commands: SearchStrategy[Any] | None = None,
    propose: Propose | None = None,
    min_commits: int = 0,
    max_commands: int = 30,
    run_id: str = "run",
) -> SearchStrategy[Twin]:
    """Return runs in memory: single commands and batches, some under command ids, some facts of another runtime.

    ``twin.lines()`` is such a run's archive, ``twin.store()`` a store that holds it. ``commands`` is a strategy,
    ``propose(random, state)`` gives commands that fit the state; without either, commands are derived, and for refold's
    own projections most of them fit. Raises LookupError when none can be derived.
    """
    model = source if isinstance(source, Model) else Model((source,))
    given = commands
    if given is None and propose is None:
        given, propose = strategies.commands(model), proposer_of(model)
    facts = strategies.facts(model)
    kinds = ["given"] * (given is not None) + ["fitting"] * 3 * (propose is not None) + ["fact"]
    steps = st.lists(st.lists(st.sampled_from(kinds), min_size=1, max_size=3), max_size=max_commands)
    randoms = st.randoms(use_true_random=False)

    @st.composite
    def runs(draw: DrawFn) -> Twin:
        twin = Twin(model, run_id)
        times = count(1_001)

        def asked(kind: str) -> Asked:
            at_ms = next(times)
            command_id = f"id-{at_ms}" if draw(st.booleans()) else None
            if kind == "fact":
                return Asked([draw(facts)], True, at_ms, None, command_id)
            if kind == "fitting":
                assert propose is not None
                return Asked(propose(draw(randoms), twin.state), False, at_ms, None, command_id)
            assert given is not None
            return Asked(draw(given), False, at_ms, None, command_id)

        for step in draw(steps):
            twin.batch(asked(kind) for kind in step)
        return twin

    made = runs()
    return made.filter(lambda twin: len(twin.commits) >= min_commits) if min_commits else made


def states(source: Model | Projection, **options: Any) -> SearchStrategy[ModelState]:
    """Return states that runs of :func:`journals` come to; each is the caller's own to change."""
    return journals(source, **options).map(lambda twin: twin.state)
