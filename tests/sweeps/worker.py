"""A process that runs chunks: ``python -m tests.sweeps.worker --serve`` for as long as it is told which, or ``NAME
[--chunks A:B[:STEP]] [--at-most N]`` once. A sweep that crashes the interpreter must not take its caller along, and
forks are made from a process that has no threads.

Served, it reads one chunk a line, ``{"sweep", "number", "at_most"}``, and answers each with ``{"tally", "seconds"}``;
whatever else is printed goes to standard error. It ends with its standard input.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import sys
import time
from contextlib import nullcontext
from typing import IO

from tests.sweeps.harness import Tally, run_chunk
from tests.sweeps.registry import SWEEPS, sweep_named

__all__ = ["main"]


def main(argv: list[str]) -> None:
    """Run what the arguments say; a tally is one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", choices=[entry.name for entry in SWEEPS])
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--chunks", default="0:1", help="A:B or A:B:STEP, as range() takes them")
    parser.add_argument("--at-most", type=int)
    parser.add_argument("--plant", help="run with a fault planted in the engine (see planted.py)")
    given = parser.parse_args(argv)
    logging.getLogger("refold").setLevel(logging.CRITICAL)  # what it warns of is what we do to it
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if given.serve:
        serve(sys.stdin, answers)
    elif given.name is None:
        parser.error("name a sweep")
    else:
        numbers = range(*map(int, given.chunks.split(":")))
        print(json.dumps(_once(given.name, numbers, given.at_most, given.plant).to_json()), file=answers)
    answers.flush()


def serve(asked: IO[str], answers: IO[str]) -> None:
    """Run chunk after chunk, each told on a line."""
    known: set[str] = set()
    for line in asked:
        told = json.loads(line)
        sweep = sweep_named(told["sweep"]).sweep
        if told["sweep"] not in known:
            known.add(told["sweep"])
            gc.collect()
            gc.freeze()  # the modules are not looked through again by every child
        began = time.monotonic()
        tally = run_chunk(sweep, told["number"], told["at_most"])
        print(json.dumps({"tally": tally.to_json(), "seconds": time.monotonic() - began}), file=answers, flush=True)


def _once(name: str, numbers: range, at_most: int | None, plant: str | None) -> Tally:
    from tests.sweeps.planted import PLANTS

    sweep = sweep_named(name).sweep
    total = Tally()
    with PLANTS[plant].make() if plant else nullcontext():
        for number in numbers:
            tally = run_chunk(sweep, number, at_most)
            total.points += tally.points
            total.notes.update(tally.notes)
            total.violations += tally.violations
    return total


if __name__ == "__main__":
    main(sys.argv[1:])
