"""Writers that are killed at random moments, and what must be there afterwards. What is there is read by other code
than the engine's wherever that can be."""

from __future__ import annotations

from pathlib import Path
from random import Random

from engine.core.errors import EngineError
from tests.engine.kit import second_fold, stored_rows, wires_of
from tests.guarantees.crash import Acknowledge, Writer
from tests.guarantees.domain import BANK_DOMAIN, Domain

__all__ = ["check", "killed", "writer"]


def writer(domain: Domain, path: Path, seed: int) -> Writer:
    """A process that opens the store, goes on with the run and never stops: commands, batches, ids, checkpoints."""

    def work(acknowledge: Acknowledge) -> None:
        random = Random(seed)
        run = domain.store(path).run("r")
        while True:
            before = run.position
            size = random.choice([1, 1, 1, 2, 7])
            try:
                if size == 1:
                    identity = f"{seed}-{before}" if random.randrange(3) == 0 else None
                    run.submit(run.ask(lambda state: domain.command(random, state)), command_id=identity)
                else:
                    with run.batch():
                        for _ in range(size):
                            run.submit(run.ask(lambda state: domain.command(random, state)))
            except EngineError as error:
                assert error.code not in ("backend_unavailable", "conflict", "corrupt_journal"), error
            if run.position > before:
                acknowledge(before + 1, run.position - before)
            if random.randrange(20) == 0:
                run.checkpoint(full=random.randrange(3) == 0)

    return Writer(work)


def killed(domain: Domain, path: Path, seed: int, kills: int) -> None:
    """Kill writers of one store at random moments; after each kill look at what is there."""
    random = Random(seed)
    acknowledged: list[tuple[int, int]] = []
    for number in range(kills):
        told = writer(domain, path, seed + number).kill_after(random.uniform(0.0, random.choice([0.02, 0.25])))
        acknowledged += told
        if not path.exists():
            assert not acknowledged
            continue
        check(domain, path, acknowledged)


def check(domain: Domain, path: Path, acknowledged: list[tuple[int, int]]) -> None:
    """Everything acknowledged is there as it was acknowledged, whole commits and no halves, and the run goes on."""
    with domain.store(path) as store:
        run = store.run("r")
        commits: dict[int, int] = {}
        rows = stored_rows(path, "r") if run.position else []
        for first, stored in rows:
            commits[first] = sum(len(group[5]) for group in wires_of([(1, stored)], "r", chained=False))
        assert {first: commits.get(first) for first, _ in acknowledged} == dict(acknowledged)
        assert run.position == sum(commits.values())
        assert run.position >= max((first + count - 1 for first, count in acknowledged), default=0)
        assert run.digest() == store.view("r", start="genesis").digest() if run.position else True
        if rows:
            wires_of(rows, "r")  # the chain, by other code than the engine's
        if domain is BANK_DOMAIN and rows:
            assert run.digest() == second_fold(rows, "r")
        verdict = store.verify("r") if run.position else None
        assert verdict is None or verdict.ok, verdict
        assert run.restored.rejected == ()
