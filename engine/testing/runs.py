"""Strategies of whole runs: what a model makes of random commands. Every run they give is one that the model took."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from engine.core.decider import Model, ModelState, Projection
from engine.testing import strategies
from engine.testing.twin import Asked, Twin

__all__ = ["journals", "states"]


def journals(
    source: Model | Projection,
    *,
    commands: SearchStrategy[Any] | None = None,
    min_commits: int = 0,
    max_commands: int = 30,
    run_id: str = "run",
) -> SearchStrategy[Twin]:
    """Return runs in memory: single commands and batches, some under command ids, some facts of another runtime.

    ``twin.lines()`` is such a run's archive, ``twin.store()`` a store that holds it. ``commands`` replaces the derived
    strategy. Raises LookupError when none can be derived.
    """
    model = source if isinstance(source, Model) else Model((source,))
    given = commands if commands is not None else strategies.commands(model)
    facts = strategies.facts(model)
    what = st.tuples(given, st.just(False)) | st.tuples(facts.map(lambda fact: [fact]), st.just(True))
    steps = st.lists(st.lists(what, min_size=1, max_size=3), max_size=max_commands)

    @st.composite
    def runs(draw: DrawFn) -> Twin:
        twin = Twin(model, run_id)
        at_ms = 1_000
        for step in draw(steps):
            asked = []
            for value, is_fact in step:
                at_ms += 1
                named = draw(st.booleans())
                asked.append(Asked(value, is_fact, at_ms, None, f"id-{at_ms}" if named else None))
            twin.batch(asked)
        return twin

    made = runs()
    return made.filter(lambda twin: len(twin.commits) >= min_commits) if min_commits else made


def states(source: Model | Projection, **options: Any) -> SearchStrategy[ModelState]:
    """Return states that runs of :func:`journals` come to; each is the caller's own to change."""
    return journals(source, **options).map(lambda twin: twin.state)
