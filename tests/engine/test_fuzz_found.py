"""What fuzzing has found, each as the smallest case of its kind: typed errors that can be shown, and no answer made of
what nobody checked."""

from __future__ import annotations

import io
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import read_json as read_json_module
from engine.adapters.kernel_recording import read as read_recording
from engine.adapters.kernel_recording import reading as reading_module
from engine.archive import from_json
from engine.asking import asked
from engine.changes import with_changes
from engine.core import envelope
from engine.core.codec import NotCanonical, count_items, encode
from engine.core.envelope import genesis, open_commit
from engine.core.errors import CorruptJournal, EngineError, ImportRefused, InvalidValue, LimitExceeded, SchemaError
from engine.core.model import Model
from engine.import_file import read_file
from engine.moments import position_at
from engine.open_store import Store, open_store
from projections.model import MODEL
from tests.engine.kit import raw, toy_store
from tests.engine.strategies import plain_values
from tests.toy import BANK, Open

# -- files ------------------------------------------------------------------------------------------------------------


def line(**changed: Any) -> dict[str, Any]:
    """The one line of an archive of the toy."""
    with toy_store("memory:") as store:
        store.run("r").submit(Open(account="a", note=1))
        return {**json.loads(next(store.export_lines("r"))), **changed}


def bring(text: str, **how: Any) -> None:
    with toy_store("memory:") as store:
        try:
            read_file(io.BytesIO(text.encode())).into(store, **how)
        finally:
            assert not store.runs()


@pytest.mark.parametrize("levels", [90, 400])
def test_an_archive_that_is_nested_without_end_is_refused(levels: int) -> None:
    """JSON that the parser takes and that our own reading of it would not survive."""
    deep = "[" * levels + "]" * levels
    text = json.dumps(line()).replace('"note": 1', f'"note": {deep}')
    with pytest.raises(ImportRefused, match="nested deeper than 64 levels"):
        bring(text)
    with pytest.raises(InvalidValue):
        from_json(json.loads(deep))


class Endless(io.RawIOBase):
    """A file that goes on for ever, and counts what was taken of it."""

    def __init__(self, begin: bytes) -> None:
        self.begin, self.taken = begin, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = (self.begin if not self.taken else b"").ljust(len(buffer))[: len(buffer)]
        buffer[:] = piece
        self.taken += len(piece)
        return len(piece)


def test_a_small_file_takes_little_memory_and_an_endless_one_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes memory for all the bytes that are asked for: so they are asked for piece by piece, up to the limit
    on them."""
    for module in (read_json_module, reading_module):
        monkeypatch.setattr(module, "IMPORT_BYTES_MAX", 5 << 20)
    small = tmp_path / "small.json"
    small.write_text('{"decoded_inputs": [], "planned_steps": []}')
    for read in (lambda: read_file(small.open("rb")), lambda: read_recording(small)):
        tracemalloc.start()
        read()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3 << 20
    endless = Endless(b'{"nodes": [\n')
    with pytest.raises(ImportRefused, match="IMPORT_BYTES_MAX"):
        read_file(io.BufferedReader(endless))
    assert endless.taken < 8 << 20
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (6 << 20))
    with pytest.raises(ImportRefused, match="IMPORT_BYTES_MAX"):
        read_recording(large)


@pytest.mark.parametrize("version", ["²", "9" * 5_000, "٣", "-1", ""])
def test_a_version_that_is_no_number_of_ours_is_refused(version: str) -> None:
    """Digits that Python calls digits, and does not read as a number."""
    with pytest.raises(ImportRefused, match="unknown event"):
        bring(json.dumps(line(type=f"account.opened/{version}")))
    with pytest.raises(SchemaError):
        BANK.catalog.check(f"account.opened/{version}", {})


@pytest.mark.parametrize("run", [["r"], {"r": 1}, 5, b"r", None, "", "a\0"])
def test_a_run_id_of_the_caller_is_checked_first(run: Any) -> None:
    """Also by the importer, which looks the run up before anything else."""
    if run is None:
        return
    with pytest.raises(InvalidValue, match="run id"):
        bring(json.dumps(line()), run_id=run)


@pytest.mark.parametrize("text", ["\ud800", "x" * 1_000_000, "é" * 1_000_000, "\udfff" * 9_000], ids=len)
def test_an_error_can_be_shown_whatever_it_quotes(text: str) -> None:
    """Its message goes to screens, logs and files: it is Unicode that has a UTF-8 form, and it has an end."""
    for error in (
        ImportRefused(f"no key {text}", [], hint=text),
        InvalidValue(text, "is no field").at("swarm.started"),
        CorruptJournal("r", 1, text, text),
    ):
        assert len(error.message.encode()) + len(error.hint.encode()) < 40_000
        assert str(error).encode() and json.dumps(error.to_json())
    with pytest.raises(ImportRefused) as caught:
        bring(json.dumps(line(data={text: 1})))
    assert str(caught.value).encode()


# -- commits that are small on disk only ------------------------------------------------------------------------------


@given(plain_values)
def test_items_are_counted_as_the_decoder_meets_them(value: Any) -> None:
    """Each scalar, text, list, map and key is one; counting ends where it is told to."""
    data, wanted = encode(value), _items(value)
    assert count_items(data, 10**9) == wanted
    assert count_items(data, wanted) == wanted
    assert count_items(data, wanted - 1) == wanted


def _items(value: Any) -> int:
    if type(value) is dict:
        return 1 + len(value) + sum(map(_items, value.values()))
    return 1 + sum(map(_items, value)) if type(value) is list else 1


@given(st.binary())
def test_counting_ends_on_any_bytes(data: bytes) -> None:
    """Also on those that are no CBOR."""
    assert count_items(data, 10**9) <= len(data)


BOMBS = {
    "empty lists": b"\x80",
    "empty maps": b"\xa0",
    "lists of one": b"\x81\xf6",
    "texts": b"\x61a",
    "numbers": b"\x19\x03\xe8",
    "lists in lists": b"\x82\x80\x80",
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_small_row_cannot_ask_for_memory_without_end(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small items deflate a thousandfold, and take up to 64 bytes each as lists and texts: they are counted before they
    are made. (Here up to a small number; the sweep does it with the limit itself.)"""
    monkeypatch.setattr(envelope, "COMMIT_ITEMS_MAX", 100_000)
    count = (4 << 20) // len(BOMBS[what])
    body = (
        b"\x81\x86\x05\xf6\xf6\xf6\xf6\x81\x84\x19\x3e\x91\x00\x61a\x9a"
        + count.to_bytes(4, "big")
        + BOMBS[what] * count
    )
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(body) + packer.flush()
    assert len(packed) < 1 << 16
    stored = b"\0" + zlib.crc32(packed).to_bytes(4, "big") + packed
    link = sha256(genesis("r") + body).digest()
    tracemalloc.start()
    try:
        with pytest.raises(CorruptJournal, match="more than 100000 items"):
            open_commit("r", 1, genesis("r"), link + stored)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_what_no_reader_would_take_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """COMMIT_ITEMS_MAX holds for whoever writes, and COMMIT_BYTES_MAX for rows that are not deflated too."""
    monkeypatch.setattr(envelope, "COMMIT_ITEMS_MAX", 1_000)
    with toy_store("memory:") as store:
        run = store.run("r")
        run.submit(Open(account="a", note=[[]] * 900))
        before = run.state_bytes()
        with pytest.raises(LimitExceeded, match="COMMIT_ITEMS_MAX"), run.batch():
            run.submit(Open(account="b", note=[[]] * 900))
            run.submit(Open(account="c", note=[[]] * 900))
        assert run.state_bytes() == before == store.view("r").state_bytes()
        monkeypatch.setattr(envelope, "COMMIT_ITEMS_MAX", 800)
        with pytest.raises(CorruptJournal, match="more than 800 items"):
            store.view("r")
        assert not store.verify("r").ok
    monkeypatch.setattr(envelope, "COMMIT_BYTES_MAX", 100)
    with pytest.raises(NotCanonical, match="a commit of 200 bytes"):
        envelope.body_of(bytes(32) + b"\x81" * 200)


# -- bytes with right links that no decision gave ---------------------------------------------------------------------

GOOD = [5, None, None, None, None, [[16017, 0, "a", None]]]


def forged(path: Path, *groups: Any, model: Model = BANK) -> Store:
    """A store whose one commit holds these groups, under a link that fits."""
    with toy_store(path) as store:
        store.run("r").submit(Open(account="a"))
    body = encode(list(groups))
    link = sha256(genesis("r") + body).digest()
    with raw(path) as connection:
        connection.execute("UPDATE stored_events SET state=?", (link + body,))
        connection.execute("UPDATE run_heads SET link=?", (link,))
    return open_store(path, model=model, read_only=True)


READERS: dict[str, Callable[[Store], Any]] = {
    "view": lambda store: store.view("r").digest(),
    "handle": lambda store: store.run("r").digest(),
    "history": lambda store: [event.to_json() for event in store.history("r")],
    "backwards": lambda store: list(store.history("r", newest_first=True)),
    "changes": lambda store: list(with_changes(store.journal, store.checkpoints, store.model, "r", store.history("r"))),
    "moment": lambda store: position_at(store.journal, "r", 5),
    "export": lambda store: list(store.export_lines("r")),
    "divergence": lambda store: store.divergence("r", store.model),
}


def answers(store: Store) -> Iterator[tuple[str, EngineError | None]]:
    """What each reader says, an error as the error. What is no error of refold fails the test."""
    for name, read in READERS.items():
        try:
            read(store)
        except EngineError as error:
            yield name, error
        else:
            yield name, None


ENVELOPES = {
    "time": ["5", None, None, None, None],
    "time before all times": [-1, None, None, None, None],
    "time after all times": [2**53, None, None, None, None],
    "actor": [5, 7, None, None, None],
    "command id": [5, None, ["c"], b"f", None],
    "fingerprint": [5, None, "c", "f", None],
    "cause": [5, None, None, None, {"seq": 1}],
}


@pytest.mark.parametrize("what", ENVELOPES)
def test_what_stands_round_events_is_checked_when_a_commit_is_opened(what: str, tmp_path: Path) -> None:
    """No reader sees a time, an actor, an id or a cause of another type, whatever the link says."""
    with forged(tmp_path / "refold.db", [*ENVELOPES[what], GOOD[5]]) as store:
        for name, error in answers(store):
            assert isinstance(error, CorruptJournal) and error.position == 1, name
        assert not store.verify("r").ok


EVENTS = {
    "too many fields": [16017, 0, "a", None, 1],
    "too few fields": [16017, 0, "a"],
    "no fields": [16017],
    "nothing": [],
    "no list": 7,
    "a map": {"a": 1},
    "a tag that is a list": [[16017], 0, "a", None],
    "a tag that is a map": [{}, 0, "a", None],
    "a cause that is a text": [16017, "x", "a", None],
    "an id that is a list": [16017, 0, ["a"], None],
    "an account that is not there": [16034, 0, "b", 5, None],
    "a number that is a text": [16034, 0, "a", "5", None],
}


@pytest.mark.parametrize("what", EVENTS)
def test_an_event_that_no_decision_gave_is_damage_to_every_reader(what: str, tmp_path: Path) -> None:
    """Whatever a reader stumbles over in bytes whose links hold, it says so as an error of refold; and those that fold
    say that nothing follows from it."""
    with forged(tmp_path / "refold.db", [*GOOD[:5], [GOOD[5][0], EVENTS[what]]]) as store:
        said = dict(answers(store))
        assert any(isinstance(error, CorruptJournal | SchemaError) for error in said.values())
    assert {type(error) for error in said.values()} <= {CorruptJournal, SchemaError, type(None)}


@pytest.mark.parametrize(
    ("event", "field", "number"),
    [("swarm.started/1", "worker_count", 2**32 - 1), ("node.dispatched/1", "attempt", 2**32 - 1)],
)
def test_a_number_that_no_event_gave_is_not_counted_up_to(event: str, field: str, number: int) -> None:
    """A swarm of four billion workers, an attempt after four billion others: refused before anything is made of it."""
    with open_store("memory:", clock=lambda: 5) as store:
        run = store.run("r")
        run.swarm.start(2)
        run.graphs.create("g", "goal", [{"id": 0, "title": "t", "description": "d"}])
        run.graphs.start("g")
        run.graphs.dispatch("g", 0, "h")
        lines = [json.loads(each) for each in store.export_lines("r")]
    place = next(place for place, each in enumerate(lines) if each["type"] == event)
    assert field in lines[place]["data"]
    lines[place]["data"][field] = number
    with open_store("memory:") as store, pytest.raises(ImportRefused, match="do not follow from those before"):
        store.import_lines(json.dumps(each) for each in lines)


def test_a_state_that_cannot_be_shown_is_damage_and_a_wrong_question_is_not(tmp_path: Path) -> None:
    """A query that fails over a forged state names the journal; the same failure over a sound one stays what it is."""

    def wrong(state: Any) -> Any:
        raise KeyError("the caller's own")

    with open_store("memory:", clock=lambda: 5) as store:
        run = store.run("r")
        run.tasks.open_root("root")
        with pytest.raises(KeyError):
            run.ask(wrong)
        with pytest.raises(TypeError):
            run.tasks.get([])  # type: ignore[arg-type]
        state = MODEL.initial()
        created = MODEL.catalog.by_name["context.created"].wire("c", 5, "no such kind", 0, None)
        state.apply([[5, None, None, None, None, [created]]])
    with pytest.raises(CorruptJournal):
        asked("r", state, wrong)
    state = MODEL.initial()
    created = MODEL.catalog.by_name["context.created"].wire("c", 5, "root", 0, None)
    state.apply([[5, None, None, None, None, [created]]])
    with pytest.raises(KeyError):
        asked("r", state, wrong)
    state.part("contexts").contexts.rows["c"].next = 3  # it can be written, and not be shown
    with pytest.raises(CorruptJournal):
        asked("r", state, wrong)


@pytest.mark.parametrize(
    "subject", [{"task": 5}, {"task": ["root"]}, {"context": b"c"}, {"worker": "1"}, {"node": ("g", "0")}], ids=str
)
def test_a_subject_of_another_type_is_no_subject(subject: dict[str, Any]) -> None:
    """Asked why about what nothing can be called, refold says so."""
    with open_store("memory:") as store:
        run = store.run("r")
        run.tasks.open_root("root")
        with pytest.raises(InvalidValue):
            run.why(**subject)
