"""Hostile files for the importers: archives, records of the three formats, kernel recordings. It must never take a file
for refused that has changed the store, nor for imported what does not go out again as it came in.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from engine.adapters.kernel_recording import read as read_recording
from engine.app.recordings import recorded_runs
from engine.core.model import Model
from engine.import_file import FORMATS, read_file
from engine.open_store import Store, open_store
from projections.model import MODEL
from tests.field_reports.whole_run import CONTEXTS, GRAPHS, STEPS, SWARM, TAKE_OVER, TASKS
from tests.sweeps.hostile import json_bytes
from tests.sweeps.mutate import Dice, changed_bytes, changed_tree, odd_value
from tests.sweeps.watch import watched
from tests.toy import BANK, Open, Pay, Write

__all__ = ["Tried", "fuzz_archive", "fuzz_record", "fuzz_recording"]

Tried: TypeAlias = tuple[str, list[str]]
"""How a case ended, in a word, and the promises it broke."""
Attempt: TypeAlias = Callable[[Dice], Tried]


def _opened(model: Model = MODEL) -> Store:
    return open_store("memory:", model=model, clock=lambda: 5)


def _holds(store: Store) -> Any:
    """Return all that a store holds, as something to compare."""
    return [(head.run_id, head.position, head.link, store.view(head.run_id).digest()) for head in store.journal.heads()]


def _sound(store: Store) -> list[str]:
    """Return what is wrong with a store that something was imported into: each run verifies, and goes out and in
    again."""
    problems = []
    for head in store.journal.heads():
        run = head.run_id
        problems += [f"imported run {run!r:.60}: {fault}" for fault in store.verify(run).faults]
        if problems:
            return problems
        with _opened(store.model) as other:
            other.import_lines(store.export_lines(run))
            if _holds(other) != [held for held in _holds(store) if held[0] == run]:
                problems.append(f"run {run!r:.60} comes back as another")
    return problems


def _judged(store: Store, before: Any, act: Callable[[], Any], size: int) -> tuple[Any, list[str]]:
    """Do something with hostile input and look at the store; return what was seen, and the problems."""
    seen = watched(act, size)
    problems = list(seen.problems)
    if seen.refused and _holds(store) != before:
        problems.append(f"it was refused ({seen.error!s:.100}), and the store has changed")
    if not seen.refused:
        problems += _sound(store)
    return seen, problems


# -- archives ---------------------------------------------------------------------------------------------------------


@cache
def _archives() -> list[tuple[Model, list[Any]]]:
    """Return exports of small runs of every kind, as parsed lines, each with its model."""
    made = []
    for steps in (TASKS[:14], CONTEXTS[:12], GRAPHS[:9], SWARM):
        with _opened() as store:
            run = store.run("r", actor="host")
            for step in steps:
                step(run)
            made.append((MODEL, [json.loads(line) for line in store.export_lines("r")]))
    with _opened(BANK) as store:
        toy = store.run("r")
        toy.submit(Open(account="a", note={"$bytes": "AA==", "k": [1, 2.5, None, "ü"]}), command_id="open-a")
        with toy.batch():
            toy.submit(Pay(account="a", amount=5), cause=1)
            toy.submit(Write(account="a", letter={"n": 1}), actor="clerk")
        made.append((BANK, [json.loads(line) for line in store.export_lines("r")]))
    return made


_GIVEN: Final = re.compile(r"line (\d+): the chain gives link ([0-9a-f]{64})")


def fuzz_archive(_: Path) -> Attempt:
    """Archives: lines that were changed, with links that fit again as often as not, and files that were."""
    archives = _archives()

    def attempt(dice: Dice) -> Tried:
        model, honest = dice.choice(archives)
        lines = changed_tree(dice, honest)
        if type(lines) is not list or dice.random() < 0.05:
            lines = [lines]
        if dice.random() < 0.5:
            lines = _relinked(dice, model, lines)
        rate = dice.choice((1.0, 1.0, 0.98, 0.8))
        data = b"\n".join(json_bytes(dice, line, honest=rate) for line in lines)
        if dice.random() < 0.15:
            data = changed_bytes(dice, data)
        target = dice.choice((None, None, "other", odd_value(dice)))
        form = dice.choice((None, "archive"))
        with _opened(model) as store:
            before = _holds(store)

            def act() -> Any:
                return read_file(io.BytesIO(data), format=form).into(store, run_id=target)

            seen, problems = _judged(store, before, act, len(data))
        return seen.outcome, problems

    return attempt


def _relinked(dice: Dice, model: Model, lines: list[Any]) -> list[Any]:
    """Return the lines with links that fit, as far as anything else about them lets the import get that far."""
    made = list(lines)
    for _ in range(12):
        text = [json_bytes(dice, line, honest=1.0).decode("utf-8", "surrogatepass") for line in made]
        with _opened(model) as store:
            seen = watched(lambda: store.import_lines(text), 100_000)  # noqa: B023
        found = _GIVEN.match(str(seen.error)) if seen.error is not None and not seen.problems else None
        if found is None:
            return made
        at = next((at for at in range(int(found[1]) - 1, len(made)) if _has_link(made[at])), None)
        if at is None:
            return made
        made[at] = {**made[at], "link": found[2]}
    return made


def _has_link(line: Any) -> bool:
    return type(line) is dict and "link" in line


# -- records ----------------------------------------------------------------------------------------------------------


@cache
def _records() -> list[tuple[str, Any]]:
    """Return honest records of the three formats."""
    with _opened() as store:
        run, other = store.run("r"), store.run("other")
        for step in STEPS:
            step(run)
        TAKE_OVER(other)
        made: list[tuple[str, Any]] = [("context", run.contexts.to_record(name)) for name in run.contexts.ids()]
        made += [("task-graph", run.graphs.get(name).to_json()) for name in run.graphs.ids()]
        made += [("task-context", each.swarm.context().to_record()) for each in (run, other)]
    return [(form, json.loads(json.dumps(record))) for form, record in made]


def fuzz_record(_: Path) -> Attempt:
    """Records of conversations, graphs and swarms, whole and in part, into a run that holds something already."""
    records = _records()

    def attempt(dice: Dice) -> Tried:
        form, honest = dice.choice(records)
        data = json_bytes(dice, changed_tree(dice, honest), honest=0.75)
        if dice.random() < 0.1:
            data = changed_bytes(dice, data)
        said = dice.choice((form, form, form, None, dice.choice(FORMATS)))
        partial = dice.random() < 0.4
        name = odd_value(dice) if dice.random() < 0.05 else "x" if form == "context" else None
        with _opened() as store:
            run = store.run("r")
            run.tasks.open_root("root")
            before = _holds(store)

            def act() -> Any:
                return read_file(io.BytesIO(data), format=said).into(store, run_id="r", id=name, partial=partial)

            seen, problems = _judged(store, before, act, len(data))
            if not seen.refused and not problems:
                problems += _same_again(store, seen.value.format, seen.value.id)
        return f"{form} {seen.outcome}", problems

    return attempt


def _same_again(store: Store, form: str, name: str | None) -> list[str]:
    """Return what is wrong with a record that was taken in: what goes out of it must come in again, and be the same."""
    out = _record_of(store, form, name)
    data = json.dumps(out, allow_nan=False).encode()
    with _opened() as other:
        other.run("r").tasks.open_root("root")
        named = name if form == "context" else None
        seen = watched(lambda: read_file(io.BytesIO(data), format=form).into(other, run_id="r", id=named), len(data))
        if seen.refused:
            return [f"what goes out does not come in again: {seen.error!s:.300}"]
        if json.dumps(_record_of(other, form, name)) != json.dumps(out):
            return ["what goes out comes in as something else"]
    return []


def _record_of(store: Store, form: str, name: str | None) -> Any:
    run = store.run("r")
    if form == "context":
        return run.contexts.to_record(name or "")
    return run.graphs.get(name or "").to_json() if form == "task-graph" else run.swarm.context().to_record()


# -- recordings -------------------------------------------------------------------------------------------------------


def fuzz_recording(_: Path) -> Attempt:
    """Recordings of the kernel, read by both readers."""
    recordings = [dict(recording) for _, recording in recorded_runs()]

    def attempt(dice: Dice) -> Tried:
        honest = {key: value for key, value in dice.choice(recordings).items() if key != "task_tables"}
        length = dice.randrange(1, len(honest["decoded_inputs"]) + 1)
        short = {**honest, **{key: honest[key][:length] for key in ("decoded_inputs", "planned_steps")}}
        data = json_bytes(dice, changed_tree(dice, short), honest=0.8)
        if dice.random() < 0.1:
            data = changed_bytes(dice, data)
        form = dice.choice((None, "kernel-recording"))
        problems = list(watched(lambda: read_recording(data), len(data)).problems)
        with _opened() as store:
            before = _holds(store)

            def act() -> Any:
                return read_file(io.BytesIO(data), format=form).into(store, run_id="r")

            seen, more = _judged(store, before, act, len(data))
        return seen.outcome, problems + more

    return attempt
