"""A run that is lived through while it is noted what it was at each position: what every restore is compared with."""

from __future__ import annotations

from random import Random

from engine.core.state import ModelState
from engine.open_store import Store
from tests.guarantees.domain import Domain, play, probe, submit_random

__all__ = ["Truth", "live", "look"]

Truth = dict[int, tuple[bytes, list[str]]]
"""What the live run was at each position where it came to rest: its bytes, and what the next commands would give."""


def live(domain: Domain, store: Store, seed: int, steps: int) -> Truth:
    """Live through a run; note what it was after each command."""
    random = Random(seed)
    run = store.run("r")
    truth: Truth = {}
    for _ in range(steps):
        truth[run.position] = look(domain, run.ask(lambda state: state))
        if random.randrange(6) == 0:
            with run.batch():
                play(domain, random, Unbatched(run), random.randint(2, 6))
        else:
            identity = f"id-{random.randrange(10_000)}" if random.randrange(3) == 0 else None
            submit_random(domain, random, run, command_id=identity)
    truth[run.position] = look(domain, run.ask(lambda state: state))
    return truth


class Unbatched:
    """A run inside a batch, where ``play`` must not open another."""

    def __init__(self, run: object) -> None:
        self._run = run

    def __getattr__(self, name: str) -> object:
        return getattr(self._run, name)

    def batch(self) -> Unbatched:
        return self

    def __enter__(self) -> Unbatched:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def look(domain: Domain, state: ModelState) -> tuple[bytes, list[str]]:
    return state.bytes(), probe(domain, state, state.seq)
