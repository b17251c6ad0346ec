"""The envelope: what a commit's bytes are, the chain over them, and cutting and merging that no reader notices."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import envelope as envelope_module
from engine.core.envelope import Commit, Event, body_of, events_of, genesis, group_of, merge, open_commit, seal_commit
from engine.core.errors import CorruptJournal, LimitExceeded
from engine.store.lineage import cut
from tests.toy import BANK, OPENED, PAID, PAID_1

FINGERPRINT = b"f" * 16


@st.composite
def commands(draw: st.DrawFn) -> list[Any]:
    """Groups as commands give them, many of them alike, so that merging has something to do."""
    groups = []
    for number in range(draw(st.integers(1, 8))):
        named = draw(st.booleans())
        wires = [PAID.wire("a", amount, None) for amount in draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))]
        for place, wire in enumerate(wires[1:], start=1):
            wire[1] = draw(st.integers(0, place))
        groups.append(
            group_of(
                draw(st.sampled_from([5, 6])),
                draw(st.sampled_from([None, "x"])),
                f"command-{number}" if named else None,
                FINGERPRINT if named else None,
                draw(st.sampled_from([None, 1, "why"])),
                wires,
            )
        )
    return groups


def copied(groups: list[Any]) -> list[Any]:
    return [[*group[:-1], [list(wire) for wire in group[-1]]] for group in groups]


def read(groups: list[Any], first: int = 1) -> list[Event]:
    return list(events_of(Commit(first, sum(len(group[-1]) for group in groups), b"", groups), BANK.catalog))


@given(commands())
def test_a_commit_is_read_back_as_it_was_sealed(groups: list[Any]) -> None:
    """Sealing and opening give the same groups, count and link, and the link is plain SHA-256 over the last link and
    the bytes."""
    before = genesis("r")
    stored, link = seal_commit(before, groups)
    commit = open_commit("r", 4, before, stored)
    assert commit.groups == groups
    assert (commit.first, commit.last, commit.link) == (4, 3 + sum(len(group[-1]) for group in groups), link)
    assert link == stored[:32] == hashlib.sha256(before + stored[32:]).digest()
    assert cbor2.loads(stored[32:]) == groups


@given(commands())
def test_merged_commands_are_the_same_events(groups: list[Any]) -> None:
    """Commands that share a group read exactly as they do apart: batch or single, every reader sees the same events."""
    merged: list[Any] = []
    for group in copied(groups):
        merge(merged, group)
    assert read(merged) == read(groups)
    assert len(merged) <= len(groups)
    assert [group for group in merged if group[2] is not None] == [group for group in groups if group[2] is not None]


@given(commands(), st.data())
def test_a_commit_cut_anywhere_holds_the_first_events(groups: list[Any], data: st.DataObject) -> None:
    """Cutting keeps exactly the events up to the place, and leaves the commit that was cut alone."""
    whole = Commit(10, sum(len(group[-1]) for group in groups), b"", groups)
    until = data.draw(st.integers(9, whole.last + 1))
    before = copied(groups)
    kept = list(cut(whole, until))
    assert read(kept, first=10) == read(groups, first=10)[: until - 9]
    assert groups == before


@given(commands(), st.integers(0, 40), st.integers(0, 40))
def test_events_between_two_positions_are_those_of_the_whole(groups: list[Any], after: int, until: int) -> None:
    """A reader that asks for some positions sees what a reader of all of them sees there."""
    commit = Commit(1, sum(len(group[-1]) for group in groups), b"", groups)
    some = list(events_of(commit, BANK.catalog, after, until))
    assert some == [event for event in read(groups) if after < event.seq <= until]


def test_the_cause_of_an_event_is_the_nearest_thing_known() -> None:
    """An event caused by another names its position; otherwise the cause given with the command, or the command's
    id."""
    second = PAID.wire("a", 1, None)
    second[1] = 1
    told = group_of(5, None, "id", FINGERPRINT, "why", [PAID.wire("a", 1, None), second])
    quiet = group_of(5, None, "id-2", FINGERPRINT, None, [PAID.wire("a", 1, None)])
    silent = group_of(5, None, None, None, None, [PAID.wire("a", 1, None)])
    assert [event.cause for event in read([told, quiet, silent], first=7)] == ["why", 7, "id-2", None]


def test_an_older_version_is_read_in_its_current_form() -> None:
    """What people see is the current version of an event, its cause kept."""
    old = [PAID_1.tag, 1, "a", 5]
    (event,) = read([group_of(5, None, None, None, None, [old])], first=3)
    assert (event.type, event.data, event.cause) == ("account.paid/2", {"account": "a", "amount": 5, "note": None}, 2)
    assert old == [PAID_1.tag, 1, "a", 5]


def test_a_run_has_its_own_chain() -> None:
    """The first link depends on the run's id: a row that is moved to another run does not fit there."""
    stored, _ = seal_commit(genesis("r"), [group_of(5, None, None, None, None, [OPENED.wire("a", None)])])
    assert genesis("r") != genesis("s")
    with pytest.raises(CorruptJournal) as caught:
        open_commit("s", 1, genesis("s"), stored)
    assert (caught.value.run, caught.value.position) == ("s", 1)


PLAIN, _ = seal_commit(genesis("r"), [group_of(5, "x", "id", FINGERPRINT, 1, [OPENED.wire("a", {"k": [1.5]})])])
PACKED, _ = seal_commit(genesis("r"), [group_of(5, None, None, None, None, [OPENED.wire("a", "long words, " * 30)])])


@pytest.mark.parametrize("sample", [PLAIN, PACKED], ids=["plain", "packed"])
def test_every_flipped_bit_breaks_the_link(sample: bytes) -> None:
    """There is no bit of a stored commit that can change without being noticed."""
    for byte in range(len(sample)):
        for bit in range(8):
            damaged = bytearray(sample)
            damaged[byte] ^= 1 << bit
            with pytest.raises(CorruptJournal, match="position 1"):
                open_commit("r", 1, genesis("r"), bytes(damaged))


@pytest.mark.parametrize("sample", [PLAIN, PACKED], ids=["plain", "packed"])
def test_a_commit_of_another_length_breaks_the_link(sample: bytes) -> None:
    """A commit that lost its end, or everything, or has something behind its end is refused."""
    for damaged in [*(sample[:length] for length in range(len(sample))), sample + b"\0", sample + sample]:
        with pytest.raises(CorruptJournal, match="position 1"):
            open_commit("r", 1, genesis("r"), damaged)


def test_long_texts_are_packed_and_nothing_else_changes() -> None:
    """Packing is how bytes lie on disk: the link is that of the events themselves, and they are read back the same."""
    groups = [group_of(5, None, None, None, None, [OPENED.wire("a", "long words, " * 300)])]
    stored, link = seal_commit(genesis("r"), groups)
    body = cbor2.dumps(groups)
    assert len(stored) < len(body) / 4
    assert link == hashlib.sha256(genesis("r") + body).digest() == stored[:32]
    assert body_of(stored) == body
    assert open_commit("r", 1, genesis("r"), stored).groups == groups
    assert open_commit("r", 1, genesis("r"), link + body).groups == groups  # not packed is as good


def test_a_packed_commit_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that unpack to more than a commit may hold are refused before they do."""
    monkeypatch.setattr(envelope_module, "COMMIT_BYTES_MAX", 1000)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(b"\x81" * 100_000) + packer.flush()
    stored = bytes(32) + b"\0" + zlib.crc32(bomb).to_bytes(4, "big") + bomb
    with pytest.raises(CorruptJournal, match="does not end where it should"):
        open_commit("r", 1, genesis("r"), stored)


@pytest.mark.parametrize(
    "value", [None, 5, "text", [], [1], [[1, 2]], [[5, None, None, None, None, 7]], {"a": 1}, [None], [[[[[]]]]]]
)
def test_bytes_with_a_right_link_that_are_no_commit_are_refused(value: Any) -> None:
    """A forger who works out the link still has to write a commit: anything else is damage, named by position."""
    body = cbor2.dumps(value)
    forged = hashlib.sha256(genesis("r") + body).digest() + body
    with pytest.raises(CorruptJournal, match="position 9"):
        open_commit("r", 9, genesis("r"), forged)


def test_limits_of_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many events, a too large one and too many bytes are each refused under the limit's name; at the limit all is
    well."""
    one = [5, None, None, None, None, [OPENED.wire("a", "x" * 100)]]
    size = len(cbor2.dumps(one[5][0]))
    body = len(cbor2.dumps([one]))
    for name, fits in [("COMMIT_EVENTS_MAX", 1), ("EVENT_BYTES_MAX", size), ("COMMIT_BYTES_MAX", body)]:
        with monkeypatch.context() as patch:
            patch.setattr(envelope_module, name, fits)
            if name != "EVENT_BYTES_MAX":
                seal_commit(b"", [one])
            patch.setattr(envelope_module, name, fits - 1)
            with pytest.raises(LimitExceeded, match=name) as caught:
                seal_commit(b"", [one])
            assert caught.value.details["maximum"] == fits - 1
            assert caught.value.details["value"] == fits
