"""Runs one sweep in a process of its own: ``python -m tests.sweeps.worker NAME [--chunks A:B] [--at-most N]``, or with
``--seconds S`` chunk after chunk. A sweep that crashes the interpreter must not take the test run along, and forks are
made from a process that has no threads.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import time
from importlib import import_module

from tests.sweeps.harness import Sweep, Tally, run_chunk, sweep_until

__all__ = ["SWEEPS", "main", "sweep_named"]

SWEEPS = {
    "kill": "kill",
    "power": "power",
    "calls": "calls",
    "syscalls": "syscalls",
    "damage": "damage",
    "fencing": "fencing",
    "fuzz": "fuzz",
}
"""Sweep -> its module in this package."""


def sweep_named(name: str) -> Sweep:
    """Return a sweep by its name."""
    sweep: Sweep = import_module(f"tests.sweeps.{SWEEPS[name]}").SWEEP
    return sweep


def main(argv: list[str]) -> None:
    """Run what the arguments say; print the tally as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=list(SWEEPS))
    parser.add_argument("--chunks", default="0:1")
    parser.add_argument("--at-most", type=int)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args(argv)
    sweep = sweep_named(given.name)
    logging.getLogger("refold").setLevel(logging.CRITICAL)  # what it warns of is what we do to it
    gc.freeze()
    if given.seconds is not None:
        total = sweep_until(sweep, time.monotonic() + given.seconds)
    else:
        low, high = map(int, given.chunks.split(":"))
        total = Tally()
        for number in range(low, high):
            tally = run_chunk(sweep, number, given.at_most)
            total.points += tally.points
            total.notes.update(tally.notes)
            total.violations += tally.violations
    print(json.dumps(total.to_json()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
