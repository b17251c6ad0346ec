"""What a run promises, on every backend alike."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from engine.core.errors import CommandMismatch, Conflict, InvalidValue, LimitExceeded, NotFound, Refused, SchemaError
from engine.core.handle import Outcome
from engine.open_store import Store
from tests.engine.kit import fill
from tests.toy import Close, Open, Pay, Write


def seqs(outcome: Outcome) -> list[int]:
    return [event.seq for event in outcome.events]


def test_a_new_run_is_empty_and_writes_nothing(store: Store) -> None:
    """Opening a run, asking it and closing it leaves no trace in the store."""
    with store.run("r") as run:
        assert run.position == 0
        assert len(run.digest()) == 64
        assert run.checkpoint() is None
        assert list(store.runs()) == []
    assert list(store.runs()) == []
    with pytest.raises(NotFound, match="no run 'r'"):
        store.view("r")


def test_what_was_given_is_what_is_read_back(store: Store) -> None:
    """Every event is in the history with its envelope, and another handle folds the same bytes."""
    run = store.run("r", actor="planner")
    fill(run)
    events = list(store.history("r"))
    assert [event.seq for event in events] == list(range(1, run.position + 1))
    assert events[0].to_json() == {
        "seq": 1,
        "type": "account.opened/1",
        "recorded_at_ms": 1001,
        "actor": "clerk",
        "command_id": "open-a",
        "cause": "open-a",
        "data": {"account": "a", "note": {"k": [1, 2.5, None, "ü"]}},
    }
    assert [event.actor for event in events[2:5]] == ["planner", "other", "planner"]
    assert [event.cause for event in events[5:]] == [2, 2, 2, None, "somewhere", None]
    other = store.run("r")
    assert other.state_bytes() == run.state_bytes()
    assert other.link() == run.link()
    assert store.view("r").digest() == run.digest()


def test_an_outcome_is_what_history_will_say(store: Store) -> None:
    """The events a command returns are those that are read back later, inside a batch too."""
    run = store.run("r", actor="planner")
    outcomes = [
        run.submit(Open(account="a"), command_id="x", cause="why"),
        run.submit(Pay(account="a", amount=5), cause=1),
    ]
    with run.batch():
        outcomes.append(run.submit(Pay(account="a", amount=6), at_ms=7))
        outcomes.append(run.submit(Write(account="a", letter=["l"]), command_id="y"))
        outcomes.append(run.submit(Pay(account="a", amount=7), at_ms=7))
    shown = [event for outcome in outcomes for event in outcome.events]
    assert shown == list(store.history("r"))
    assert [outcome.position for outcome in outcomes] == [1, 2, 3, 4, 5]
    assert all(outcome.changed and not outcome.repeated for outcome in outcomes)


def test_a_command_that_repeats_what_is_records_nothing(store: Store) -> None:
    """A no-op without an id appends nothing and says so."""
    run = store.run("r")
    run.submit(Open(account="a"))
    outcome = run.submit(Open(account="a"))
    assert (outcome.count, outcome.changed, outcome.position, list(outcome.events)) == (0, False, 1, [])
    assert run.position == 1


def test_a_refused_command_changes_nothing(store: Store) -> None:
    """After a refusal state, link and journal are as before, and the next command works."""
    run = store.run("r")
    fill(run)
    before = (run.state_bytes(), run.link(), run.position)
    for command in (Pay(account="nobody", amount=1), Pay(account="a", amount=13), Pay(account="a", amount=-1)):
        with pytest.raises((Refused, NotFound)):
            run.submit(command, command_id="again-and-again")
    assert (run.state_bytes(), run.link(), run.position) == before
    assert store.run("r").state_bytes() == before[0]
    assert run.submit(Pay(account="a", amount=1), command_id="again-and-again").count == 1


def test_a_repeated_command_id_gives_the_first_outcome(store: Store) -> None:
    """The same id with the same content returns the first events and position, in any handle, and adds nothing."""
    run = store.run("r")
    run.submit(Open(account="a"))
    first = run.submit(Pay(account="a", amount=5), command_id="pay", actor="me")
    run.submit(Pay(account="a", amount=6))
    for handle in (run, store.run("r")):
        again = handle.submit(Pay(account="a", amount=5), command_id="pay", actor="someone else", at_ms=9)
        assert again == first
        assert (again.repeated, again.count, again.position) == (True, 1, 2)
        assert handle.position == 3
    assert len(list(store.history("r"))) == 3


def test_a_no_op_under_an_id_takes_the_id(store: Store) -> None:
    """A command that changes nothing still takes its id, so that the id can never come to mean something else."""
    run = store.run("r")
    run.submit(Open(account="a"))
    noted = run.submit(Open(account="a"), command_id="once")
    assert [event.type for event in noted.events] == ["run.command_noted/1"]
    assert run.submit(Open(account="a"), command_id="once") == noted
    with pytest.raises(CommandMismatch):
        run.submit(Open(account="b"), command_id="once")


@pytest.mark.parametrize(
    "other", [Pay(account="a", amount=6), Pay(account="b", amount=5), Close(account="a"), Open(account="a")]
)
def test_an_id_with_other_content_is_refused(store: Store, other: Any) -> None:
    """The first command stands; nothing is written for the second, in a batch neither."""
    run = store.run("r")
    run.submit(Open(account="a"))
    run.submit(Pay(account="a", amount=5), command_id="pay")
    before = run.state_bytes()
    with pytest.raises(CommandMismatch, match="position 2") as caught:
        run.submit(other, command_id="pay")
    assert caught.value.details == {"command_id": "pay", "position": 2}
    with run.batch(), pytest.raises(CommandMismatch):
        run.submit(other, command_id="pay")
    assert run.state_bytes() == before == store.run("r").state_bytes()


def test_facts_under_an_id_are_one_command(store: Store) -> None:
    """The same facts under the same id give the first outcome; other facts, or a command, under it are refused."""
    run = store.run("r")
    facts = [("account.opened", {"account": "a"}), ("account.paid", {"account": "a", "amount": 3})]
    first = run.ingest(facts, command_id="import-1")
    assert seqs(first) == [1, 2]
    assert run.ingest(facts, command_id="import-1") == first
    for other in (facts[:1], facts[::-1], [facts[0], ("account.paid", {"account": "a", "amount": 4})]):
        with pytest.raises(CommandMismatch):
            run.ingest(other, command_id="import-1")
    with pytest.raises(CommandMismatch):
        run.submit(Open(account="a"), command_id="import-1")
    assert run.position == 2


def test_facts_are_recorded_all_or_none(store: Store) -> None:
    """A fact that breaks the rules, has a bad field or is unknown takes the whole commit with it."""
    run = store.run("r")
    run.submit(Open(account="a"))
    before = run.state_bytes()
    good = ("account.paid", {"account": "a", "amount": 3})
    for bad, kind in [
        (("account.opened", {"account": "a"}), Refused),
        (("account.paid", {"account": "b", "amount": 3}), NotFound),
        (("account.paid", {"account": "a", "amount": -3}), InvalidValue),
        (("account.paid", {"account": "a", "amount": 3, "x": 1}), InvalidValue),
        (("account.paid/3", {"account": "a"}), SchemaError),
        (("account.burned", {"account": "a"}), SchemaError),
        (("run.command_noted", {}), Refused),
    ]:
        with pytest.raises(kind):
            run.ingest([good, bad, good])
        assert run.state_bytes() == before == store.run("r").state_bytes()
    assert run.ingest([good, good]).count == 2


def test_a_batch_is_one_commit(store: Store) -> None:
    """All of a batch is there, or none; commands see those before them; nothing is visible elsewhere until it ends."""
    run = store.run("r")
    with run.batch():
        run.submit(Open(account="a"))
        run.submit(Pay(account="a", amount=1))
        assert run.position == 2
        assert store.run("r").position == 0
    assert store.run("r").position == 2
    before = run.state_bytes()
    with pytest.raises(RuntimeError, match="no more"), run.batch():
        run.submit(Pay(account="a", amount=1))
        raise RuntimeError("no more")
    assert run.state_bytes() == before == store.run("r").state_bytes()


def test_an_empty_batch_writes_nothing(store: Store) -> None:
    """A batch without an effect is no commit."""
    run = store.run("r")
    with run.batch():
        pass
    run.submit(Open(account="a"))
    with run.batch():
        run.submit(Open(account="a"))
    assert run.position == store.run("r").position == 1


def test_a_refused_command_leaves_the_rest_of_its_batch(store: Store) -> None:
    """Whoever catches a refusal inside a batch keeps what the batch did before and after."""
    run = store.run("r")
    with run.batch():
        run.submit(Open(account="a"))
        with pytest.raises(Refused):
            run.submit(Pay(account="a", amount=13))
        with pytest.raises(Refused):
            run.ingest([("account.paid", {"account": "a", "amount": 3}), ("account.opened", {"account": "a"})])
        run.submit(Pay(account="a", amount=5))
    assert [event.data.get("amount") for event in store.history("r")] == [None, 5]
    assert store.run("r").state_bytes() == run.state_bytes()


def test_ids_inside_a_batch(store: Store) -> None:
    """An id repeated within its batch gives the outcome it has there; when the batch fails the id is free again."""
    run = store.run("r")
    with run.batch():
        first = run.submit(Open(account="a"), command_id="x")
        run.submit(Pay(account="a", amount=1))
        again = run.submit(Open(account="a"), command_id="x")
        assert again == first
        assert again.repeated
    with pytest.raises(ZeroDivisionError), run.batch():
        run.submit(Pay(account="a", amount=1), command_id="y")
        raise ZeroDivisionError
    assert run.submit(Pay(account="a", amount=2), command_id="y").repeated is False
    assert run.submit(Open(account="a"), command_id="x") == first


def test_what_a_batch_does_not_allow(store: Store) -> None:
    """Batches do not nest, and neither refresh nor a checkpoint looks at half a commit; the batch itself goes on."""
    run = store.run("r")
    with run.batch():
        run.submit(Open(account="a"))
        for call in (run.refresh, run.checkpoint, lambda: run.batch().__enter__()):
            with pytest.raises(Refused, match="batch"):
                call()
    assert store.run("r").position == 1


def test_the_slower_writer_gets_a_conflict_and_can_go_on(store: Store) -> None:
    """A writer that has not seen the last commit writes nothing, is told so, and succeeds after a refresh."""
    fast, slow = store.run("r"), store.run("r")
    fast.submit(Open(account="a"))
    before = slow.state_bytes()
    with pytest.raises(Conflict, match="position 1") as caught:
        slow.submit(Open(account="b"))
    assert caught.value.retryable
    with pytest.raises(Conflict), slow.batch():
        slow.submit(Open(account="b"))
        slow.submit(Pay(account="b", amount=5))
    assert slow.state_bytes() == before
    assert slow.position == 0
    assert slow.refresh() == 1
    assert slow.submit(Open(account="b")).position == 2
    with pytest.raises(Conflict):
        fast.submit(Close(account="a"))
    assert fast.refresh() == 2
    assert fast.state_bytes() == slow.state_bytes()


def test_a_conflict_whatever_the_sizes_of_the_commits(store: Store) -> None:
    """Two writers at one head collide also when one appends a single event and the other many."""
    run = store.run("r")
    run.submit(Open(account="a"))
    one, many = store.run("r"), store.run("r")
    with many.batch():
        for amount in range(20, 25):
            many.submit(Pay(account="a", amount=amount))
    with pytest.raises(Conflict):
        one.submit(Pay(account="a", amount=1))
    late = store.run("r")
    many.submit(Pay(account="a", amount=1))
    with pytest.raises(Conflict), late.batch():
        for amount in range(20, 25):
            late.submit(Pay(account="a", amount=amount))
    assert store.view("r").position == 7


def test_a_repeated_id_that_another_writer_used_is_found_after_a_refresh(store: Store) -> None:
    """The ledger is part of the run: whoever lost the race with the same command gets the winner's outcome."""
    fast, slow = store.run("r"), store.run("r")
    won = fast.submit(Open(account="a"), command_id="open")
    with pytest.raises(Conflict):
        slow.submit(Open(account="a"), command_id="open")
    slow.refresh()
    assert slow.submit(Open(account="a"), command_id="open") == won


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"command_id": ""}, "command_id"),
        ({"command_id": "x" * 257}, "command_id"),
        ({"command_id": 5}, "command_id"),
        ({"actor": "\n"}, "actor"),
        ({"actor": b"me"}, "actor"),
        ({"at_ms": -1}, "at_ms"),
        ({"at_ms": 1.5}, "at_ms"),
        ({"at_ms": True}, "at_ms"),
        ({"at_ms": 2**53}, "at_ms"),
        ({"cause": ""}, "cause"),
        ({"cause": 0}, "cause"),
        ({"cause": -1}, "cause"),
        ({"cause": 2}, "cause"),
        ({"cause": 2**70}, "cause"),
        ({"cause": True}, "cause"),
        ({"cause": 1.0}, "cause"),
        ({"cause": "a\ud800"}, "cause"),
        ({"cause": ("a",)}, "cause"),
    ],
)
def test_an_envelope_that_could_not_be_read_back_is_refused(store: Store, arguments: dict[str, Any], path: str) -> None:
    """Id, actor, time and cause are checked before anything is written, each by its name."""
    run = store.run("r")
    run.submit(Open(account="a"))
    with pytest.raises(InvalidValue) as caught:
        run.submit(Pay(account="a", amount=1), **arguments)
    assert caught.value.path == path
    with pytest.raises(InvalidValue):
        run.ingest([("account.paid", {"account": "a", "amount": 1})], **arguments)
    assert run.position == 1
    assert run.submit(Pay(account="a", amount=1)).position == 2


@pytest.mark.parametrize("run_id", ["", " ", "a\0b", "a\nb", "x" * 257, "\ud800", "r\udcff"])
def test_an_id_that_is_none_names_no_run(store: Store, run_id: str) -> None:
    """A bad run id is refused by every verb, never a crash of the database under it."""
    with pytest.raises(InvalidValue, match="run id"):
        store.run(run_id)
    with pytest.raises(InvalidValue, match="actor"):
        store.run("r", actor=run_id)
    for verb in (store.view, store.verify, store.history, store.export_lines):
        with pytest.raises((InvalidValue, NotFound)):
            list(verb(run_id))  # type: ignore[call-overload]


@pytest.mark.parametrize("reading", [1.5, None, -1, "5", 2**53, True])
def test_a_clock_that_gives_no_time_is_refused(store: Store, reading: Any) -> None:
    """What the clock says is checked like any other value, and nothing is written."""
    store._clock = lambda: reading
    run = store.run("r")
    with pytest.raises(InvalidValue, match="clock"):
        run.submit(Open(account="a"))
    assert run.position == 0


def test_order_is_that_of_positions_whatever_the_clock_says(store: Store) -> None:
    """A clock that goes backwards is recorded as it is; nothing depends on it."""
    run = store.run("r")
    for number, at_ms in enumerate([50, 10, 10, 0]):
        run.submit(Open(account=f"a{number}"), at_ms=at_ms)
    assert [event.recorded_at_ms for event in store.history("r")] == [50, 10, 10, 0]
    assert store.run("r").state_bytes() == run.state_bytes()


def test_what_is_handed_out_shares_nothing_with_the_state(store: Store) -> None:
    """Changing a command's value afterwards, or the events of an outcome, changes neither state nor journal."""
    run = store.run("r")
    note = {"k": [1]}
    outcomes = [run.submit(Open(account="a", note=note), command_id="x")]
    with run.batch():
        outcomes.append(run.submit(Write(account="a", letter=note), command_id="y"))
        outcomes.append(run.submit(Write(account="a", letter=note), command_id="y"))
    outcomes.append(run.submit(Open(account="a", note=note), command_id="x"))
    facts = [("account.opened", {"account": "b", "note": note})]
    outcomes.append(run.ingest(facts))
    before = run.state_bytes()
    note["k"].append(2)
    facts[0][1]["account"] = "c"
    for outcome in outcomes:
        for event in outcome.events:
            for value in event.data.values():
                if isinstance(value, dict):
                    value["k"].append(3)
    assert run.state_bytes() == before == store.run("r").state_bytes()


def test_every_position_of_the_past_can_be_seen(store: Store) -> None:
    """The state as of each position is the one the run had there; beyond the ends there is none."""
    run = store.run("r")
    states = {0: run.state_bytes()}
    run.submit(Open(account="a"))
    states[1] = run.state_bytes()
    for amount in range(1, 6):
        run.submit(Pay(account="a", amount=amount), command_id=f"pay-{amount}")
        states[run.position] = run.state_bytes()
        if amount == 3:
            run.checkpoint()
    for position, state in states.items():
        assert run.at(position).state_bytes() == state
        assert store.view("r", at=position).state_bytes() == state
        assert store.view("r", at=position, start="genesis").position == position
    for position in (-1, 7, 2**70):
        with pytest.raises(NotFound, match="no position"):
            run.at(position)
    assert not hasattr(run.at(1), "submit")


def test_runs_are_apart_and_listed_in_order(store: Store) -> None:
    """Runs of one store share nothing; the list names each with its head and checkpoints."""
    for name in ("b", "a", "ü"):
        run = store.run(name)
        run.submit(Open(account=name))
        run.submit(Pay(account=name, amount=1))
    run.checkpoint()
    assert [(line.run, line.position, line.checkpoints) for line in store.runs()] == [
        ("a", 2, ()),
        ("b", 2, ()),
        ("ü", 2, (2,)),
    ]
    assert {line.link for line in store.runs()} == {store.run(name).link() for name in ("a", "b", "ü")}
    assert len({line.link for line in store.runs()}) == 3


def test_a_run_may_be_shared_by_threads(store: Store) -> None:
    """Commands of several threads on one handle are one after the other; none is lost and none is doubled."""
    run = store.run("r")
    run.submit(Open(account="a"))
    errors: list[BaseException] = []

    def pay(thread: int) -> None:
        try:
            for number in range(20):
                if number % 5 == 0:
                    with run.batch():
                        run.submit(Pay(account="a", amount=1))
                        run.submit(Pay(account="a", amount=1))
                else:
                    run.submit(Pay(account="a", amount=1), command_id=f"{thread}-{number}")
                run.digest()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=pay, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert run.position == 1 + 6 * (16 + 8)
    assert run.ask(lambda state: state.parts["bank"].total) == 6 * (16 + 8)
    assert store.run("r").state_bytes() == run.state_bytes()


def test_another_thread_never_sees_an_unfinished_batch(store: Store) -> None:
    """While a batch is open, other threads wait: neither position nor state shows what may yet be taken back."""
    run = store.run("r")
    run.submit(Open(account="a"))
    inside, seen = threading.Event(), []

    def look() -> None:
        inside.wait()
        seen.append((run.position, run.ask(lambda state: state.parts["bank"].total)))

    watcher = threading.Thread(target=look)
    watcher.start()
    with pytest.raises(ZeroDivisionError), run.batch():
        run.submit(Pay(account="a", amount=5))
        inside.set()
        watcher.join(0.05)
        raise ZeroDivisionError
    watcher.join()
    assert seen == [(1, 0)]


def test_limits_are_refused_before_anything_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit over a limit leaves state and journal as they were; a smaller one goes through afterwards."""
    run = store.run("r")
    run.submit(Open(account="a"))
    before = run.state_bytes()
    monkeypatch.setattr("engine.core.envelope.COMMIT_EVENTS_MAX", 3)
    monkeypatch.setattr("engine.core.envelope.EVENT_BYTES_MAX", 500)
    with pytest.raises(LimitExceeded, match="COMMIT_EVENTS_MAX"), run.batch():
        for _ in range(4):
            run.submit(Pay(account="a", amount=1))
    with pytest.raises(LimitExceeded, match="EVENT_BYTES_MAX"):
        run.submit(Write(account="a", letter="x" * 600), command_id="large")
    assert run.state_bytes() == before == store.run("r").state_bytes()
    assert run.submit(Write(account="a", letter="x" * 100), command_id="large").repeated is False


def test_the_deepest_value_survives_event_checkpoint_and_restore(store: Store) -> None:
    """A value at the limit of nesting goes through journal, checkpoint and export, and one level more is refused."""
    run = store.run("r")
    value: Any = 0
    for _ in range(64):
        value = [value]
    run.submit(Open(account="a", note=value))
    run.submit(Write(account="a", letter=value))
    run.checkpoint()
    assert store.run("r").restored.used == 2
    assert store.view("r", start="genesis").state_bytes() == run.state_bytes() == store.run("r").state_bytes()
    with pytest.raises(InvalidValue, match="nested deeper"):
        run.submit(Write(account="a", letter=[value]))


def test_a_closed_run_checkpoints_only_when_told(store: Store) -> None:
    """Closing twice, or with nothing new, does nothing; the policy alone decides about a checkpoint."""
    with store.run("r") as run:
        run.submit(Open(account="a"))
    run.close()
    assert list(store.checkpoints.positions("r")) == []
