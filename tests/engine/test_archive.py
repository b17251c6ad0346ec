"""Export and import: a run leaves as lines of JSON and comes back byte-identical, or is refused by the line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.archive import commits_of, from_json, to_json
from engine.core.catalog import EventType, Upcast, Wire
from engine.core.envelope import genesis, group_of, seal_commit
from engine.core.errors import Conflict, CorruptJournal, ImportRefused, InvalidValue, NotFound
from engine.core.fields import BYTES, FLOAT, ID, JSON, Field, list_of, optional
from engine.core.model import Model
from engine.open_store import Store
from tests.engine.kit import fill, raw, stored_rows, toy_store
from tests.engine.strategies import json_values
from tests.toy import BANK, OPENED, PAID_1, BankProjection, Open, Pay


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    """A second, empty store."""
    with toy_store(tmp_path / "other.db") as opened:
        yield opened


def exported(store: Store, run_id: str = "r") -> list[str]:
    return list(store.export_lines(run_id))


def test_a_run_comes_back_byte_identical(file_store: Store, other: Store, tmp_path: Path) -> None:
    """Every stored row of an imported run is the exported one's: link, bytes, commit boundaries and all."""
    run = file_store.run("r", actor="x")
    fill(run)
    run.submit(Open(account="a"), command_id="a no-op")
    run.ingest([("account.opened", {"account": "z", "note": "ü" * 1000}), ("account.closed", {"account": "z"})])
    assert other.import_lines(exported(file_store)) == ("r", run.position)
    assert stored_rows(tmp_path / "other.db", "r") == stored_rows(tmp_path / "refold.db", "r")
    assert other.run("r").state_bytes() == run.state_bytes()
    assert exported(other) == exported(file_store)
    assert other.run("r").submit(Open(account="a", note={"k": [1, 2.5, None, "ü"]}), command_id="open-a").repeated


def test_a_run_of_an_older_version_comes_back_as_it_was(file_store: Store, other: Store, tmp_path: Path) -> None:
    """Events stored in an older version are exported and imported in that version, not lifted on the way."""
    groups = [group_of(5, None, None, None, None, [OPENED.wire("a", None), [PAID_1.tag, 1, "a", 5]])]
    stored, link = seal_commit(genesis("r"), groups)
    file_store.journal.append("r", 1, 2, stored, link)
    lines = exported(file_store)
    assert [json.loads(line)["type"] for line in lines] == ["account.opened/1", "account.paid/1"]
    other.import_lines(lines)
    assert stored_rows(tmp_path / "other.db", "r") == [(1, stored)]
    assert other.view("r").digest() == file_store.view("r").digest()


KEPT = EventType(
    "box.kept",
    (
        Field("id", ID),
        Field("raw", BYTES),
        Field("many", list_of(optional(BYTES))),
        Field("any", JSON),
        Field("x", FLOAT),
    ),
    number=1030,
)


class Boxes(BankProjection):
    name = "boxes"
    events = (KEPT,)
    upcasts: tuple[Upcast, ...] = ()
    evolve = {"box.kept": lambda state, wire, seq: None}  # noqa: RUF012

    def admit(self, state: Any, wire: Wire, moment: Any) -> list[Wire]:
        return [wire]


@given(
    st.binary(max_size=40),
    st.lists(st.none() | st.binary(max_size=9), max_size=3),
    json_values,
    st.floats(-1e300, 1e300),
)
def test_bytes_and_any_json_survive_the_way_through_lines(
    data: bytes, many: list[Any], value: Any, number: float
) -> None:
    """Bytes, floats and every JSON value come back exactly, also maps that look like our form of bytes."""
    model = Model((Boxes(),))
    first, second = toy_store("memory:", model=model), toy_store("memory:", model=model)
    first.run("r").ingest([("box.kept", {"id": "a", "raw": data, "many": many, "any": value, "x": number})])
    second.import_lines(json.loads(json.dumps(exported(first))))
    assert second.run("r").link() == first.run("r").link()


lookalikes = st.recursive(
    st.none() | st.text(max_size=3) | st.integers(0, 3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["$bytes", "$map", "k"]), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(lookalikes)
def test_values_that_look_like_our_markers_survive(value: Any) -> None:
    """A user's own ``{"$bytes": ...}`` or ``{"$map": ...}`` is not taken for ours."""
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


@pytest.mark.parametrize(
    "value", [{"$bytes": "not base64!"}, {"$bytes": 5}, {"$bytes": None}, {"$bytes": "YQ"}, {"$bytes": "ü"}]
)
def test_a_broken_marker_is_refused(value: Any) -> None:
    """What claims to be bytes and is not is refused, not kept as something else."""
    with pytest.raises(InvalidValue):
        from_json(value)


def test_under_another_id_the_chain_is_made_anew(file_store: Store) -> None:
    """A run may be imported beside itself under another name: same events, same state, its own chain."""
    run = file_store.run("r")
    fill(run)
    assert file_store.import_lines(exported(file_store), run_id="copy") == ("copy", run.position)
    copy = file_store.run("copy")
    assert [event.data for event in file_store.history("copy")] == [event.data for event in file_store.history("r")]
    assert copy.digest() == run.digest()
    assert copy.link() != run.link()
    assert file_store.verify("copy").ok
    with pytest.raises(InvalidValue):
        file_store.import_lines(exported(file_store), run_id="\ud800")


def test_importing_again_adds_nothing_and_a_cut_import_goes_on(file_store: Store, other: Store, tmp_path: Path) -> None:
    """The same file twice is once; an import that was killed half-way is finished by the next; a longer run is kept."""
    run = file_store.run("r")
    fill(run)
    lines = exported(file_store)
    for first, stored in stored_rows(tmp_path / "refold.db", "r")[:4]:
        count = 3 if first == 3 else 1
        other.journal.append("r", first, count, stored, stored[:32])
    assert other.run("r").position == 6
    for _ in range(2):
        assert other.import_lines(lines) == ("r", 11)
    other.run("r").submit(Pay(account="a", amount=1))
    assert other.import_lines(lines) == ("r", 12)
    assert stored_rows(tmp_path / "other.db", "r")[:-1] == stored_rows(tmp_path / "refold.db", "r")


@pytest.mark.parametrize("own", [1, 2, 4, 11, 15])
def test_a_run_that_went_another_way_is_never_written_to(file_store: Store, other: Store, own: int) -> None:
    """Wherever the existing run ends, inside or outside the file's commits: Conflict, and not a byte changes."""
    fill(file_store.run("r"))
    run = other.run("r")
    with run.batch():
        for number in range(own):
            run.submit(Open(account=f"mine-{number}"))
    before = run.state_bytes()
    with pytest.raises(Conflict, match="another history"):
        other.import_lines(exported(file_store))
    assert other.run("r").state_bytes() == before
    assert other.verify("r").ok


@pytest.mark.parametrize("fork", [False, True])
def test_the_run_as_it_was_is_exported_as_a_run(file_store: Store, fork: bool) -> None:
    """At every position, in the midst of commits too: what is imported has that state, verifies, and is as long."""
    fill(file_store.run("r"))
    if fork:
        file_store.fork("r", "f", at=4).submit(Open(account="mine"))
    name = "f" if fork else "r"
    end = file_store.run(name).position
    for at in range(1, end + 1):
        lines = list(file_store.export_lines(name, at=at))
        with toy_store("memory:") as other:
            assert other.import_lines(lines) == (name, at)
            assert other.view(name).digest() == file_store.view(name, at=at).digest()
            assert other.verify(name).ok
            assert list(other.export_lines(name)) == lines
    assert lines == list(file_store.export_lines(name))
    for at in (-1, 0, end + 1):
        with pytest.raises(NotFound):
            next(file_store.export_lines(name, at=at))


def test_the_export_of_a_damaged_run_stops_there(file_store: Store, tmp_path: Path) -> None:
    """No line of a damaged commit leaves the store, and what has left by then is refused as cut short."""
    fill(file_store.run("r"))
    with raw(tmp_path / "refold.db") as connection:
        connection.execute("UPDATE stored_events SET state=zeroblob(9) WHERE originator_version=7")
    lines = []
    with pytest.raises(CorruptJournal, match="position 7"):
        lines.extend(exported(file_store))
    partial = []
    with pytest.raises(CorruptJournal, match="position 7"):
        for line in file_store.export_lines("r"):
            partial.append(line)
    with pytest.raises(ImportRefused, match="ends before"):
        toy_store("memory:").import_lines(partial)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The export of a filled run."""
    store = toy_store("memory:")
    fill(store.run("r"))
    return exported(store)


@pytest.mark.parametrize("length", range(11))
@pytest.mark.parametrize("run_id", [None, "another"])
def test_a_shortened_file_is_refused(lines: list[str], length: int, run_id: str | None) -> None:
    """A file that lost its last lines is noticed, wherever it was cut, under its own name and another."""
    with pytest.raises(ImportRefused) as caught:
        toy_store("memory:").import_lines(lines[:length], run_id=run_id)
    assert f"line {length}:" in str(caught.value) or not length


def changed(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda line: {**line, **values}


def without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda line: {name: value for name, value in line.items() if name != key}


EDITS: dict[str, tuple[int, Callable[[dict[str, Any]], Any]]] = {
    "another amount": (3, changed(data={"account": "a", "amount": 6, "note": None})),
    "another note": (1, changed(data={"account": "a", "note": {"k": [1, 2.25, None, "ü"]}})),
    "a float for a whole number": (1, changed(data={"account": "a", "note": {"k": [1.0, 2.5, None, "ü"]}})),
    "an amount that is none": (3, changed(data={"account": "a", "amount": -1, "note": None})),
    "a field more": (3, changed(data={"account": "a", "amount": 5, "note": None, "x": 1})),
    "a field less": (3, changed(data={"account": "a"})),
    "no fields": (3, changed(data=None)),
    "an account that is not there": (3, changed(data={"account": "z", "amount": 5, "note": None})),
    "another type": (2, changed(type="account.closed/1")),
    "a newer type": (3, changed(type="account.paid/3")),
    "an unknown type": (3, changed(type="account.burned/1")),
    "no type": (3, changed(type=None)),
    "another time": (4, changed(recorded_at_ms=6)),
    "no time": (4, changed(recorded_at_ms=1.5)),
    "another actor": (4, changed(actor="me")),
    "no actor": (4, changed(actor="")),
    "another command id": (1, changed(command_id="open-b")),
    "a command id twice": (2, changed(command_id="open-a", fingerprint="00" * 16)),
    "no command id": (1, changed(command_id=None)),
    "another fingerprint": (1, changed(fingerprint="00" * 16)),
    "a short fingerprint": (1, changed(fingerprint="00")),
    "a fingerprint in words": (1, changed(fingerprint="x" * 32)),
    "another cause": (6, changed(cause=1)),
    "a cause to come": (6, changed(cause=6)),
    "a huge cause": (6, changed(cause=2**70)),
    "a cause of no text": (10, changed(cause="\ud800")),
    "a cause in a list": (6, changed(cause=[1])),
    "a true cause": (6, changed(cause=True)),
    "another cause_back": (4, changed(cause_back=1)),
    "a cause_back before the run": (4, changed(cause_back=4)),
    "a negative cause_back": (4, changed(cause_back=-1)),
    "a cause_back of no number": (4, changed(cause_back="1")),
    "another seq": (4, changed(seq=5)),
    "a true seq": (1, changed(seq=True)),
    "another run": (4, changed(run="s")),
    "a run that is none": (1, changed(run="\n")),
    "another group": (4, changed(group=0)),
    "a group too far": (4, changed(group=7)),
    "another link": (6, changed(link="00" * 32)),
    "a link of no text": (6, changed(link=5)),
    "a link too early": (4, changed(link="00" * 32)),
    "no link": (6, without("link")),
    "an end too early": (6, changed(end=True)),
    "another format": (6, changed(refold=2)),
    "no format": (6, without("refold")),
    "a key more": (6, changed(more=1)),
    "no data": (6, without("data")),
    "a list": (6, lambda line: [line]),
    "a word": (6, lambda line: "word"),
}


@pytest.mark.parametrize("run_id", [None, "another"])
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_line_is_refused_by_its_number(lines: list[str], name: str, run_id: str | None) -> None:
    """Whatever is changed in a line, the file is refused, the line's commit is named, and nothing is imported."""
    number, edit = EDITS[name]
    edited = list(lines)
    edited[number - 1] = json.dumps(edit(json.loads(lines[number - 1])))
    store = toy_store("memory:")
    with pytest.raises(ImportRefused) as caught:
        store.import_lines(edited, run_id=run_id)
    (violation,) = caught.value.violations
    commit = {4: (3, 4, 5), 3: (3,), 1: (1, 2)}.get(number, (number, number + 1))
    assert violation["line"] in commit
    assert caught.value.hint
    assert list(store.runs()) == []


TEXTS = {
    "not JSON": lambda text: text[:-1],
    "a key twice": lambda text: text.replace('"amount":5', '"amount":6,"amount":5'),
    "NaN": lambda text: text.replace('"amount":5', '"amount":NaN'),
    "infinity": lambda text: text.replace('"amount":5', '"amount":1e999'),
    "a float": lambda text: text.replace('"amount":5', '"amount":5.0'),
    "a very long number": lambda text: text.replace('"amount":5', '"amount":' + "9" * 5000),
    "very deep": lambda text: text.replace('"note":null', '"note":' + "[" * 5000 + "]" * 5000),
    "65 levels": lambda text: text.replace('"note":null', '"note":' + "[" * 65 + "]" * 65),
    "bytes after": lambda text: text + "x",
    "two lines in one": lambda text: text + text,
    "lone surrogate": lambda text: text.replace('"note":null', '"note":"\\ud800"'),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_line_that_is_no_event_is_refused_by_its_number(lines: list[str], name: str) -> None:
    """Broken JSON, doubled keys, numbers that are none and bottomless nesting are refused, never guessed at."""
    edited = list(lines)
    edited[2] = TEXTS[name](lines[2])
    assert edited[2] != lines[2]
    with pytest.raises(ImportRefused, match=r"line 3\b"):
        toy_store("memory:").import_lines(edited)


def test_lines_in_another_order_doubled_or_missing_are_refused(lines: list[str]) -> None:
    """Every line has one place; blank ones between them do not matter."""
    for edited in (
        lines[1:],
        lines[:3] + lines[4:],
        lines[::-1],
        lines[:1] + lines,
        lines + lines[-1:],
        [*lines, "x"],
        [],
    ):
        with pytest.raises(ImportRefused):
            toy_store("memory:").import_lines(edited)
    spaced = [text for line in lines for text in ("", line, "  \n")]
    assert toy_store("memory:").import_lines(spaced) == ("r", 11)


def test_a_chain_worked_out_anew_is_another_run(lines: list[str]) -> None:
    """Whoever edits an event and works out every link anew still has to keep to the rules of the domain."""

    def forged(note: Any) -> list[str]:
        link, edited = genesis("r"), []
        groups: list[Any] = []
        for text in lines:
            line = json.loads(text)
            if line["seq"] == 2:
                line["data"] = {"account": note, "note": None}
            edited.append(line)
        for commit in commits_of(lines, BANK):
            groups = [[*group[:5], [list(wire) for wire in group[5]]] for group in commit.groups]
            if commit.first == 2:
                groups[0][5][0][2] = note
            _, link = seal_commit(link, groups)
            edited[commit.last - 1]["link"] = link.hex()
        return [json.dumps(line) for line in edited]

    assert toy_store("memory:").import_lines(forged("b")) == ("r", 11)
    with pytest.raises(ImportRefused, match="do not follow from those before"):
        toy_store("memory:").import_lines(forged("other"))


def test_an_export_says_what_each_line_is(lines: list[str]) -> None:
    """A line stands alone and holds exactly these keys."""
    assert json.loads(lines[0]) == {
        "refold": 1,
        "run": "r",
        "seq": 1,
        "type": "account.opened/1",
        "recorded_at_ms": 5,
        "actor": "clerk",
        "command_id": "open-a",
        "fingerprint": json.loads(lines[0])["fingerprint"],
        "cause": None,
        "cause_back": 0,
        "data": {"account": "a", "note": {"k": [1, 2.5, None, "ü"]}},
        "group": 0,
        "link": json.loads(lines[0])["link"],
    }
    assert [("link" in json.loads(line), "end" in json.loads(line)) for line in lines] == [
        *[(True, False)] * 2,
        *[(False, False)] * 2,
        *[(True, False)] * 6,
        (True, True),
    ]
    assert [json.loads(line)["group"] for line in lines[2:5]] == [0, 1, 2]
