"""Divergence: the first event after which two folds differ, and the field, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from engine.core.envelope import group_of
from engine.core.model import Model
from engine.core.state import ModelState
from engine.difference import difference, difference_of_bytes, difference_of_forms
from engine.divergence import divergence, off_the_fold, wires_apart
from engine.open_store import Store, open_store
from engine.restore import restore
from engine.store import capture, connect
from projections.model import MODEL
from projections.tasks import TasksProjection
from tests.engine.kit import NEVER, fill, toy_store
from tests.toy import BANK, PAID, BankProjection

Change = Callable[[Any, Any, int], None]


def bank_with(event: str, change: Change, **more: Any) -> Model:
    """The toy's model, with ``change`` done after one kind of event."""
    fold = BankProjection.evolve[event]

    def changed(state: Any, wire: Any, seq: int) -> None:
        fold(state, wire, seq)
        change(state, wire, seq)

    return Model((type("Other", (BankProjection,), {"evolve": {**BankProjection.evolve, event: changed}, **more})(),))


@pytest.fixture
def store() -> Store:
    """A store with one run of the toy."""
    store = toy_store("memory:")
    fill(store.run("r"))
    return store


def test_two_folds_that_agree_do_not_diverge(store: Store) -> None:
    """The same code, or other code that does the same, gives None."""
    assert store.divergence("r", BANK) is None
    assert store.divergence("r", bank_with("account.paid", lambda state, wire, seq: None)) is None


def test_the_first_event_and_the_field_are_named(store: Store) -> None:
    """The event is the first after which the states differ, the path leads into the record's columns and its JSON."""

    def spoil(state: Any, wire: Any, seq: int) -> None:
        if wire[3] == 9:
            state.accounts.edit(wire[2]).note["k"][3] = "v"

    found = store.divergence("r", bank_with("account.paid", spoil))
    assert found is not None
    assert (found.seq, found.event, found.path) == (5, "account.paid/2", "bank.accounts.a.note.k[3]")
    assert (found.difference.left, found.difference.right) == ("ü", "v")
    assert str(found) == "after event 5 (account.paid/2): bank.accounts.a.note.k[3]: 'ü' against 'v'"
    assert found.to_json() == {
        "seq": 5,
        "event": "account.paid/2",
        "path": "bank.accounts.a.note.k[3]",
        "left": "'ü'",
        "right": "'v'",
    }


def test_states_that_come_together_again_still_parted(store: Store) -> None:
    """Nothing bisects: folds that differ for one event only, and agree in the end, are told apart there."""

    def detour(state: Any, wire: Any, seq: int) -> None:
        if seq == 3:
            state.accounts.edit("a").balance += 1
        elif seq == 5:
            state.accounts.edit("a").balance -= 1

    other = bank_with("account.paid", detour)
    found = store.divergence("r", other)
    assert found is not None and (found.seq, found.path) == (3, "bank.accounts.a.balance")
    assert difference(store.view("r").ask(lambda state: state), state_of(store, other)) is None


def state_of(store: Store, model: Model) -> ModelState:
    return restore(store.journal, store.checkpoints, model, "r", start="genesis").state


def test_a_record_that_changed_without_a_note_is_named_where_it_did(store: Store) -> None:
    """A fold that goes round its table is found at the event that did it, not at the next that touches the record."""

    def sneak(state: Any, wire: Any, seq: int) -> None:
        if seq == 5:
            state.accounts.get("b").note = "x"

    found = store.divergence("r", bank_with("account.paid", sneak))
    assert found is not None and (found.seq, found.path) == (5, "bank.accounts.b.note")


def test_in_a_long_run_only_the_record_in_question_is_looked_at_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where comparing everything would cost too much, the record that was found is watched, with the same result."""
    monkeypatch.setattr("engine.divergence._WORK_MAX", 0)

    def sneak(state: Any, wire: Any, seq: int) -> None:
        if seq == 5:
            state.accounts.get("b").note = "x"

    found = store.divergence("r", bank_with("account.paid", sneak))
    assert found is not None and (found.seq, found.path) == (5, "bank.accounts.b.note")


def test_a_record_on_one_side_only_and_a_fold_that_fails_are_differences(store: Store) -> None:
    """A missing record is named as a whole; where only one side can fold, that is what differs."""
    gone = store.divergence(
        "r", bank_with("account.wrote", lambda state, wire, seq: state.letters.remove((wire[2], 0)))
    )
    assert gone is not None and gone.path == "bank.letters[b, 0]" and str(gone.difference.right) == "nothing"

    def fails(state: Any, wire: Any, seq: int) -> None:
        raise KeyError("no such letter")

    failed = store.divergence("r", bank_with("account.wrote", fails))
    assert failed is not None and failed.seq == 6
    assert str(failed.difference) == "the fold: folds against KeyError: 'no such letter'"


def test_initial_states_that_differ_are_told_before_the_first_event(store: Store) -> None:
    """Position 0 counts: no event is to blame."""

    def rich(self: Any) -> Any:
        bank = BankProjection().initial()
        bank.accounts.add("z", bank.accounts.load([1, 0, None]))
        return bank

    found = store.divergence("r", bank_with("account.paid", lambda *_: None, initial=rich))
    assert found is not None and (found.seq, found.event) == (0, None)
    assert str(found).startswith("before the first event: bank.accounts.z")


def test_the_order_of_records_is_a_difference() -> None:
    """Tables in order of creation: the same records in another order are named as that."""
    one, other = MODEL.initial(), MODEL.initial()
    for state, ids in ((one, ("x", "y")), (other, ("y", "x"))):
        for command_id in ids:
            state.note(command_id, b"f" * 16, 1, 1)
    found = difference(one, other)
    assert found is not None and found.path == "run.ledger (order)" and (found.left, found.right) == ("x", "y")
    by_bytes = difference_of_bytes(MODEL, one.bytes(), other.bytes())
    assert by_bytes is not None and by_bytes.path == "run.ledger (order)"


def test_states_known_by_their_bytes_are_compared_by_name(store: Store) -> None:
    """Bytes from another process are read back as tables, and the column is named."""
    mine = state_of(store, BANK)
    theirs = state_of(store, bank_with("account.paid", lambda state, wire, seq: pay_again(state, wire)))
    found = difference_of_bytes(BANK, mine.bytes(), theirs.bytes())
    assert found is not None and found.path == "bank.accounts.a.balance"
    assert difference_of_bytes(BANK, mine.bytes(), mine.bytes()) is None
    earlier = BANK.initial()
    found = difference_of_bytes(BANK, mine.bytes(), earlier.bytes())
    assert found is not None and found.path == "position"


def pay_again(state: Any, wire: Sequence[Any]) -> None:
    state.accounts.edit(wire[2]).balance += 1


def test_public_names_are_used_where_there_are_any() -> None:
    """In the task table the path is the row's, as people know it."""
    store = open_store("memory:", checkpoints=NEVER)
    tasks = store.run("r").tasks
    tasks.open_root("root")
    tasks.start("root")
    for child in ("fetch", "parse"):
        tasks.spawn(child, parent="root")
    tasks.suspend("root", wait="sub_agent_join", waiting_on=["fetch", "parse"])

    class Backwards(TasksProjection):
        @property
        def evolve(self) -> Any:
            fold = super().evolve["task.suspended"]
            turned = lambda state, wire, seq: fold(state, [*wire[:4], wire[4][::-1], *wire[5:]], seq)  # noqa: E731
            return {**super().evolve, "task.suspended": turned}

    other = Model((Backwards(), *MODEL.projections[1:]), MODEL.reactions, MODEL.guards)
    found = store.divergence("r", other)
    assert found is not None and found.event == "task.suspended/1"
    assert str(found.difference).startswith("tasks.root.waiting_on[0]: 'fetch' against 'parse'")


def test_a_checkpoint_that_differs_is_named_by_verification() -> None:
    """Verify says which field of which record a checkpoint has otherwise, and which event set it."""
    backend = connect("memory:")
    store = Store(backend, BANK, clock=lambda: 5, policy=NEVER)
    run = store.run("r")
    fill(run)
    lying = bank_with("account.paid", lambda state, wire, seq: pay_again(state, wire))
    wrong = state_of(store, lying)
    assert lying.fingerprint == BANK.fingerprint
    store.checkpoints.put("r", run.position, capture(wrong, "r", bytes.fromhex(run.link()), None))
    (fault,) = store.verify("r").faults
    assert fault.code == "checkpoint_differs"
    assert "after event 5 (account.paid/2): bank.accounts.a.balance: 14 against 16" in fault.found
    assert off_the_fold(store.journal, "r", BANK, state_of(store, BANK)) is None


def test_a_part_of_a_run_can_be_compared(store: Store) -> None:
    """With until the folds go so far and no further."""
    other = bank_with("account.wrote", lambda state, wire, seq: state.accounts.edit(wire[2]))
    assert divergence(store.journal, "r", BANK, other, until=5) is None
    late = bank_with("account.paid", lambda state, wire, seq: pay_again(state, wire) if seq == 5 else None)
    assert divergence(store.journal, "r", BANK, late, until=4) is None
    assert divergence(store.journal, "r", BANK, late, until=5) is not None


def test_an_event_that_no_side_can_fold_is_raised() -> None:
    """What neither side can fold is no difference between them."""
    group = group_of(0, None, None, None, None, [PAID.wire("nobody", 1, None)])
    with pytest.raises(KeyError):
        wires_apart([group], BANK.initial(), BANK.initial())


def test_plain_values_are_compared_in_words() -> None:
    """The place inside two values is found through lists, maps and bytes that are values themselves."""
    assert difference_of_forms({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == "a[1].b: 2 against 3"
    assert difference_of_forms({"a b": 1}, {}) == '["a b"]: 1 against nothing'
    assert difference_of_forms([1], [True]) == "[0]: 1 against True"
    assert difference_of_forms({"raw": b"\x81\x01"}, {"raw": b"\x81\x02"}) == "raw[0]: 1 against 2"
    assert difference_of_forms({"raw": b"\xff"}, {"raw": b"\xfe"}) == "raw: b'\\xff' against b'\\xfe'"
