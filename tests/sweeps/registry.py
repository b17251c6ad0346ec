"""The list of all sweeps. What is not in it is not run; a test holds that nothing is missing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final

from tests.sweeps.harness import Sweep

__all__ = ["SWEEPS", "Entry", "sweep_named"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A sweep in the list. Its object is ``SWEEP`` in the module of this package that has its name."""

    name: str
    point: str
    """What one point is, in a few words."""
    aim: int | None = None
    """How many points a full sweep aims at; None where trying all of a round is the aim."""

    @property
    def sweep(self) -> Sweep:
        """The sweep itself, imported when it is asked for."""
        found: Sweep = import_module(f"tests.sweeps.{self.name}").SWEEP
        assert found.name == self.name
        return found


SWEEPS: Final = (
    Entry("kill", "SIGKILL before or after a system call", 100_000),
    Entry("moments", "SIGKILL at a random moment"),
    Entry("power", "a disk that a power cut may leave", 1_000_000),
    Entry("calls", "an error raised at a call"),
    Entry("syscalls", "an error of the operating system at a system call"),
    Entry("interrupts", "an interrupt at a place in the code"),
    Entry("fencing", "an operation of processes that are stopped and killed, explained by one order"),
    Entry("damage", "a bit flipped, a sector zeroed, a cut of the store file"),
    Entry("rows", "a bit of a journal row or a checkpoint flipped"),
    Entry("doctor", "a bit turned in a store that the doctor is then asked about"),
    Entry("machines", "a step of a run that is disturbed, beside its twin"),
    Entry("walk", "a step of a random walk over every rule of the restore machine", 10_000_000),
    Entry("restores", "a restore of a position from a checkpoint"),
    Entry("values", "an awkward value as event data, or as an argument of a command"),
    Entry("fuzz", "hostile bytes given to something that reads"),
)


def sweep_named(name: str) -> Entry:
    """Return the entry of a sweep. Raises KeyError."""
    return {entry.name: entry for entry in SWEEPS}[name]
