"""The tour: a walk through crash, restore, history, time, why, diff, fork and verify on the store of the demonstration.
Every step is a command that the reader could have typed; it must never show an output that the command did not give.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import count
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from engine.app.output import printable
from engine.app.shell import is_terminal, stdout_is_terminal

__all__ = ["Step", "steps", "take"]

NOON = "2023-11-14T22:13:26"
"""A time in the middle of the recorded runs."""


@dataclass(frozen=True, slots=True)
class Step:
    """One stop: what there is to see, the command that shows it, and the exit code that is expected of it."""

    title: str
    text: str
    words: tuple[str, ...]
    exit_code: int = 0

    @property
    def command(self) -> str:
        """The command as one would type it."""
        return shlex.join(("refold", *self.words))


def steps(store: Path, run: str, fork: str, crashed_at: int, task: str) -> Iterator[Step]:
    """Yield the stops. ``run`` was killed at ``crashed_at`` and went on; ``fork`` left it there; ``task`` worked then.

    The last stops look at a copy of the store in which one bit is flipped; it is made when the tour comes to it.
    """
    at = ("--store", str(store))
    yield Step(
        "What is there",
        f"The demonstration has imported recorded runs of an agent kernel, started a writer on the run '{run}', killed "
        f"it with SIGKILL at event {crashed_at} or later, restored it, and let another writer go on. All of it is in "
        "one file.",
        (*at, "runs"),
    )
    yield Step(
        "Restore",
        "The newest checkpoint that verifies is taken, and the events after it are folded.",
        (*at, "restore", run),
    )
    yield Step(
        "Restore, the long way",
        "Without any checkpoint every event is folded. The digest is the same: checkpoints save time, they are never "
        "the truth.",
        (*at, "restore", run, "--from", "genesis"),
    )
    yield Step(
        "History",
        f"What happened last to the task '{task}' before the crash, and what each event changed.",
        (
            *at,
            "history",
            run,
            "--task",
            task,
            "--until",
            str(crashed_at),
            "--newest-first",
            "--limit",
            "5",
            "--changes",
        ),
    )
    yield Step(
        "Time travel",
        "The task table of a recorded run as it was at a time of its past. Reading never writes.",
        (*at, "show", "wf_quota", "--tasks", "--at-time", NOON),
    )
    yield Step(
        "Why",
        "What its root was waiting for at that time, since when, and what led there.",
        (*at, "why", "wf_quota", "root", "--at-time", NOON),
    )
    yield Step(
        "Diff",
        f"What changed in '{run}' between its last two checkpoints.",
        (*at, "diff", run, "--checkpoints"),
    )
    yield Step(
        "Fork",
        f"A run that shares the history of '{run}' up to the crash and copies none of it. You could go on in it.",
        (*at, "fork", run, "what-if-2", "--at", str(crashed_at)),
    )
    yield Step(
        "What would have happened",
        f"The demonstration made such a fork, '{fork}', and called it off. This is what differs from the crash on.",
        (*at, "diff", f"{run}@{crashed_at}", fork),
    )
    yield Step(
        "Verify",
        "Is the record intact? The chain, the order, the bytes, the fold, and every checkpoint.",
        (*at, "verify", "--all"),
    )
    damaged, flipped = _damage(store, run)
    yield Step(
        "Damage",
        f"The same, on a copy in which one bit of event {flipped} is flipped. The exit code is 1: a finding.",
        ("--store", str(damaged), "verify", run),
        exit_code=1,
    )
    yield Step("Explain", "Every error and every finding has a page.", ("explain", "broken_link"))


def take(stops: Iterator[Step], *, aloud: bool) -> list[dict[str, Any]]:
    """Run every stop and return what was seen. With ``aloud`` show it, and wait for Enter if a person is there."""
    seen = []
    waits = aloud and stdout_is_terminal() and is_terminal(sys.stdin)
    for number, stop in enumerate(stops, start=1):
        if waits and number > 1 and click.prompt("\nEnter goes on, q ends", default="", show_default=False) == "q":
            break
        if aloud:
            click.echo(f"\n{number}. {stop.title}\n\n{fill(printable(stop.text), 100)}\n\n$ {printable(stop.command)}")
        code, output = _run(stop.words, aloud)
        told = {"title": stop.title, "text": stop.text, "command": stop.command, "exit_code": code, "output": output}
        seen.append({**told, "expected": code == stop.exit_code})
        if aloud and code != stop.exit_code:
            click.echo(f"\nThis should have ended with exit code {stop.exit_code}, not {code}.")
    return seen


def _run(words: tuple[str, ...], aloud: bool) -> tuple[int, str]:
    """Run a command in this process; return its exit code and, unless it was shown, its output."""
    from engine.app.cli import refold

    told = StringIO()
    try:
        if aloud:
            refold.main(list(words), prog_name="refold")
        else:
            with redirect_stdout(told):
                refold.main(list(words), prog_name="refold")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1, told.getvalue()
    raise AssertionError("a command ends by exiting")


def _damage(store: Path, run: str) -> tuple[Path, int]:
    """Copy a store to a new file and flip one bit of an event in the run's middle; return the file and the position."""
    from engine.open_store import open_store

    names = (f"{store.stem}-damaged{'' if number == 1 else f'-{number}'}{store.suffix}" for number in count(1))
    copy = next(path for name in names if not (path := store.with_name(name)).exists())
    shutil.copyfile(store, copy)
    with open_store(store, read_only=True) as opened:
        rows = list(opened.journal.raw(run))
    row = rows[len(rows) // 2]
    content = bytearray(copy.read_bytes())
    place = content.find(row.stored)
    assert place >= 0, "a small row lies in one piece"
    content[place + len(row.stored) - 1] ^= 1
    copy.write_bytes(content)
    return copy, row.first
