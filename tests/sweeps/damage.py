"""Damage: every bit of a store file flipped, every page and every sector zeroed, the file cut at every length. It must
never accept an answer that is neither the one from before nor a typed error or a named fault.

An answer is all that anyone can ask: the runs, their states at their ends and in between, their histories, exports and
verdicts, and what a live handle of them holds. Asking must not change the file. Where checkpoints lie is no such
answer: they cost time only.

Most bits of a small store lie in empty space. Where everything that SQL can read is as before, rows, indexes, marks
and SQLite's own check of its pages, the answers are as before too: there one flip in sixteen is asked about, elsewhere
all.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from engine.core.errors import EngineError
from engine.core.model import Model
from engine.doctor import diagnose, salvage
from engine.open_store import Store, open_store
from tests.sweeps.harness import Tally, chosen, scratch, seed_of
from tests.sweeps.kill import prepared
from tests.sweeps.script import Script, content_of, script

__all__ = ["SWEEP", "Answers", "answers", "compare"]

FLIPS_A_CHUNK: Final = 1024
SALVAGE_EVERY: Final = 4
ASKED_THOUGH_UNSEEN: Final = 16
HEADER_BYTES: Final = 100
"""The start of the file, which we read ourselves; all damage there is asked about."""
TOO_LONG_S: Final = 10
STORES: Final = (("tasks", 4), ("delete", 1), ("checkpoint", 2), ("import", 3), ("fork", 4), ("export", 5))
"""Scripts and seeds whose stores are damaged, one after another; the first, a run of agents' tasks, is a round."""

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


@dataclass(frozen=True, slots=True)
class _Store:
    """A store to be damaged: its script, its bytes, and the stretches of bits that are a chunk each."""

    made: Script
    files: dict[str, bytes]
    stretches: list[tuple[str, int, int]]

    @property
    def chunks(self) -> int:
        return 1 + len(self.stretches)


@cache
def _store(seed: int) -> _Store:
    turn, which = divmod(seed, len(STORES))
    name, first = STORES[which]
    made = script(name, first + turn * len(STORES))
    with scratch() as folder:
        where = prepared(made, folder / "store", live=False)
        made.play(where, lambda _: None)
        files = {path.name: path.read_bytes() for path in sorted(where.glob("refold.db*"))}
    stretches = [
        (name, low, min(low + FLIPS_A_CHUNK, 8 * len(data)))
        for name, data in files.items()
        for low in range(0, 8 * len(data), FLIPS_A_CHUNK)
    ]
    seed_of("damage", seed).shuffle(stretches)
    return _Store(made, files, stretches)


class DamageSweep:
    """Store after store: first the coarse ways, then a stretch of bits a chunk, in shuffled order. All chunks of the
    first store are a round."""

    name = "damage"
    weight = 0.56

    @property
    def round_size(self) -> int | None:
        return _store(0).chunks

    def chunk(self, number: int, folder: Path, at_most: int | None = None) -> Tally:
        seed, part = 0, number
        while part >= _store(seed).chunks:
            part -= _store(seed).chunks
            seed += 1
        there = _store(seed)
        tally = Tally()
        if part == 0:
            plan = [(name, _others(len(data), seed_of("damage", number))) for name, data in there.files.items()]
        else:
            name, low, high = there.stretches[part - 1]
            plan = [(name, _flips(low, high))]
        for name, damages in plan:
            dice = seed_of("damage", number, name)
            picked = [damages[index] for index in chosen(len(damages), at_most, dice)]
            title = f"damage chunk {number} ({there.made.name}, seed {there.made.seed}) {name}"
            self._try_all(folder / name, there, picked, 1 if part == 0 else SALVAGE_EVERY, tally, title)
        return tally

    def _try_all(
        self, path: Path, there: _Store, damages: list[Damage], salvage_every: int, tally: Tally, title: str
    ) -> None:
        made, folder = there.made, path.parent
        whole = {folder / name: data for name, data in there.files.items()}
        store = folder / "refold.db"
        _put(whole)
        before = _before(store, made, whole)
        content = content_of(whole[store])
        assert content is not None
        asked = 0
        for count, damage in enumerate(damages):
            data = bytearray(whole[path])
            damage.apply(data)
            damaged = {**whole, path: bytes(data)}
            tally.points += 1
            beyond = len(data) == len(whole[path]) and data[:HEADER_BYTES] == whole[path][:HEADER_BYTES]
            if beyond and count % ASKED_THOUGH_UNSEEN and content_of(damaged[store]) == content:
                tally.notes["not to be seen"] += 1
                continue
            _put(damaged)
            asked += 1
            problems = []
            after: Answers = {}
            try:
                with within(TOO_LONG_S):
                    after = answers(store, made.model, before["known"], read_only=asked % 2 == 1)
                problems = compare(before, after)
                tally.notes["opening refused" if "open" in after else "opened"] += 1
            except Exception as error:
                problems.append(_untyped(error))
            if asked % salvage_every == 0:
                tally.notes["salvaged"] += 1
                problems += _salvaged(store, made, before, after)
            if path.read_bytes() != damaged[path]:
                problems.append("asking changed the file")
            tally.violations += [f"{title}, {damage.title}: {problem}" for problem in problems]


def _before(store: Path, made: Script, whole: dict[Path, bytes]) -> Answers:
    """Return what the undamaged store says, and what else is to be known of it."""
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
    return {**before, "known": known}


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
