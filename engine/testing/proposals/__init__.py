"""Commands that fit the state: what a run of refold's own projections could do next, most of the time; now and then
anything at all, so that refusals and repetitions come too. They must never look at anything but the state they are
given, so that a seed says it all.

A proposer is ``propose(random, state)`` over a :class:`~engine.core.state.ModelState`; it draws from ``random`` only,
so that Hypothesis may hand in one that it can shrink.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeAlias

from engine.core.model import Model
from engine.core.state import ModelState
from engine.testing.proposals.contexts import context_command
from engine.testing.proposals.graph import graph_command
from engine.testing.proposals.swarm import swarm_command
from engine.testing.proposals.tasks import task_command

__all__ = ["PROPOSERS", "Propose", "propose", "proposer_of"]

Propose: TypeAlias = Callable[[Random, ModelState], Any]

PROPOSERS: Final[dict[str, Propose]] = {
    "tasks": task_command,
    "contexts": context_command,
    "graph": graph_command,
    "swarm": swarm_command,
}
"""A proposer for each projection of refold's."""


def propose(random: Random, state: ModelState) -> Any:
    """Return a command to one of refold's projections that the model has."""
    here = [name for name in PROPOSERS if name in state.parts]
    return PROPOSERS[random.choice(here)](random, state)


def proposer_of(model: Model) -> Propose | None:
    """Return :func:`propose` for a model of refold's own projections, None when any of its projections is another."""
    from projections.model import MODEL

    own = {projection.name: type(projection) for projection in MODEL.projections}
    known = all(own.get(projection.name) is type(projection) for projection in model.projections)
    return propose if known and model.projections else None
