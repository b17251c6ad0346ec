"""Strategies: everything they draw is taken by what it is for, and what cannot be drawn is said."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field as Bound

from engine.core.catalog import EventType
from engine.core.codec import decode, encode
from engine.core.command import CommandModel
from engine.core.decider import fingerprint_of
from engine.core.errors import InvalidValue
from engine.core.fields import (
    BOOL,
    BYTES,
    FLOAT,
    ID,
    JSON,
    JSON_OBJECT,
    TEXT,
    TIME_MS,
    U32,
    U64,
    UNIT,
    Checked,
    list_of,
    one_of,
    optional,
)  # fmt: skip
from engine.core.state import ModelState
from engine.testing import (
    Twin,
    assert_replay_identical,
    commands,
    event_data,
    facts,
    field_values,
    from_samples,
    journals,
    register_field_type,
    register_parameter,
    states,
)
from engine.testing.strategies import command_classes
from projections.model import MODEL
from tests.toy import BANK

FEW = settings(max_examples=15, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))

TYPES = [
    ID, TEXT, U32, U64, TIME_MS, BOOL, FLOAT, UNIT, BYTES, JSON, JSON_OBJECT,
    optional(U32), one_of("mood", ("good", "bad")), list_of(TEXT), list_of(U32, unique=True), optional(list_of(ID)),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.label)
def test_values_of_every_field_type_are_taken_as_they_are(kind: Checked) -> None:
    """A drawn value passes its type's check unchanged and comes back from its bytes."""

    @FEW
    @given(field_values(kind))
    def taken(value: Any) -> None:
        assert encode(kind.check(value)) == encode(value)
        assert encode(decode(encode(value))) == encode(value)

    taken()


@pytest.mark.parametrize("event_type", [e for p in MODEL.projections for e in p.events], ids=lambda e: e.label)
def test_data_of_every_event_is_taken(event_type: EventType) -> None:
    """Drawn data of each event of the four projections passes the event's check unchanged."""

    @settings(FEW, max_examples=5)
    @given(event_data(event_type))
    def taken(data: dict[str, Any]) -> None:
        wire = event_type.check(data)
        assert encode(event_type.check(event_type.data(wire))) == encode(wire)

    taken()


@pytest.mark.parametrize("kind", [c for p in MODEL.projections for c in command_classes(p)], ids=lambda c: c.__name__)
def test_commands_of_every_class_are_built(kind: type[CommandModel]) -> None:
    """Each command class of the four projections is drawn, and has a fingerprint: its content is plain values."""

    @settings(FEW, max_examples=5)
    @given(commands(kind))
    def built(command: CommandModel) -> None:
        assert type(command) is kind
        assert len(fingerprint_of(command)) == 16

    built()


def test_every_projection_has_its_commands() -> None:
    """The commands are found by the projection that they name, in its own package only."""
    found = {projection.name: len(command_classes(projection)) for projection in MODEL.projections}
    assert all(count > 10 for count in found.values()), found
    bank = [kind.__name__ for kind in command_classes(BANK.projections[0]) if kind.__module__ == "tests.toy"]
    assert bank == ["Open", "Pay", "Close", "Write"]


@FEW
@given(facts(BANK, old=True))
def test_old_facts_are_of_superseded_versions(fact: Any) -> None:
    """With old=True the version drawn is one that is lifted."""
    assert fact[0] == "account.paid/1" and set(fact[1]) == {"account", "amount"}


@FEW
@given(journals(MODEL, max_commands=12))
def test_a_drawn_journal_is_a_run_of_the_model(twin: Twin) -> None:
    """A journal drawn can be stored, exported and replayed by every route."""
    assert twin.store().run("run").digest() == twin.state.digest()
    assert len(twin.lines()) == twin.position
    assert_replay_identical(twin, elsewhere=False)


@FEW
@given(states(BANK, min_commits=1))
def test_a_drawn_state_is_one_that_a_run_comes_to(state: ModelState) -> None:
    """A state has the events that led to it behind it."""
    assert state.seq > 0 and state.model is BANK


def test_a_type_that_nobody_registered_is_named() -> None:
    """Without a strategy the error says how to give one; with one, values are drawn by it."""
    odd = Checked("odd number", _odd)
    with pytest.raises(LookupError, match="register_field_type"):
        field_values(odd)
    register_field_type("odd number", from_samples(1, 3))

    @FEW
    @given(field_values(odd))
    def drawn(value: int) -> None:
        assert value in (1, 3)

    drawn()


def _odd(value: Any) -> int:
    if value % 2 == 0:
        raise InvalidValue("", "even")
    number: int = value
    return number


class Everything(CommandModel):
    projection: ClassVar[str] = "annotations"
    name: ClassVar[str] = "everything"
    one: Literal["a", "b"]
    some: list[int]
    bounded: Annotated[int, Bound(ge=3, lt=6)]
    maybe: str | None = None
    mapping: dict[str, Any] = Bound(default_factory=dict)
    real: float = 0.0
    raw: bytes = b""


class Opaque(CommandModel):
    projection: ClassVar[str] = "annotations"
    name: ClassVar[str] = "opaque"
    thing: complex


@FEW
@given(commands(Everything))
def test_parameters_are_drawn_by_their_annotations(command: Everything) -> None:
    """Literals, lists, bounds, optional and plain types are understood."""
    assert command.one in ("a", "b") and 3 <= command.bounded < 6


def test_a_parameter_that_says_too_little_is_named() -> None:
    """An annotation that tells nothing is an error with the parameter's name, until a strategy is registered."""
    with pytest.raises(LookupError, match=r"Opaque\.thing"):
        commands(Opaque)
    register_parameter("annotations", "opaque", "thing", st.just(1j))

    @FEW
    @given(commands(Opaque))
    def drawn(command: Opaque) -> None:
        assert command.thing == 1j

    drawn()
