"""Hostile command lines: every command, every option, by reflection, with words that nobody would type. It must never
name a file outside its folder.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import click

from engine.app.cli import COMMANDS, refold
from engine.open_store import open_store
from tests.engine.kit import NEVER, Ticks
from tests.field_reports.whole_run import STEPS
from tests.sweeps.fuzz_imports import Attempt, Tried
from tests.sweeps.fuzz_stored import clear
from tests.sweeps.harness import scratch, seed_of
from tests.sweeps.mutate import Dice, changed_bytes
from tests.sweeps.watch import watched

__all__ = ["fuzz_words"]

_LEFT_OUT: Final = ("demo", "bench")
"""They make stores of their own, and take their time."""
_CODES: Final = (0, 1, 2, 3, 130)
_NAMES: Final = (
    "-x", "r@5", "now", "7", "\u202egnp", "a b", "\U0001f600", "e\u0301", "x" * 250, "'", '"', "$HOME", "%s",
)  # fmt: skip
_WORDS: Final = (
    "r", "root", "fetch", "c", "g", "g/0", "g/", "/0", "g/99999999999", "fork", "nobody", "", " ", "-", "--",
    "--json", "-h", "0", "1", "5", "-1", "140", "99999", "9" * 18, "9" * 19, "9" * 30, "9" * 5_000, "00", "+1", "1.5",
    "1e3", "\u0665", "²", "0x5", "1_000", "now", "genesis", "r@", "r@5", "r@-1", "@", "@@", "r@now", "r@2026-05-01",
    "r@"+"9" * 40, "r@5@6", "fork@2", "1970-01-01", "1969-12-31T23:59", "0001-01-01",
    "9999-12-31T23:59:59.999999+14:00", "2026-05-01T12:00Z", "2026-W18", "2026-05-01T25:00", "2026-02-30", "20260501",
    "12:00", "1970-01-01T00:00:00-99:99", "task", "task.finished", "task/1", "task.finished/999999999999", "text:5",
    "cause", "planner", "a=b", "=", "run=r", "task=root", "a=\udcff", "1=2", "\udcff\udcfe", "caf\u00e9", "\u202e",
    "\x1b[31m", "\n", "a\tb", "\x7f", "\ud83d", "x" * 100_000, "../../etc/passwd", "~", "*", "waiting_tasks",
    "who_changed", "SELECT 1", "SELECT", "DROP TABLE runs", "ATTACH 'x.db' AS y", "PRAGMA user_version=5",
    "SELECT load_extension('x')", "SELECT * FROM runs; DELETE FROM runs", "SELECT :a", "SELECT ?", "SELECT x'00'",
    "WITH", "SELECT 1e999, NULL, x'ff', 9223372036854775807 + 1", "SELECT '\udcff'", "SELECT writefile('x','y')",
    "EXPLAIN SELECT 1", "SELECT zeroblob(5), char(27), char(0)", "VACUUM INTO 'y.db'", "SELECT json('{')",
    "not_a_store", "invalid_value", "bash", "zsh", "archive", "context", "task-graph", "kernel-recording", *_NAMES,
)  # fmt: skip
_PLACES: Final = (
    "out.jsonl", "new.db", "refold.db", "refold.read.db", "there.jsonl", "there.json", "empty", "noise", "missing/x",
    ".", "-", "\udcff.json", "x" * 300, "",
)  # fmt: skip
_STORES: Final = (
    "refold.db", "sqlite:///refold.db", "memory:", "postgresql://x/y", "missing.db", "", "noise", "empty", ".",
    "sqlite://", "sqlite:///", "refold.read.db", "http://x", "://", "\udcff",
)  # fmt: skip
_HONEST: Final = (
    "", "--help", "explain not_found", "show r", "history r --changes", "sql waiting_tasks", "completion bash",
    "doctor --json",
)  # fmt: skip
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@cache
def _files() -> dict[str, bytes]:
    """Return what lies in the folder: a store of everything, with names and texts to stumble over, its export, and
    files that are none of ours."""
    with scratch() as folder:
        path = folder / "refold.db"
        with open_store(path, clock=Ticks(1_700_000_000_000), checkpoints=NEVER) as store:
            run = store.run("r", actor="host")
            for number, step in enumerate(STEPS):
                step(run)
                if number in (9, 40):
                    run.checkpoint()
            for name in _NAMES:
                run.tasks.spawn(name, parent="root", command_id=f"spawn {name}")
                run.contexts.create(name)
                run.contexts.append(name, {"role": "user", "text": f"{name}\x1b[31m\0\x9b", "ts": 5})
                store.fork("r", name, at=7)
            store.fork("r", "fork", at=30)
            lines = "\n".join(store.export_lines("r"))
            record = json.dumps(run.contexts.to_record("c"))
        return {
            "refold.db": path.read_bytes(), "there.jsonl": lines.encode(), "there.json": record.encode(),
            "empty": b"", "noise": bytes(range(256)) * 20,
        }  # fmt: skip


def fuzz_words(folder: Path) -> Attempt:
    """Command lines, in a folder of their own."""
    _put(folder)
    for number, honest in enumerate(_HONEST):  # so that everything is loaded that honest words load
        with _in(folder, seed_of(number), b"", _Said()):
            _run(honest.split())

    def attempt(dice: Dice) -> Tried:
        clear(folder)
        _put(folder)
        given = _words_of(dice)
        stdin = dice.choice((b"", b"y\n", _files()["there.jsonl"], changed_bytes(dice, _files()["there.json"])))
        said = _Said()
        with _in(folder, dice, stdin, said):
            seen = watched(lambda: _run(given), 200_000, folder=folder)
        problems = [*seen.problems, *_judged(given, seen.value, said)]
        if seen.value != 0 and (folder / "refold.db").read_bytes() != _files()["refold.db"]:
            problems += _changed(folder / "refold.db")
        command = next((word for word in given if word in COMMANDS), "none")
        shown = f"refold {' '.join(map(repr, given))}"
        return f"{command} {seen.value}", [f"{shown:.300}: {problem}" for problem in problems]

    return attempt


def _put(folder: Path) -> None:
    for name, data in _files().items():
        (folder / name).write_bytes(data)


def _run(given: list[str]) -> Any:
    try:
        refold.main(given, prog_name="refold")
    except SystemExit as ended:
        return ended.code or 0
    return None


class _Said:
    """What was printed."""

    def __init__(self) -> None:
        self.out, self.err = io.BytesIO(), io.BytesIO()


@contextmanager
def _in(folder: Path, dice: Dice, stdin: bytes, said: _Said) -> Iterator[None]:
    """Be in a folder, with streams of an encoding that may hold less than Unicode, and perhaps a store named by the
    environment."""
    before, streams, store = Path.cwd(), (sys.stdin, sys.stdout, sys.stderr), os.environ.get("REFOLD_STORE")
    encoding = dice.choice(("utf-8", "utf-8", "ascii", "latin-1"))
    os.chdir(folder)
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    sys.stdout = io.TextIOWrapper(said.out, encoding, "backslashreplace", write_through=True)
    sys.stderr = io.TextIOWrapper(said.err, encoding, "backslashreplace", write_through=True)
    os.environ.pop("REFOLD_STORE", None)
    if dice.random() < 0.1:
        os.environ["REFOLD_STORE"] = dice.choice(_STORES)
    try:
        yield
    finally:
        for stream, buffer in ((sys.stdout, said.out), (sys.stderr, said.err)):
            stream.flush()
            buffer.seek(0)
            stream.detach()  # type: ignore[union-attr]  # the buffer outlives it
        sys.stdin, sys.stdout, sys.stderr = streams
        os.environ.pop("REFOLD_STORE", None)
        if store is not None:
            os.environ["REFOLD_STORE"] = store
        os.chdir(before)


# -- words ------------------------------------------------------------------------------------------------------------


def _words_of(dice: Dice) -> list[str]:
    """Return a command line: a command with its own options and arguments most of the time, anything now and then."""
    if dice.random() < 0.03:
        return [word for word in dice.choices(_WORDS, k=dice.randrange(5)) if word not in _LEFT_OUT]
    name = dice.choice([name for name in COMMANDS if name not in _LEFT_OUT])
    command = refold.get_command(click.Context(refold), name)
    assert command is not None
    words: list[str] = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            count = dice.randrange(4) if parameter.nargs == -1 else 1
            words += [_word(dice, name, parameter) for _ in range(count) if dice.random() < 0.9]
        elif dice.random() < (0.6 if "--json" in parameter.opts else 0.15 if name != "history" else 0.08):
            for _ in range(dice.choice((1, 1, 2))):
                words.append(dice.choice(parameter.opts))
                if not getattr(parameter, "is_flag", False):
                    words.append(_word(dice, name, parameter))
    before = ["--store", dice.choice(_STORES)] if dice.random() < 0.05 else []
    return [*before, name, *words]


def _word(dice: Dice, command: str, parameter: click.Parameter) -> str:
    """Return a value of a parameter; for one that names a file, a place in the folder."""
    if "--store" in parameter.opts:
        return dice.choice(_STORES)
    if isinstance(parameter.type, click.Path | click.File) or "--path" in parameter.opts:
        return dice.choice(_PLACES)
    if parameter.name == "run" and dice.random() < 0.7:
        return dice.choice(("r", "r", "fork"))
    if dice.random() < 0.1:
        return "".join(chr(dice.choice((dice.randrange(1, 128), dice.randrange(0xA0, 0xD800)))) for _ in range(5))
    return dice.choice(_WORDS)


# -- answers ----------------------------------------------------------------------------------------------------------


def _judged(given: list[str], code: Any, said: _Said) -> list[str]:
    """Return what is wrong with an answer: its code, what it prints for programs, what reaches a terminal."""
    out, err = (stream.getvalue().decode("utf-8", "replace") for stream in (said.out, said.err))
    if code not in _CODES:
        return [f"exit code {code}: {(err or out)[-300:]}"]
    problems = []
    if "Traceback" in err:
        problems.append(f"a traceback: {err[-300:]}")
    printed = "export" in given or "completion" in given or "--help" in given or "-h" in given or "--version" in given
    if "--json" in given and not printed:
        try:
            if code == 0:
                json.loads(out)
            elif code in (2, 3):
                assert list(json.loads(err.splitlines()[-1])) == ["error"]
        except (ValueError, IndexError, AssertionError):
            problems.append(f"exit code {code}, and no JSON: {out[:100]!r} {err[:100]!r}")
    elif not printed and (found := _CONTROL.search(out + err)):
        problems.append(f"the control character {found[0]!r} reaches the terminal")
    return problems


def _changed(path: Path) -> list[str]:
    """Return what a refused command has changed in the store, in as far as anyone could see it."""
    with scratch() as folder:
        (folder / "refold.db").write_bytes(_files()["refold.db"])
        held = []
        for each in (folder / "refold.db", path):
            with open_store(each, read_only=True) as store:
                held.append([(summary.run, summary.position, summary.link) for summary in store.runs()])
    return [] if held[0] == held[1] else ["it was refused, and the store has changed"]
