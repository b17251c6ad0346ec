"""Restore takes the newest checkpoint that verifies, says which and why, and always gives the same state."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import CheckpointPolicy
from engine.core.errors import BackendUnavailable, NotFound
from engine.core.model import Model
from engine.open_store import Store
from engine.runs import LiveRun
from engine.store import Checkpoints, Rejected
from tests.engine.kit import NEVER, fill, raw, second_fold, stored_rows, toy_store
from tests.toy import BANK, BankProjection, Close, Open, Pay, Write


def with_checkpoints(store: Store) -> LiveRun:
    """A run with a full checkpoint at 11, deltas at 12 and 13, and one event after them."""
    run = store.run("r")
    fill(run)
    run.checkpoint()
    for amount in (1, 2):
        run.submit(Pay(account="a", amount=amount))
        run.checkpoint()
    run.submit(Pay(account="a", amount=3))
    return run


def used(store: Store, **options: Any) -> tuple[Any, int, list[int]]:
    report = store.view("r", **options).report
    return report.used, report.events_folded, [position for position, _ in report.rejected]


def test_the_newest_checkpoint_is_used(store: Store) -> None:
    """Without a wish the newest serves; a wish, an earlier position and genesis are followed; the state is the same."""
    run = with_checkpoints(store)
    assert used(store) == (13, 1, [])
    assert used(store, at=13) == (13, 0, [])
    assert used(store, at=12) == (12, 0, [])
    assert used(store, at=10) == ("genesis", 10, [])
    assert used(store, start=11) == (11, 3, [])
    assert used(store, start="genesis") == ("genesis", 14, [])
    assert {store.view("r", start=start).digest() for start in ("best", "genesis", 11, 12, 13)} == {run.digest()}  # type: ignore[arg-type]
    assert store.view("r").report.to_json()["used"] == 13


@pytest.mark.parametrize("start", [0, 1, 10, 14, 15, -1, 2**70])
def test_a_checkpoint_that_is_not_there_cannot_be_asked_for(store: Store, start: int) -> None:
    """A wish that cannot be met is NotFound; nothing else is used in its place."""
    with_checkpoints(store)
    with pytest.raises(NotFound):
        store.view("r", start=start)
    with pytest.raises(NotFound):
        store.view("r", at=12, start=13)


def damage(store: Store, position: int) -> None:
    store.checkpoints._recorder.put("r", position, "refold.checkpoint/1", b"\0" * 80, [])


def test_the_ladder_goes_down_to_genesis(store: Store) -> None:
    """A bad checkpoint is refused with its reason, and one above a bad base with it; then the next older one serves."""
    run = with_checkpoints(store)
    digest = run.digest()
    damage(store, 13)
    assert used(store) == (12, 2, [13])
    damage(store, 11)  # the base of all
    assert used(store) == ("genesis", 14, [13, 12, 11])
    reasons = [reason for _, reason in store.view("r").report.rejected]
    assert ["digest" in reason for reason in reasons] == [True, True, True]
    assert "base at 11" in reasons[1]
    assert store.view("r").digest() == digest
    assert store.run("r").submit(Pay(account="a", amount=1)).position == 15


def test_checkpoints_of_another_schema_are_refused(store: Store) -> None:
    """A checkpoint written under another set of fields or another version of the state is ignored, not an error."""

    class Other(BankProjection):
        state_version = 2

    run = with_checkpoints(store)
    newer = Store(store._backend, Model((Other(),)), lambda: 5, NEVER)
    report = newer.view("r").report
    assert report.used == "genesis"
    assert {reason for _, reason in report.rejected} == {"written under another schema of the projections"}
    assert newer.view("r").digest() == run.digest()
    assert used(store) == (13, 1, [])


def test_a_checkpoint_of_another_history_is_refused(tmp_path: Path) -> None:
    """A checkpoint with a link that is not the journal's there, from a copy of the store that went on apart, is not
    used."""
    first, second = (toy_store(tmp_path / name) for name in ("a.db", "b.db"))
    for store, amount in ((first, 1), (second, 2)):
        run = store.run("r")
        run.submit(Open(account="a"))
        run.submit(Pay(account="a", amount=amount))
        run.checkpoint()
    stolen = second.checkpoints._recorder.read("r", 2)
    assert stolen is not None
    first.checkpoints._recorder.put("r", 2, *stolen, [])
    report = first.view("r").report
    assert (report.used, report.rejected) == ("genesis", ((2, "its link is not the journal's link there"),))
    other = second.run("other")
    other.submit(Open(account="a"))
    first.checkpoints._recorder.put("r", 1, *stolen, [])
    assert first.view("r", at=1).report.rejected[0][1].startswith("it belongs to 'r' at 2")


def test_a_checkpoint_is_a_delta_until_deltas_outgrow_it(store: Store) -> None:
    """The first is full, later ones hold what changed; asking for a full one gives one; nothing new gives none."""
    run = store.run("r")
    with run.batch():
        for number in range(50):
            run.submit(Open(account=f"a{number}"))
    first = run.checkpoint()
    assert first is not None
    assert (first.full, first.position, first.records) == (True, 50, 50)
    run.submit(Pay(account="a7", amount=1))
    second = run.checkpoint()
    assert second is not None
    assert (second.full, second.records) == (False, 1)
    assert second.size_bytes < first.size_bytes / 5
    assert run.checkpoint() is None
    third = run.checkpoint(full=True)
    assert third is not None
    assert (third.full, third.position) == (True, 51)
    assert store.view("r").digest() == run.digest() == store.view("r", start="genesis").digest()


@pytest.mark.parametrize("spacing", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("reopen", [False, True], ids=["one handle", "reopened"])
def test_every_spacing_and_every_chain_gives_the_same_state(store: Store, spacing: int, reopen: bool) -> None:
    """Long chains of deltas, merged, across handles, with records added, changed and removed, restore to the very
    state."""
    run = store.run("r")
    for number in range(150):
        account = f"a{number % 7}"
        run.submit(Open(account=account))
        run.submit(Write(account=account, letter=number) if number % 3 else Pay(account=account, amount=number * 20))
        if number % 11 == 5:
            run.submit(Close(account=account))
        if number % spacing == 0:
            run.checkpoint()
            if reopen and number % 20 == 0:
                run = store.run("r")
                assert isinstance(run.restored.used, int)
    state = store.view("r", start="genesis").state_bytes()
    assert run.state_bytes() == state == store.run("r").state_bytes()
    for position in store.checkpoints.positions("r"):
        view, fold = (store.view("r", at=position, start=start) for start in (position, "genesis"))  # type: ignore[arg-type]
        assert view.state_bytes() == fold.state_bytes()
    assert store.verify("r").ok


def test_handles_that_checkpoint_side_by_side_never_mix_up(store: Store) -> None:
    """Two handles that write full ones and deltas at the same positions, in every order, leave only true
    checkpoints."""
    plans = list(itertools.product([None, False, True], repeat=4))
    for number, plan in enumerate(plans):
        name = f"r{number}"
        handles = store.run(name), store.run(name)
        handles[0].submit(Open(account="x"))
        for step, full in enumerate(plan):
            writer = handles[step % 2]
            writer.refresh()
            writer.submit(Open(account=f"a{step}"))
            if step == 2:
                writer.submit(Close(account="x"))
                writer.submit(Close(account="a0"))
            if full is not None:
                for handle in handles:
                    handle.refresh()
                    handle.checkpoint(full=full and handle is writer)
        assert store.verify(name).ok, plan
        assert store.run(name).digest() == store.view(name, start="genesis").digest(), plan


def test_merging_never_joins_checkpoints_that_do_not_follow_one_another(store: Store) -> None:
    """When another handle has put a full checkpoint among one's deltas, what was removed before it stays removed."""
    ours = store.run("r")
    ours.submit(Open(account="keep"))
    ours.checkpoint()
    ours.submit(Open(account="doomed"))
    ours.checkpoint()
    ours.submit(Close(account="doomed"))
    ours.checkpoint()
    theirs = store.run("r")
    theirs.checkpoint(full=True)
    for amount in range(20, 220):
        ours.submit(Pay(account="keep", amount=amount))
        ours.checkpoint()
    assert store.verify("r").ok
    for position in store.checkpoints.positions("r"):
        view = store.view("r", at=position, start=position)
        assert view.state_bytes() == store.view("r", at=position, start="genesis").state_bytes()


def test_a_checkpoint_interrupted_anywhere_is_never_wrong(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt while a checkpoint is being noted as taken costs a larger one later, never a wrong one."""
    run = store.run("r")
    fill(run)
    run.checkpoint()
    tables = list(run._at.state.tables.values())
    for stop in range(len(tables)):
        run.submit(Open(account=f"a{stop}"))
        run.submit(Write(account=f"a{stop}", letter=stop), command_id=f"w{stop}")

        class Interrupted(dict[Any, Any]):
            def clear(self) -> None:
                raise KeyboardInterrupt

        tables[stop].changed = tables[stop]._marks = Interrupted(tables[stop].changed)
        with pytest.raises(KeyboardInterrupt):
            run.checkpoint()
        tables[stop].changed = tables[stop]._marks = dict(tables[stop].changed)
        run.submit(Pay(account="a", amount=1))
        run.checkpoint()
        assert store.run("r").digest() == run.digest() == store.view("r", start="genesis").digest()
        assert store.verify("r").ok


def test_a_checkpoint_by_policy_that_fails_fails_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is acknowledged, the run says why there is no checkpoint, and takes one when it can."""
    with toy_store(tmp_path / "refold.db", policy=CheckpointPolicy(every_events=2)) as store:
        run = store.run("r")

        def full_disk(*_: Any, **__: Any) -> Any:
            raise BackendUnavailable("the disk is full", hint="free some space")

        with monkeypatch.context() as patch:
            patch.setattr(store.checkpoints, "put", full_disk)
            for number in range(5):
                run.submit(Open(account=f"a{number}"))
                assert (run.checkpoint_error is None) == (number < 1)
        assert list(store.checkpoints.positions("r")) == []
        run.submit(Open(account="last"))
        assert run.checkpoint_error is None
        assert list(store.checkpoints.positions("r")) == [6]
        assert store.run("r").digest() == run.digest() == second_fold(stored_rows(tmp_path / "refold.db", "r"), "r")


@pytest.mark.parametrize(
    ("policy", "positions"),
    [
        (CheckpointPolicy(every_events=None), []),
        (CheckpointPolicy(every_events=3), [9, 6, 3]),
        (CheckpointPolicy(every_events=None, every_bytes=1), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (CheckpointPolicy(every_events=None, on_close=True), [10]),
        (CheckpointPolicy(every_events=0), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
    ],
)
def test_the_policy_says_when(tmp_path: Path, policy: CheckpointPolicy, positions: list[int]) -> None:
    """By events, by bytes, on close, or never."""
    with toy_store(tmp_path / "refold.db", policy=policy) as store:
        with store.run("r") as run:
            for number in range(10):
                run.submit(Open(account=f"a{number}"))
        assert list(store.checkpoints.positions("r")) == positions


def test_the_way_through_a_long_run_is_told(file_store: Store) -> None:
    """Progress is told now and then, with where it is and where it goes; the state is the same with or without."""
    run = file_store.run("r")
    run.submit(Open(account="a"))
    for _ in range(5):
        run.ingest([("account.paid", {"account": "a", "amount": 1})] * 10_000)
    told: list[tuple[int, int]] = []
    view = file_store.view("r", start="genesis", progress=lambda at, of: told.append((at, of)))
    assert told == [(20_001, 50_001), (40_001, 50_001)]
    assert view.digest() == run.digest()


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_rests_while_a_checkpoint_is_loaded(
    store: Store, monkeypatch: pytest.MonkeyPatch, was_on: bool
) -> None:
    """And is then as it was before, also when the checkpoint turns out to be unusable."""
    run = store.run("r")
    fill(run)
    run.checkpoint()
    seen: list[bool] = []
    chain = Checkpoints.chain

    def watched(*arguments: Any) -> Any:
        seen.append(gc.isenabled())
        if len(seen) == 2:
            raise Rejected("spoilt")
        return chain(*arguments)

    monkeypatch.setattr(Checkpoints, "chain", watched)
    before = gc.isenabled()
    try:
        gc.enable() if was_on else gc.disable()
        for used in (run.position, "genesis"):
            assert store.view("r").report.used == used and gc.isenabled() is was_on
    finally:
        gc.enable() if before else gc.disable()
    assert seen == [False, False]


def test_a_run_with_references_reads_their_content_from_the_journal(tmp_path: Path) -> None:
    """A checkpoint of letters holds where they stand, not what they say; a damaged letter is named, never made up."""
    path = tmp_path / "refold.db"
    with toy_store(path) as store:
        run = store.run("r")
        run.submit(Open(account="a"))
        run.submit(Write(account="a", letter="secret " * 20))
        run.submit(Pay(account="a", amount=1))
        taken = run.checkpoint()
        assert taken is not None
        assert taken.size_bytes < 140
        assert store.run("r").restored.used == 3
        assert store.run("r").digest() == run.digest()
        with raw(path) as connection:
            connection.execute("UPDATE stored_events SET state=CAST(state||x'00' AS BLOB) WHERE originator_version=2")
        with pytest.raises(Exception, match="position 2"):
            store.run("r")


def test_the_toy_model_is_what_these_tests_think() -> None:
    """The tests above rely on a table ordered by key that deletes, and on one with references."""
    tables = BANK.initial().tables
    assert {name: (table.order, table.refer is not None) for name, table in tables.items()} == {
        "run.ledger": ("creation", False),
        "bank.accounts": ("key", False),
        "bank.letters": ("key", True),
    }
