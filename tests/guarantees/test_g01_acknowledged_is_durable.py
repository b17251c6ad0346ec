"""G1: An acknowledged command is on disk. A command that was not acknowledged is wholly there or wholly absent."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.guarantees.crash import no_file_left
from tests.guarantees.domain import BANK_DOMAIN, DOMAINS, Domain
from tests.guarantees.killed import check, killed, writer


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_writer_killed_at_any_moment_loses_nothing_acknowledged(domain: Domain, seed: int, tmp_path: Path) -> None:
    """G1: after SIGKILL every acknowledged position is there, and no half of a commit ever is."""
    killed(domain, tmp_path / "refold.db", seed * 1000, kills=7)


def test_a_killed_first_writer_leaves_a_store_or_nothing(tmp_path: Path) -> None:
    """G1: a kill while the store is being made leaves what the next process can open."""
    path = tmp_path / "refold.db"
    for seed in range(12):
        no_file_left(path)
        acknowledged = writer(BANK_DOMAIN, path, seed).kill_after(Random(seed).uniform(0.0, 0.015))
        check(BANK_DOMAIN, path, acknowledged)
