"""G2: Restore equals live: at every position, from every checkpoint and from none, the state is byte-identical, and
every
next command gives the same events."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from engine.checkpoint import CheckpointPolicy
from tests.guarantees.domain import DOMAINS, Domain, submit_random
from tests.guarantees.lived import live, look


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("spacing", [None, 1, 2, 3, 7])
def test_restore_equals_live_at_every_position(domain: Domain, spacing: int | None, tmp_path: Path) -> None:
    """G2: for every position and every start there is, bytes and next events are those of the live run there."""
    policy = CheckpointPolicy(every_events=spacing)
    with domain.store(tmp_path / "refold.db", policy=policy) as store:
        truth = live(domain, store, seed=7, steps=50)
    with domain.store(tmp_path / "refold.db") as store:
        for position, expected in truth.items():
            if position == 0:
                assert look(domain, store.view("r", at=0).ask(lambda state: state)) == expected
                continue
            starts = ["best", "genesis", *(at for at in store.checkpoints.positions("r") if at <= position)]
            for start in starts[:5]:
                view = store.view("r", at=position, start=start)  # type: ignore[arg-type]
                assert look(domain, view.ask(lambda state: state)) == expected, f"position {position} from {start}"
        assert (spacing is None) == (not store.checkpoints.positions("r"))


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_positions_inside_a_commit_are_those_of_a_fold_cut_there(domain: Domain, tmp_path: Path) -> None:
    """G2: between the rests, too, every start gives the same bytes, and they are those of folding events one by one."""
    with domain.store(tmp_path / "refold.db", policy=CheckpointPolicy(every_events=5)) as store:
        live(domain, store, seed=3, steps=40)
        alone = domain.model.initial()
        for commit in store.journal.commits("r"):
            for at_ms, actor, command_id, fingerprint, cause, events in commit.groups:
                for wire in events:
                    alone.apply([[at_ms, actor, command_id, fingerprint, cause, [wire]]])
                    expected = alone.bytes()
                    for start in ("best", "genesis"):
                        assert store.view("r", at=alone.seq, start=start).state_bytes() == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_a_run_restored_after_every_command_is_the_run_never_restored(domain: Domain, tmp_path: Path) -> None:
    """G2: whoever loses the handle after each command, and whoever never does, gets the same answers and the same
    run."""
    kept = domain.store("memory:").run("r")
    with domain.store(tmp_path / "refold.db", policy=CheckpointPolicy(every_events=4)) as store:
        for seed in range(60):
            lost = store.run("r", start="best" if seed % 3 else "genesis")
            assert submit_random(domain, Random(seed), lost) == submit_random(domain, Random(seed), kept)
            assert lost.state_bytes() == kept.state_bytes()
        assert store.run("r").link() == kept.link()
