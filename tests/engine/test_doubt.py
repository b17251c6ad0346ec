"""Verification believes nothing that a commit says: whatever refold would not have written is named at its event, and
whatever it does write passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.catalog import EventType, Upcast
from engine.core.envelope import group_of, seal_commit
from engine.core.errors import SchemaError
from engine.core.fields import FLOAT, ID, TEXT, Field
from engine.core.model import Model
from engine.open_store import Store, open_store
from engine.testing import PlainProjection
from tests.engine.kit import NEVER, fill, toy_store
from tests.toy import OPENED, PAID, Pay

PRINT = b"p" * 16
Groups = list[list[Any]]


def forged(store: Store, *commits: Groups, run: str = "r") -> None:
    """Append commits that no command gave, with the links that they should have."""
    for groups in commits:
        head = store.journal.head(run)
        assert head is not None
        stored, link = seal_commit(head.link, groups)
        count = sum(len(group[-1]) for group in groups)
        store.journal.append(run, head.position + 1, count, stored, link)


def paid(*, amount: Any = 1, account: str = "b", back: Any = 0) -> list[Any]:
    return [PAID.tag, back, account, amount, None]


def a_group(*wires: list[Any], **envelope: Any) -> list[Any]:
    given = {"at_ms": 5, "actor": None, "command_id": None, "fingerprint": None, "cause": None, **envelope}
    return group_of(**given, events=list(wires or [paid()]))


@pytest.fixture
def store() -> Store:
    """A store with a filled run of eleven events, the last of which is a commit of its own."""
    store = toy_store("memory:")
    fill(store.run("r"))
    return store


ENVELOPES: dict[str, list[dict[str, Any]]] = {
    "an actor without a name": [{"actor": ""}],
    "an actor of a null character": [{"actor": "\0"}],
    "an actor of a long name": [{"actor": "x" * 257}],
    "a command without a name": [{"command_id": "", "fingerprint": PRINT}],
    "a command of a long name": [{"command_id": "x" * 257, "fingerprint": PRINT}],
    "a command without a fingerprint": [{"command_id": "c"}],
    "a fingerprint without a command": [{"fingerprint": PRINT}],
    "an empty fingerprint": [{"command_id": "c", "fingerprint": b""}],
    "a fingerprint too long": [{"command_id": "c", "fingerprint": PRINT * 2}],
    "a cause before the first": [{"cause": 0}],
    "a cause below nothing": [{"cause": -5}],
    "itself as its cause": [{"cause": 12}],
    "a cause to come": [{"cause": 10**9}],
    "a cause without a name": [{"cause": ""}],
    "a command of long ago": [{"command_id": "open-a", "fingerprint": PRINT}],
}


@pytest.mark.parametrize("name", ENVELOPES)
def test_an_envelope_that_no_command_gave_is_named(store: Store, name: str) -> None:
    """What stands round the events is checked by the rules of the commands that they come by."""
    forged(store, *([a_group(**envelope)] for envelope in ENVELOPES[name]))
    (fault,) = store.verify("r").faults
    assert (fault.seq, fault.code) == (12, "impossible_event")
    assert store.verify("r").position == 11


def test_a_command_id_in_two_places_is_named_at_the_second(store: Store) -> None:
    """An id is one command's, and a command's events stand together."""
    forged(store, [a_group(command_id="c", fingerprint=PRINT)], [a_group(command_id="d", fingerprint=PRINT)])
    assert store.verify("r").ok
    forged(store, [a_group(command_id="d", fingerprint=PRINT)], [a_group(command_id="c", fingerprint=b"q" * 16)])
    assert [fault.seq for fault in store.verify("r").faults] == [14, 15]


@pytest.mark.parametrize("event", [5, None, "text", b"bytes", {"a": 1}, [], [PAID.tag], [OPENED.tag]])
def test_what_is_no_event_is_named(store: Store, event: Any) -> None:
    """Whatever stands where an event should."""
    forged(store, [a_group(paid(), event)])
    assert [fault.seq for fault in store.verify("r").faults] == [13]


def test_a_group_without_events_is_named(store: Store) -> None:
    """A command without events is not recorded."""
    forged(store, [a_group(), [5, "x", None, None, None, []], a_group()])
    assert [(fault.seq, "without any" in fault.found) for fault in store.verify("r").faults] == [(13, True)]


@pytest.mark.parametrize(("backs", "bad"), [((0, 1, 2), []), ((1, 0, 0), [12]), ((0, 2, 3), [13, 14]), ((0, -1), [13])])
def test_a_way_back_leads_to_an_event_of_the_same_commit(store: Store, backs: tuple[int, ...], bad: list[int]) -> None:
    """The cause of an event within its commit stands before it there."""
    forged(store, [a_group(*(paid(back=back) for back in backs))])
    assert [fault.seq for fault in store.verify("r").faults] == bad


def test_every_bad_field_is_named_at_its_own_event(store: Store) -> None:
    """In the midst of a commit, in several commits, after one another: each by its position, what is before the first
    is intact."""
    forged(store, [a_group(paid(), paid(amount=1.5), paid(amount=True)), a_group(paid(amount=-1))], [a_group()])
    forged(store, [a_group(paid(), paid(amount=-7))])
    verdict = store.verify("r")
    assert [(fault.seq, fault.code) for fault in verdict.faults] == [
        (13, "impossible_event"), (14, "impossible_event"), (15, "impossible_event"), (18, "impossible_event"),
    ]  # fmt: skip
    assert "account.paid.amount" in verdict.faults[0].found
    assert verdict.position == 12


@pytest.mark.parametrize("place", range(5))
def test_an_event_that_does_not_fold_is_named_at_its_own_position(store: Store, place: int) -> None:
    """Not at the first of its commit, nor is a later one named that may follow from it."""
    wires = [paid() for _ in range(5)]
    wires[place] = [OPENED.tag, 0, "a", None]  # it is open
    forged(store, [a_group(*wires[:2], command_id="c", fingerprint=PRINT), a_group(*wires[2:])])
    verdict = store.verify("r")
    assert [(fault.seq, fault.code) for fault in verdict.faults] == [(12 + place, "impossible_event")]
    assert verdict.position == 11 + place


def test_forged_events_of_a_fork_and_of_what_it_shares_are_named(store: Store) -> None:
    """Of an origin, up to the joint, and of the fork's own."""
    forged(store, [a_group(paid(), paid(amount=-1), paid(), paid(amount=-2))])
    store.fork("r", "f", at=14)
    forged(store, [a_group(paid(amount=-3))], run="f")
    assert [fault.seq for fault in store.verify("f").faults] == [13, 15]
    assert [fault.seq for fault in store.verify("r").faults] == [13, 15]


# -- upcasts ----------------------------------------------------------------------------------------------------------

SENT_1 = EventType("mail.sent", (Field("to", ID), Field("text", TEXT)))
SENT_2 = EventType("mail.sent", (Field("to", ID), Field("text", TEXT), Field("weight", FLOAT)), version=2)


def mail(lift: Callable[[Any], Any]) -> Model:
    """A projection whose event once had no weight."""
    return Model(
        (
            PlainProjection(
                "mail",
                [SENT_2],
                initial=dict,
                decide=lambda state, command: [],
                evolve=lambda state, event: {**state, event["to"]: event["weight"]},
                upcasts=[Upcast(SENT_1, lift)],
            ),
        )
    )


def old_mail(path: Path, text: Any = "hello") -> None:
    """Write three events of the first version."""
    with open_store(path, model=mail(lambda fields: [*fields, 1.0]), checkpoints=NEVER, clock=lambda: 5) as store:
        store.run("r").ingest([("mail.sent", {"to": "x", "text": "new", "weight": 1.0})])
        forged(store, *([a_group([SENT_1.tag, 0, "y", each])] for each in (text, "b", "c")))


def test_an_upcast_that_gives_what_its_table_refuses_is_blamed_and_not_the_record(tmp_path: Path) -> None:
    """The stored events are as they were written: what is wrong is the code, and that is said once."""
    path = tmp_path / "refold.db"
    old_mail(path)
    with open_store(path, model=mail(lambda fields: [*fields, 1])) as store:
        (fault,) = store.verify("r").faults
        assert (fault.seq, fault.code) == (2, "schema_error")
        assert "the upcast of mail.sent/1 gives what mail.sent/2 does not allow" in fault.found
        assert "mend the upcast" in fault.hint


@pytest.mark.parametrize(
    ("lift", "says"),
    [
        (lambda fields: fields, "the upcast of mail.sent/1 gives 2 fields, where mail.sent/2 has 3"),
        (lambda fields: [*fields, 1 / 0], "the upcast of mail.sent/1 fails with ZeroDivisionError"),
        (lambda fields: None, "the upcast of mail.sent/1 fails with TypeError"),
    ],
)
def test_an_upcast_that_fails_is_named_by_every_reader(tmp_path: Path, lift: Any, says: str) -> None:
    """A typed error that says which upcast it was; the record stays as it is."""
    path = tmp_path / "refold.db"
    old_mail(path)
    with open_store(path, model=mail(lift)) as store:
        for read in (store.run, store.view, lambda run: list(store.history(run))):
            with pytest.raises(SchemaError, match=says):
                read("r")
        (fault,) = store.verify("r").faults
        assert (fault.seq, fault.code) == (2, "schema_error") and says in fault.found
    with open_store(path, model=mail(lambda fields: [*fields, 1.0])) as store:
        assert store.verify("r").ok


def test_an_old_event_that_was_forged_is_blamed_and_not_its_upcast(tmp_path: Path) -> None:
    """It is checked against the table of its own version first."""
    path = tmp_path / "refold.db"
    old_mail(path, text=7)
    with open_store(path, model=mail(lambda fields: [*fields, float(len(fields[1]))])) as store:
        (fault,) = store.verify("r").faults
        assert (fault.seq, fault.code) == (2, "impossible_event") and "mail.sent.text" in fault.found


def test_what_refold_writes_is_never_doubted(store: Store) -> None:
    """Commands with ids, actors and causes of both kinds, batches that join, repeated commands, forks, and a prefix
    that ends in the midst of a command's events."""
    run = store.run("r", actor="clerk")
    twice = [("account.paid", {"account": "a", "amount": amount}) for amount in (1, 2)]
    with run.batch():
        for number in range(3):
            run.ingest(twice, command_id=f"twice-{number}", cause=3)
    store.fork("r", "f", at=run.position - 1).submit(Pay(account="a", amount=1))
    lines = list(store.export_lines("r", at=run.position - 1))
    elsewhere = toy_store("memory:")
    elsewhere.import_lines(lines)
    assert elsewhere.run("r").ingest(twice, command_id="twice-2", cause=3).repeated
    elsewhere.run("r").submit(Pay(account="a", amount=1), command_id="once more", cause="a letter")
    for each, names in ((store, ("r", "f")), (elsewhere, ("r",))):
        for name in names:
            assert each.verify(name).faults == ()
