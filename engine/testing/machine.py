"""The restore machine: random commands to a run that crashes, restores, forks and is written to by others, compared
after every step with a twin that nothing happens to. It must never know what a projection means.

::

    class TestCounter(restore_machine(COUNTER).TestCase):
        settings = settings(max_examples=200)

What it does to the run are its rules; a subclass may add rules and invariants of its own.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from hypothesis.stateful import invariant

from engine.testing.bench import Bench
from engine.testing.checks import touched_apart
from engine.testing.failure import ReplayDiffers
from engine.testing.machine_base import kept
from engine.testing.rules_commands import CommandRules
from engine.testing.rules_crashes import CrashRules
from engine.testing.rules_others import OtherRules

__all__ = ["RestoreMachine", "restore_machine"]


class RestoreMachine(CommandRules, CrashRules, OtherRules):
    """A stateful test of one model. Set ``model`` in a subclass, or make one with :func:`restore_machine`.

    ``model`` is a Model, a projection, or a function that returns either and is called once for every simulated
    process. ``commands`` and ``facts`` are strategies to use instead of the derived ones. ``propose(random, state)``
    returns a command that fits the state, for models that refuse most of what is drawn blindly. ``backend`` is
    ``"memory"`` or ``"sqlite"``. ``elsewhere`` turns off the replay in a process with another hash seed, clock and
    locale, which is made when the model can be imported. ``first`` in a rule are commands given before it.
    """

    # -- after every step -------------------------------------------------------------------------------------------

    @invariant()
    @kept
    def is_the_twin(self) -> None:
        """The run is what its twin is, byte for byte, and the fold leaves alone what it is given."""
        self.check_manners()
        with self.here.memory.running():
            stored = self.live.state_bytes()
            self.check_state(self.twin, self.live.ask(lambda state: state), stored, "the live run")

    @kept
    def keeps_up(self) -> None:
        """What the latest events touched is in the run what it is in the twin: a look that costs no more than they."""
        self.check_manners()
        with self.here.memory.running():
            apart = self.live.ask(lambda state: touched_apart(self.twin, state))
        if apart:
            self.is_the_twin()

    def teardown(self) -> None:
        """Check what is dear: the stored journal, and the replay in another process."""
        try:
            if sys.exc_info()[0] is None and not self.failed and self.twin.position:
                self.check_at_the_end()
        finally:
            self.disk.close()

    @kept
    def check_at_the_end(self) -> None:
        """Verification finds no fault but in damaged checkpoints; runs that were left behind are as they were; another
        process agrees."""
        with self.bench.process().memory.running():
            verdict = self.disk.beside(self.here.model).verify(self.live.id)
        faults = [fault for fault in verdict.faults if not (self.damaged and fault.code == "bad_checkpoint")]
        if faults:
            raise ReplayDiffers(f"verification found {faults[0].code} at {faults[0].seq}: {faults[0].found}")
        for name, twin in self.left:
            there = self.bench.process()
            with there.memory.running():
                view = self.disk.beside(there.model).view(name, at=twin.position) if twin.position else None
                if view is not None:
                    self.check_state(
                        twin, view.ask(lambda state: state), view.state_bytes(), f"run {name!r}, left behind,"
                    )
        if self.checked_elsewhere != self.twin.position:
            self.check_elsewhere(self.probes)


def restore_machine(model: Any, *, name: str | None = None, **options: Any) -> type[RestoreMachine]:
    """Return a RestoreMachine of a model, a projection, or a function that makes one; ``options`` are the class's
    attributes. Its ``TestCase`` is what pytest and unittest run.

    Raises LookupError when no strategy can be derived for a field or a parameter.
    """
    known = {"commands", "facts", "propose", "backend", "elsewhere"}
    assert set(options) <= known, f"unknown options: {sorted(set(options) - known)}"
    if "propose" in options:
        options["propose"] = staticmethod(options["propose"])
    made = cast(type[RestoreMachine], type(name or "RestoreMachine", (RestoreMachine,), {"model": model, **options}))
    Bench.of(made)
    return made
