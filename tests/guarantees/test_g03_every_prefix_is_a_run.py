"""G3: Every prefix of a run is a valid run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.engine.kit import raw, stored_rows
from tests.guarantees.domain import DOMAINS, Domain, play, probe


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_a_store_that_lost_its_tail_holds_a_run(domain: Domain, tmp_path: Path) -> None:
    """G3: cut after any commit, what is left verifies, restores to the state of then, and can go on."""
    whole = tmp_path / "whole.db"
    with domain.store(whole) as store:
        play(domain, Random(5), store.run("r"), 30)
    for number, (first, stored) in enumerate(rows := stored_rows(whole, "r")):
        path = tmp_path / f"cut-{number}.db"
        shutil.copy(whole, path)
        last = rows[number + 1][0] - 1 if number + 1 < len(rows) else None
        with raw(path) as connection:
            connection.execute("DELETE FROM stored_events WHERE originator_version>?", (first,))
            if last is not None:
                connection.execute("UPDATE run_heads SET position=?, link=?", (last, stored[:32]))
        with domain.store(path) as store, domain.store(whole) as truth:
            assert store.verify("r").ok
            run = store.run("r")
            assert last is None or run.position == last
            assert run.state_bytes() == truth.view("r", at=run.position).state_bytes()
            play(domain, Random(number), run, 3)
            assert store.verify("r").ok


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_a_prefix_cut_anywhere_can_go_on_as_a_run_of_its_own(domain: Domain, tmp_path: Path) -> None:
    """G3: a fork at any position, inside commits too, verifies, has the state of then, and decides as the run did."""
    with domain.store(tmp_path / "refold.db") as store:
        run = store.run("r")
        play(domain, Random(6), run, 25)
        for position in range(run.position + 1):
            fork = store.fork("r", f"fork-{position}", at=position)
            view = run.at(position)
            assert fork.state_bytes() == view.state_bytes()
            answers = (one.ask(lambda state: probe(domain, state, position)) for one in (fork, view))  # noqa: B023
            assert next(answers) == next(answers)
            play(domain, Random(position), fork, 3)
            assert fork.state_bytes() == store.run(fork.id, start="genesis").state_bytes()
            assert store.verify(fork.id).ok
        assert store.verify("r").ok


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_the_lines_of_a_prefix_are_a_run(domain: Domain) -> None:
    """G3: an export that is ended after any commit is an export of a run."""
    store = domain.store("memory:")
    run = store.run("r")
    play(domain, Random(8), run, 25)
    lines = [json.loads(line) for line in store.export_lines("r")]
    for line in lines:
        if "link" not in line:
            continue
        prefix = [json.dumps(earlier) for earlier in lines[: line["seq"] - 1]] + [json.dumps({**line, "end": True})]
        other = domain.store("memory:")
        assert other.import_lines(prefix) == ("r", line["seq"])
        assert other.view("r").state_bytes() == run.at(line["seq"]).state_bytes()
        assert other.run("r").link() == line["link"]
