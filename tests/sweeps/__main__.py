"""``python -m tests.sweeps``: all sweeps, for so many minutes in all; what was tried before is not tried again.

Exit code 0: no broken promise in anything that was tried on this code; 1: there is one; 2: wrong usage; 130: ended by
^C, after which the next run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.sweeps.ledger import STATE, Busy, Ledger, code_version
from tests.sweeps.registry import SWEEPS, Entry, sweep_named
from tests.sweeps.report import Lines, Progress, Screen, more_of, rows_of, table_of, to_json, write_readme
from tests.sweeps.runner import run_chunks, run_until

__all__ = ["main"]


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    minutes = os.environ.get("SWEEP_MINUTES", "30")
    parser = argparse.ArgumentParser(prog="python -m tests.sweeps", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=minutes, help="time for all of them together (default: %(default)s)"
    )
    names = [entry.name for entry in SWEEPS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="worker processes (default: all cores)")
    parser.add_argument("--stop-after", type=int, metavar="N", help="end after so many chunks, if not before")
    parser.add_argument("--chunk", action="append", metavar="NAME:NUMBER", help="try this chunk alone; nothing is kept")
    parser.add_argument("--at-most", type=int, metavar="N", help="with --chunk: so many points of it, spread evenly")
    parser.add_argument("--table", action="store_true", help="show what was reached so far, and do nothing")
    parser.add_argument("--readme", action="store_true", help="write what was reached so far into README.md")
    parser.add_argument("--state", type=Path, default=STATE, help="where to keep what was tried (default: .sweep)")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    given = parser.parse_args(argv)
    if not 0 <= given.minutes < float("inf") or given.cores < 1:
        parser.error("--minutes takes a time, and --cores at least 1")
    if any(count is not None and count < 1 for count in (given.stop_after, given.at_most)):
        parser.error("--stop-after and --at-most take at least 1")
    if given.at_most is not None and not given.chunk:
        parser.error("--at-most goes with --chunk")
    if given.chunk and (given.only or given.table or given.readme or given.stop_after):
        parser.error("--chunk goes with --at-most, --cores, --state and --json only")
    try:
        if not (given.table or given.readme):
            given.state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--state takes a folder: {error}")
    given.chunks = []
    for text in given.chunk or ():
        name, _, number = text.partition(":")
        if name not in names or not number.isdigit():
            parser.error(f"no chunk {text!r}: NAME:NUMBER, with a sweep of {', '.join(names)}")
        given.chunks.append((name, int(number)))
    return given


def main(argv: Sequence[str]) -> int:
    """Run what the arguments say; return the exit code."""
    given = _arguments(argv)
    entries = [sweep_named(name) for name in given.only] if given.only else list(SWEEPS)
    out, talk = Console(), Console(stderr=True)
    if not out.is_terminal:
        out.width = 200
    if given.chunks:
        return _alone(given, out, talk)
    ledger = Ledger(given.state)
    if given.table or given.readme:
        rows = rows_of(entries, ledger)
        if given.readme:
            write_readme(rows, ledger, "make sweep")
        else:
            _say(given, out, entries, ledger, 0.0)
        return 1 if any(row.violations for row in rows) else 0
    return _all(given, entries, ledger, out, talk)


def _all(given: argparse.Namespace, entries: list[Entry], ledger: Ledger, out: Console, talk: Console) -> int:
    began = time.monotonic()
    deadline = began + 60 * given.minutes
    stopped = False
    try:
        with ledger.locked():
            try:
                with _progress(talk, deadline) as show:
                    run_until(entries, ledger, deadline, given.stop_after, given.cores, show)
            except KeyboardInterrupt:
                stopped = True
    except Busy as error:
        talk.print(str(error))
        return 2
    _say(given, out, entries, ledger, (time.monotonic() - began) / 60)
    if code_version() != ledger.code:
        talk.print("the code was changed meanwhile: what was tried counts for neither version")
    if stopped:
        return 130
    return 1 if any(ledger.of(entry.name).broken for entry in entries) else 0


def _alone(given: argparse.Namespace, out: Console, talk: Console) -> int:
    try:
        with _progress(talk, float("inf")) as show:
            tried = run_chunks(given.chunks, given.at_most, given.cores, given.state, show)
    except KeyboardInterrupt:
        return 130
    told = [{"sweep": c.name, "chunk": c.number, **c.tally.to_json(), "seconds": round(c.seconds, 2)} for c in tried]
    if given.json:
        out.print_json(json.dumps(told))
    for chunk in () if given.json else tried:
        tally = chunk.tally
        said = f"{chunk.name}:{chunk.number}: {tally.points} points in {chunk.seconds:.1f} s, "
        out.print(f"{said}{len(tally.violations)} violations", markup=False, highlight=False)
        for text in tally.violations:
            out.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)
    return 1 if any(chunk.tally.violations for chunk in tried) else 0


def _progress(talk: Console, deadline: float) -> Progress:
    return (Screen if talk.is_terminal else Lines)(talk, deadline)


def _say(given: argparse.Namespace, out: Console, entries: list[Entry], ledger: Ledger, minutes: float) -> None:
    rows = rows_of(entries, ledger)
    if given.json:
        print(json.dumps(to_json(rows, ledger, minutes, given.cores), indent=1))
        return
    spent = sum(row.minutes for row in rows)
    out.print(table_of(rows, f"{minutes:.1f} minutes on {given.cores} cores; {spent:,.1f} core-minutes on this code"))
    out.print(more_of(rows), markup=False, highlight=False, soft_wrap=True)
    for row in rows:
        for _, text in ledger.of(row.sweep).violations[:5]:
            out.print(f"VIOLATION {text}", markup=False, highlight=False, soft_wrap=True)
        if row.first_failing is not None:
            again = f"python -m tests.sweeps --chunk {row.sweep}:{row.first_failing}"
            out.print(f"  {row.violations} in {row.sweep}; see the first again: {again}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
