"""Damage: every bit of a store file flipped, every page and every sector zeroed, the file cut at every length. It must
never accept an answer that is neither the one from before nor a typed error or a named fault.

An answer is all that anyone can ask: the runs, their states at their ends and in between, their histories, exports and
verdicts, and what a live handle of them holds. Asking must not change the file. Where checkpoints lie is no such
answer: they cost time only.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from engine.core.decider import Model
from engine.core.errors import EngineError
from engine.doctor import diagnose, salvage
from engine.open_store import Store, open_store
from tests.sweeps.harness import Tally, chosen, seed_of
from tests.sweeps.kill import prepared
from tests.sweeps.script import Script, script

__all__ = ["SWEEP", "Answers", "answers", "compare"]

FLIPS_A_CHUNK: Final = 4096
SALVAGE_EVERY: Final = 4
TOO_LONG_S: Final = 10

Answers = dict[str, Any]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a block that computes for longer, or waits for ninety times as long."""

    def late(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    clocks = ((signal.SIGALRM, signal.ITIMER_REAL, 90 * seconds), (signal.SIGPROF, signal.ITIMER_PROF, seconds))
    before = [signal.signal(number, late) for number, _, _ in clocks]
    for _, clock, limit in clocks:
        signal.setitimer(clock, limit, 1)  # again and again: what caught the first may wait for ever
    try:
        yield
    finally:
        for (number, clock, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)


def answers(path: Path, model: Model, known: dict[str, int], *, read_only: bool) -> Answers:
    """Return what the store says, an error as the error."""
    said: Answers = {}

    def ask(name: str, question: Callable[[], Any]) -> None:
        try:
            said[name] = question()
        except EngineError as error:
            said[name] = error

    try:
        store = open_store(path, model=model, create=False, read_only=read_only, clock=lambda: 5)
    except EngineError as error:
        return {"open": error}
    with store:
        ask("runs", lambda: [(r.run, r.position, r.link, r.origin, r.origin_position, r.damage) for r in store.runs()])
        for run, position in known.items():
            ask(f"{run} state", lambda run=run: _state(store.view(run)))
            ask(f"{run} genesis", lambda run=run: _state(store.view(run, start="genesis")))
            ask(f"{run} middle", lambda run=run, at=position // 2: _state(store.view(run, at=at)))
            ask(f"{run} handle", lambda run=run: _state(store.run(run)))
            ask(f"{run} history", lambda run=run: _hash(map(repr, store.history(run))))
            ask(f"{run} export", lambda run=run: _hash(store.export_lines(run)))
            ask(f"{run} verdict", lambda run=run: _verdict(store, run))
    return said


def _state(view: Any) -> tuple[int, str]:
    return view.position, view.digest()


def _hash(lines: Any) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _verdict(store: Store, run: str) -> Any:
    verdict = store.verify(run)
    return (verdict.ok, verdict.position) if verdict.ok else verdict.faults


def compare(before: Answers, after: Answers) -> list[str]:
    """Return the answers that have become others without saying so."""
    problems = []
    for name, found in after.items():
        if isinstance(found, EngineError) or name == "open":
            continue
        if name.endswith(" verdict") and found and not isinstance(found[0], bool):
            continue  # faults were named
        if name == "runs" and any(line[-1] is not None for line in found):
            # Lines that own to their damage stand for the runs that are not listed as they were.
            lost = [line for line in before[name] if line not in found]
            owned = [line for line in found if line[-1] is not None]
            found = [line for line in found if line[-1] is None and line not in before[name]] + lost[len(owned) :]
            problems += [f"runs: {line} is wrong or gone without a word" for line in found]
            continue
        if found != before[name]:
            problems.append(f"{name}: {found!r:.200}, before {before[name]!r:.200}")
    return problems


class Damage:
    """One way to damage a file: a name, and what it makes of the bytes."""

    def __init__(self, title: str, apply: Callable[[bytearray], None]) -> None:
        self.title = title
        self.apply = apply


def _flips(low: int, high: int) -> list[Damage]:
    def flip(bit: int) -> Damage:
        def apply(data: bytearray) -> None:
            data[bit // 8] ^= 1 << bit % 8

        return Damage(f"bit {bit % 8} of byte {bit // 8} flipped", apply)

    return [flip(bit) for bit in range(low, high)]


def _others(size: int, dice: random.Random) -> list[Damage]:
    """Return the coarse ways: pages and sectors zeroed or overwritten, pages exchanged, cuts."""
    made = []

    def over(at: int, length: int, what: bytes, title: str) -> Damage:
        def apply(data: bytearray) -> None:
            data[at : at + length] = what[: len(data[at : at + length])]

        return Damage(f"{length} bytes at {at} {title}", apply)

    def cut(length: int) -> Damage:
        def apply(data: bytearray) -> None:
            del data[length:]

        return Damage(f"cut to {length} bytes", apply)

    def exchange(a: int, b: int) -> Damage:
        def apply(data: bytearray) -> None:
            one, other = data[a : a + 4096], data[b : b + 4096]
            data[a : a + 4096], data[b : b + 4096] = other, one

        return Damage(f"pages at {a} and {b} exchanged", apply)

    for at in range(0, size, 4096):
        made.append(over(at, 4096, bytes(4096), "zeroed"))
        made.append(over(at, 4096, dice.randbytes(4096), "made random"))
        made.extend(exchange(at, other) for other in range(at + 4096, size, 4096))
    for at in range(0, size, 512):
        made.append(over(at, 512, bytes(512), "zeroed"))
        made.append(over(at, dice.randrange(1, 64), dice.randbytes(64), "made random"))
    lengths = {*range(0, size, 256), *range(min(size, 130)), *(at + d for at in range(0, size, 4096) for d in (-1, 1))}
    made.extend(cut(length) for length in sorted(lengths) if 0 <= length < size)
    return made


class DamageSweep:
    """A round is one store: chunk 0 of it the coarse ways, the others a stretch of bits each, in shuffled order."""

    name = "damage"
    weight = 0.25
    round_size = None

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        part, made, files = self._find(number, folder)
        tally = Tally()
        sizes = [(path, path.stat().st_size) for path in files]
        stretches = [
            (path, low, min(low + FLIPS_A_CHUNK, size * 8))
            for path, size in sizes
            for low in range(0, size * 8, FLIPS_A_CHUNK)
        ]
        seed_of("damage", made.seed).shuffle(stretches)
        if part == 0:
            plan = [(path, _others(size, seed_of("damage", number))) for path, size in sizes]
        else:
            path, low, high = stretches[part - 1]
            plan = [(path, _flips(low, high))]
        for path, damages in plan:
            dice = seed_of("damage", number, path.name)
            picked = [damages[index] for index in chosen(len(damages), at_most, dice)]
            title = f"damage chunk {number} ({made.name}, seed {made.seed}) {path.name}"
            self._try_all(path, files, picked, made, tally, title)
        return tally

    def _find(self, number: int, folder: Path) -> tuple[int, Script, list[Path]]:
        """Return the part within its round, the script of the round, and its files as it left them."""
        seed = 0
        while True:
            name = ("delete", "tasks", "checkpoint", "import", "fork", "export")[seed % 6]
            made = script(name, seed)
            where = folder / str(seed)
            prepared(made, where, live=False)
            made.play(where, lambda _: None)
            files = [path for path in sorted(where.iterdir()) if path.name.startswith("refold.db")]
            parts = 1 + sum(-(-path.stat().st_size * 8 // FLIPS_A_CHUNK) for path in files)
            if number < parts:
                return number, made, files
            number -= parts
            seed += 1

    def _try_all(
        self, path: Path, files: list[Path], damages: list[Damage], made: Script, tally: Tally, title: str
    ) -> None:
        whole = {file: file.read_bytes() for file in files}
        store = files[0]
        with made.open(store.parent) as opened:
            known = {summary.run: summary.position for summary in opened.runs()}
        _put(whole)
        before = answers(store, made.model, known, read_only=False)
        with made.open(store.parent) as opened:
            before["hidden"] = {head.run_id for head in opened._backend.commits.heads() if head.hidden}
            for run, position in known.items():
                before[f"{run} prefix"] = {at: opened.view(run, at=at).digest() for at in range(position + 1)}
        _put(whole)
        assert not any(isinstance(said, EngineError) for said in before.values()), "the undamaged store has errors"
        for count, damage in enumerate(damages):
            data = bytearray(whole[path])
            damage.apply(data)
            damaged = {**whole, path: bytes(data)}
            _put(damaged)
            problems = []
            after: Answers = {}
            try:
                with within(TOO_LONG_S):
                    after = answers(store, made.model, known, read_only=count % 2 == 1)
                problems = compare(before, after)
                tally.notes["opening refused" if "open" in after else "opened"] += 1
            except Exception as error:
                problems.append(_untyped(error))
            if count % SALVAGE_EVERY == 0:
                tally.notes["salvaged"] += 1
                problems += _salvaged(store, made, before, after)
            tally.points += 1
            if path.read_bytes() != damaged[path]:
                problems.append("asking changed the file")
            tally.violations += [f"{title}, {damage.title}: {problem}" for problem in problems]


def _salvaged(store: Path, made: Script, before: Answers, after: Answers) -> list[str]:
    """Return what the doctor gets wrong: it must not be silent about what others refuse, and what it saves must be the
    beginning of what there was, as long as verification found it whole at least."""
    new = store.with_name("new.db")
    try:
        with within(TOO_LONG_S):
            found = diagnose(store, made.model)
            saved = salvage(store, new, made.model)
            with open_store(new, model=made.model) as opened:
                kept = {run.run: _state(opened.view(run.run)) for run in opened.runs() if run.damage is None}
                problems = [f"saved run {run}: {fault}" for run in kept for fault in opened.verify(run).faults]
    except Exception as error:
        return [f"the doctor: {_untyped(error)}"]
    finally:
        for left in store.parent.glob("new.db*"):
            left.unlink()
    if found.ok and any(isinstance(said, EngineError) for said in after.values()):
        problems.append(f"the doctor finds nothing, others refuse: {after}")
    if found.ok and not all(run.whole for run in saved.runs):
        problems.append(f"the doctor finds nothing, and saves a part: {saved.runs}")
    for run, (position, digest) in kept.items():
        if run in before["hidden"]:  # deleted, and kept for its forks: when nothing says so any more, it shows
            continue
        if before.get(f"{run} prefix", {}).get(position) != digest:
            problems.append(f"saved run {run} at {position} is not the beginning of what there was")
    for verdict in found.verdicts:
        if verdict.run in kept and kept[verdict.run][0] < verdict.position:
            problems.append(f"run {verdict.run} is whole up to {verdict.position}, saved up to {kept[verdict.run][0]}")
    return problems


def _put(files: dict[Path, bytes]) -> None:
    """Write the files and remove what SQLite put beside them."""
    for path, data in files.items():
        for beside in path.parent.glob(f"{path.name}-*"):
            if beside not in files:
                beside.unlink()
        path.write_bytes(data)


def _untyped(error: Exception) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    ours = next((f for f in reversed(frames) if f"{os.sep}engine{os.sep}" in f.filename), frames[-1])
    return f"untyped {type(error).__name__}: {error!s:.120} at {Path(ours.filename).name}:{ours.lineno} {ours.name}"


SWEEP = DamageSweep()
