"""The model: decisions change nothing until they are kept, reactions join the same commit, and cutting the fold
anywhere
changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.catalog import EventType, Wire
from engine.core.decider import Moment, fingerprint_of
from engine.core.envelope import Group, group_of
from engine.core.errors import InvalidValue, Refused, SchemaError
from engine.core.fields import ID, U64, Field
from engine.core.model import Model
from engine.core.state import COMMAND_NOTED, ModelState
from engine.core.table import Table
from tests.toy import BANK, CLOSED, OPENED, PAID, PAID_1, WROTE, BankProjection, Close, Open, Pay, Write

COUNTED = EventType("audit.counted", (Field("account", ID), Field("payments", U64)), number=1010)
ALARMED = EventType("audit.alarmed", (Field("account", ID),), number=1011)


class Count:
    """How many payments an account has seen."""

    __slots__ = ("payments",)

    def __init__(self, payments: int) -> None:
        self.payments = payments

    def dump(self) -> list[Any]:
        return [self.payments]

    @classmethod
    def load(cls, dumped: list[Any]) -> Count:
        return cls(*dumped)


class Audit:
    """Counts by account, and the alarms as a derived number."""

    def __init__(self) -> None:
        self.counts: Table[Count] = Table("counts", Count)
        self.busiest = 0

    @property
    def tables(self) -> tuple[Table[Any], ...]:
        return (self.counts,)

    def reindex(self) -> None:
        self.busiest = max((count.payments for count in self.counts.rows.values()), default=0)


def _counted(state: Audit, wire: Wire, seq: int) -> None:
    row = state.counts.edit(wire[2]) if wire[2] in state.counts else state.counts.add(wire[2], Count(0))
    row.payments = wire[3]
    state.busiest = max(state.busiest, row.payments)


class AuditProjection:
    """Counts payments because the bank makes them; takes no commands of its own."""

    name = "audit"
    events = (COUNTED, ALARMED)
    upcasts = ()
    evolve = {"audit.counted": _counted, "audit.alarmed": lambda state, wire, seq: None}  # noqa: RUF012

    def initial(self) -> Audit:
        return Audit()

    def decide(self, state: Audit, command: Any, moment: Moment) -> Sequence[Wire]:
        raise Refused("the audit takes no commands")

    def admit(self, state: Audit, wire: Wire, moment: Moment) -> Sequence[Wire]:
        return [wire]


def count_payment(states: Mapping[str, Any], wire: Wire, moment: Moment) -> list[Wire]:
    counts = states["audit"].counts.rows
    before = counts[wire[2]].payments if wire[2] in counts else 0
    return [COUNTED.wire(wire[2], before + 1)]


def alarm_at_three(states: Mapping[str, Any], wire: Wire, moment: Moment) -> list[Wire]:
    return [ALARMED.wire(wire[2])] if wire[3] == 3 else []


def not_from_the_unlucky(states: Mapping[str, Any], wire: Wire) -> None:
    if wire[3] == 666:
        raise Refused("the audit forbids it")


AUDITED = Model(
    (BankProjection(), AuditProjection()),
    {"account.paid": (count_payment,), "audit.counted": (alarm_at_three,)},
    {"account.paid": (not_from_the_unlucky,)},
)


def moment(state: ModelState) -> Moment:
    return Moment("r", state.seq + 1, 5)


def test_reactions_follow_in_the_same_commit_with_their_cause() -> None:
    """An event's consequences in other projections, and theirs, are events of the same decision, each naming its
    cause."""
    state = AUDITED.initial()
    state.begin()
    AUDITED.decide(state, Open(account="a"), moment(state))
    for _ in range(2):
        AUDITED.decide(state, Pay(account="a", amount=1), moment(state))
    wires = AUDITED.decide(state, Pay(account="a", amount=1), moment(state))
    assert [(wire[0], wire[1]) for wire in wires] == [(PAID.tag, 0), (COUNTED.tag, 1), (ALARMED.tag, 1)]
    assert state.seq == 1 + 2 + 2 + 3
    assert state.parts["audit"].busiest == 3


def test_ingested_facts_cause_the_same_reactions() -> None:
    """A fact that another runtime decided has the consequences it would have had if it were decided here."""
    states = [AUDITED.initial(), AUDITED.initial()]
    for state in states:
        state.begin()
    decided = AUDITED.decide(states[0], Open(account="a"), moment(states[0]))
    decided += AUDITED.decide(states[0], Pay(account="a", amount=1), moment(states[0]))
    facts = [OPENED.wire("a", None), PAID.wire("a", 1, None)]
    admitted = AUDITED.admit(states[1], facts, moment(states[1]))
    assert admitted == decided
    assert states[0].bytes() == states[1].bytes()


def test_a_guard_of_another_projection_refuses_before_anything_is_folded() -> None:
    """What a guard forbids leaves the state as it was, decided or ingested."""
    state = AUDITED.initial()
    state.begin()
    AUDITED.decide(state, Open(account="a"), moment(state))
    before = state.bytes()
    with pytest.raises(Refused, match="forbids"):
        AUDITED.decide(state, Pay(account="a", amount=666), moment(state))
    with pytest.raises(Refused, match="forbids"):
        AUDITED.admit(state, [PAID.wire("a", 666, None)], moment(state))
    assert state.bytes() == before


def test_what_is_put_back_has_its_indexes_back() -> None:
    """After a commit that did not happen, tables, what is derived from them, position and ledger are as before."""
    state = AUDITED.initial()
    state.begin()
    AUDITED.decide(state, Open(account="a"), moment(state))
    AUDITED.decide(state, Pay(account="a", amount=4), moment(state))
    state.note("id", b"f" * 16, 2, 1)
    state.keep()
    before, total, busiest = state.bytes(), state.parts["bank"].total, state.parts["audit"].busiest
    at = state.begin()
    AUDITED.decide(state, Pay(account="a", amount=4), moment(state))
    AUDITED.decide(state, Close(account="a"), moment(state))
    state.note("other", b"f" * 16, 4, 1)
    assert state.bytes() != before
    state.put_back(at)
    assert (state.bytes(), state.parts["bank"].total, state.parts["audit"].busiest) == (before, total, busiest)


def test_the_engines_own_events_cannot_be_ingested() -> None:
    """A fact is a projection's; the engine's own bookkeeping is refused from outside."""
    state = AUDITED.initial()
    with pytest.raises(Refused, match="own events"):
        AUDITED.admit(state, [COMMAND_NOTED.wire()], moment(state))


WIRES: list[Wire] = [
    OPENED.wire("a", {"k": 1}),
    [PAID_1.tag, 0, "a", 3],
    PAID.wire("a", 4, "tip"),
    OPENED.wire("b", None),
    WROTE.wire("b", ["dear"]),
    WROTE.wire("b", ["again"]),
    CLOSED.wire("a"),
    OPENED.wire("a", None),
    PAID.wire("b", 1, None),
]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=9), st.integers(0, len(WIRES)), st.integers(0, len(WIRES)))
def test_a_fold_cut_anywhere_and_continued_is_the_whole_fold(sizes: list[int], first: int, second: int) -> None:
    """Folding a prefix, then the rest, in any three pieces, gives the bytes of folding at once, within commands too."""
    groups: list[Group] = []
    rest = [list(wire) for wire in WIRES]
    for number, size in enumerate(sizes):
        if rest:
            groups.append(group_of(5, None, f"id-{number}", b"f" * 16, None, rest[:size]))
            rest = rest[size:]
    groups.append(group_of(5, None, None, None, None, rest))
    whole = BANK.initial()
    whole.apply(groups)
    pieces = BANK.initial()
    low, high = sorted((first, second))
    for start, end in ((0, low), (low, high), (high, len(WIRES))):
        pieces.apply(piece(groups, start, end))
    assert pieces.bytes() == whole.bytes()
    assert pieces.parts["bank"].total == whole.parts["bank"].total
    assert pieces.seq == whole.seq == len(WIRES)


def piece(groups: list[Group], start: int, end: int) -> list[Group]:
    """Return the groups with the events start < place <= end."""
    found: list[Group] = []
    place = 0
    for *envelope, events in groups:
        kept = [wire for number, wire in enumerate(events, start=place) if start <= number < end]
        place += len(events)
        if kept:
            found.append([*envelope, kept])
    return found


def test_state_bytes_do_not_depend_on_how_the_state_came_about() -> None:
    """A record removed and added again, and one that never went, are the same state; an unused projection adds no
    bytes."""
    straight, roundabout, alone = AUDITED.initial(), AUDITED.initial(), BANK.initial()
    straight.apply([group_of(5, None, None, None, None, [OPENED.wire("a", None), OPENED.wire("b", None)])])
    alone.apply([group_of(5, None, None, None, None, [OPENED.wire("a", None), OPENED.wire("b", None)])])
    wires = [OPENED.wire("b", None), OPENED.wire("a", None), CLOSED.wire("a"), OPENED.wire("a", None)]
    roundabout.apply([group_of(5, None, None, None, None, wires)])
    roundabout.seq = straight.seq
    assert roundabout.bytes() == straight.bytes() == alone.bytes()
    assert roundabout.digest() == straight.digest()


@given(st.lists(st.integers(0, len(WIRES)), min_size=2, max_size=2, unique=True))
def test_different_states_have_different_digests(lengths: list[int]) -> None:
    """States at two positions never share a digest."""
    digests = set()
    for length in lengths:
        state = BANK.initial()
        state.apply([group_of(5, None, None, None, None, [list(wire) for wire in WIRES[:length]])])
        digests.add(state.digest())
    assert len(digests) == 2


def test_an_unknown_event_in_the_fold_is_named_with_its_position() -> None:
    """The fold says where it met what it cannot read, and whether that is newer."""
    for wire, message in [
        ([PAID.number * 16 + 3, 0, "a"], "position 2: event account.paid/3 is newer"),  # type: ignore[operator]
        ([77777, 0], "position 2: unknown event 77777"),
        ([], "position 2: unknown event None"),
        ([[1], 0], "position 2: unknown event"),
    ]:
        state = BANK.initial()
        with pytest.raises(SchemaError) as caught:
            state.apply([group_of(5, None, None, None, None, [OPENED.wire("a", None), wire])])
        assert message in str(caught.value)
        assert caught.value.details["position"] == 2


def test_fingerprints_tell_commands_apart() -> None:
    """Two commands have one fingerprint exactly when projection, name and content are the same."""
    same = [Pay(account="a", amount=1), Pay(account="a", amount=1, note=None)]
    others = [Pay(account="a", amount=2), Pay(account="b", amount=1), Close(account="a"), Write(account="a", letter=1)]
    assert len({fingerprint_of(command) for command in same}) == 1
    assert len({fingerprint_of(command) for command in [*same, *others]}) == 5


@pytest.mark.parametrize("content", [{1, 2}, object(), 2**70, "\ud800", 1j])
def test_content_that_cannot_be_kept_has_no_fingerprint(content: Any) -> None:
    """A command whose content is no plain value is refused: it could not be recognised in another process."""
    with pytest.raises(InvalidValue, match="write"):
        fingerprint_of(Write(account="a", letter=content))


def test_the_models_fingerprint_follows_its_schemas() -> None:
    """Another set of projections, an event more or another field is another fingerprint; the same model has the
    same."""

    class Other(BankProjection):
        events = (*BankProjection.events, EventType("account.frozen", (), number=1020))
        evolve = {**BankProjection.evolve, "account.frozen": lambda state, wire, seq: None}  # noqa: RUF012

    class Newer(BankProjection):
        state_version = 2

    models = [BANK, AUDITED, Model((Other(),)), Model((Newer(),))]
    assert len({model.fingerprint for model in models}) == len(models)
    assert Model((BankProjection(),)).fingerprint == BANK.fingerprint
