"""Export, import of exports, checkpoints, verify and bench: good input, wrong input, twice."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import open_store
from tests.app.conftest import Cli, flip


def _exported(cli: Cli, name: str = "nightly.jsonl") -> Path:
    assert cli("export", "nightly", name).code == 0
    return Path(name)


def test_an_export_comes_back_byte_identical(cli: Cli, nightly: Path) -> None:
    """Export and import give the same rows, link and digest in another store; the export of that is the same file."""
    answer = cli("export", "nightly", "nightly.jsonl", "--json")
    assert answer.json == {"run": "nightly", "file": "nightly.jsonl", "events": 13, "position": 13}
    lines = Path("nightly.jsonl").read_text().splitlines()
    assert len(lines) == 13 and json.loads(lines[-1])["end"] is True
    imported = cli("import", "nightly.jsonl", "--store", "other.db", "--json")
    assert imported.code == 0 and imported.json == {"run": "nightly", "events": 13, "position": 13}
    with open_store(nightly) as one, open_store("other.db") as other:
        assert list(one.journal.raw("nightly")) == list(other.journal.raw("nightly"))
        assert one.runs()[0].link == other.runs()[0].link
    assert cli("digest", "nightly", "--store", "other.db").out == cli("digest", "nightly").out
    assert cli("export", "nightly", "again.jsonl", "--store", "other.db").code == 0
    assert Path("again.jsonl").read_bytes() == Path("nightly.jsonl").read_bytes()


def test_importing_twice_adds_nothing(cli: Cli, nightly: Path) -> None:
    """The second import says so and leaves the run as it is."""
    file = _exported(cli)
    assert cli("import", file, "--store", "o.db", "--json").json["events"] == 13
    again = cli("import", file, "--store", "o.db", "--json")
    assert again.code == 0 and again.json == {"run": "nightly", "events": 0, "position": 13}
    assert "here already" in cli("import", file, "--store", "o.db").out
    assert cli("runs", "--store", "o.db", "--json").json[0]["position"] == 13


def test_an_import_under_another_name_is_the_same_state(cli: Cli, nightly: Path) -> None:
    """``--run`` names the run anew; the chain differs, because it holds the name, and the state is the same."""
    file = _exported(cli)
    assert cli("import", file, "--run", "copy", "--json").json == {"run": "copy", "events": 13, "position": 13}
    first, second = (cli("show", run, "--tasks", "--json").json["tasks"] for run in ("nightly", "copy"))
    assert first == second
    assert cli("verify", "--all").code == 0


def test_an_import_over_another_history_is_a_conflict(cli: Cli, nightly: Path) -> None:
    """A run of that name that went another way stays as it is."""
    file = _exported(cli)
    with open_store("o.db") as store:
        store.run("nightly").tasks.open_root("another")
        digest = store.run("nightly").digest()
    answer = cli("import", file, "--store", "o.db", "--json")
    assert answer.code == 3 and answer.error["code"] == "conflict" and "--run" in answer.error["hint"]
    assert cli("digest", "nightly", "--store", "o.db").out.strip() == digest


def _changed(line: str, **values: Any) -> str:
    return json.dumps({**json.loads(line), **values})


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda lines: lines[:-1], "ends before the run does"),
        (lambda lines: [*lines[:5], *lines[6:]], "line 6"),
        (lambda lines: [*lines[:5], lines[5][:-9], *lines[6:]], "line 6"),
        (lambda lines: [*lines[:5], _changed(lines[5], actor="nobody"), *lines[6:]], "the chain gives link"),
        (lambda lines: [*lines[:5], _changed(lines[5], type="task.vanished/1"), *lines[6:]], "line 6: unknown event"),
        (lambda lines: [*lines[:5], _changed(lines[5], extra=1), *lines[6:]], "unknown key 'extra'"),
        (lambda lines: [_changed(lines[0], refold=99), *lines[1:]], "not an event line"),
        (lambda lines: [*lines, lines[-1]], "lines after the last event"),
        (lambda lines: ["hello"], "neither an export of refold nor a recording"),
        (lambda lines: ["[1, 2]"], "neither an export of refold nor a recording"),
        (lambda lines: ['{"a": 1}'], "of no known format"),
        (lambda lines: ['{"decoded_inputs": NaN, "planned_steps": []}'], "NaN is not JSON"),
        (lambda lines: ['{"decoded_inputs": [], "planned_steps": [], "planned_steps": []}'], "stands twice"),
        (lambda lines: ["{" * 100_000], "not one JSON value"),
        (lambda lines: [], "is empty"),
    ],
)
def test_a_damaged_file_is_refused_whole_with_the_place(cli: Cli, nightly: Path, spoil: Any, says: str) -> None:
    """Whatever is wrong with a file is import_refused, exit code 2, naming the place; no run appears."""
    file = _exported(cli)
    lines = file.read_text().splitlines()
    file.write_text("".join(line + "\n" for line in spoil(lines)))
    answer = cli("import", file, "--store", "o.db", "--json")
    assert answer.code == 2 and answer.out == ""
    assert answer.error["code"] == "import_refused" and says in answer.error["message"], answer.error
    if Path("o.db").exists():
        assert cli("runs", "--store", "o.db", "--json").json == []
    assert cli("import", file, "--store", "o.db").code == 2


def test_a_file_that_is_no_text_or_not_there_is_refused_before_a_store_is_made(cli: Cli, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, a folder and a missing file are wrong usage, and leave no store behind."""
    Path("image").write_bytes(b'{"\xff\xfe\x00')
    assert cli("import", "image", "--json").error["code"] == "import_refused"
    assert cli("import", "missing.jsonl", "--json").error["code"] == "wrong_usage"
    assert cli("import", tmp_path, "--json").code == 2
    assert not Path("refold.db").exists()


def test_a_forced_format_is_believed_and_then_checked(cli: Cli, nightly: Path) -> None:
    """``--format`` decides what the file is taken for; what it then is not is said."""
    file = _exported(cli)
    assert "not one JSON value" in cli("import", file, "--format", "kernel-recording", "--json").error["message"]
    assert cli("import", file, "--format", "archive", "--run", "a").code == 0
    assert cli("import", file, "--format", "tar", "--json").error["code"] == "wrong_usage"


def test_export_and_import_speak_through_pipes(cli: Cli, nightly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` is standard output and standard input, with the bytes that a file would hold."""
    text = cli("export", "nightly", "-").out
    assert text == _exported(cli).read_text()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert cli("import", "-", "--store", "o.db", "--json").json["position"] == 13


def test_an_export_replaces_only_exports(cli: Cli, nightly: Path) -> None:
    """An earlier export is replaced as a whole; another file only with --force; a failure leaves what was there."""
    file = _exported(cli)
    before = file.read_bytes()
    assert cli("export", "nightly", file).code == 0 and file.read_bytes() == before
    Path("notes.txt").write_text("mine")
    answer = cli("export", "nightly", "notes.txt", "--json")
    assert answer.code == 2 and answer.error["code"] == "refused" and "--force" in answer.error["hint"]
    assert Path("notes.txt").read_text() == "mine"
    assert cli("export", "nightly", "notes.txt", "--force").code == 0 and Path("notes.txt").read_bytes() == before
    flip(nightly, "stored_events", 13)
    assert cli("export", "nightly", file).code == 3
    assert file.read_bytes() == before
    names = {path.name for path in Path().iterdir() if not path.name.startswith("refold.db")}
    assert names == {"nightly.jsonl", "notes.txt"}, "nothing half-written stays behind"


def test_an_export_into_a_folder_that_is_not_there_is_a_file_error(cli: Cli, nightly: Path) -> None:
    """What the file system refuses is exit code 2 with the path."""
    answer = cli("export", "nightly", "no/such/folder.jsonl", "--json")
    assert answer.code == 2 and answer.error["code"] == "file_error" and "no/such" in answer.error["message"]
    assert cli("export", "nightly", ".", "--json").code == 2


def test_a_checkpoint_is_written_once_a_position(cli: Cli, nightly: Path) -> None:
    """The first one tells what it holds, the second that there is nothing to do; a full one is written again."""
    first = cli("checkpoint", "nightly", "--json")
    assert first.code == 0 and list(first.json) == ["run", "position", "taken"] and first.json["position"] == 13
    assert list(first.json["taken"]) == ["full", "records", "size_bytes"] and first.json["taken"]["full"] is False
    assert cli("checkpoint", "nightly", "--json").json == {"run": "nightly", "position": 13, "taken": None}
    assert "already" in cli("checkpoint", "nightly").out
    assert cli("checkpoint", "nightly", "--full", "--json").json["taken"]["full"] is True
    assert cli("restore", "nightly", "--json").json["used"] == 13
    assert cli("verify", "nightly").code == 0


def test_checkpoints_are_listed_with_their_state(cli: Cli, nightly: Path) -> None:
    """``--list`` names position, kind, size and, for one that a restore would not use, why."""
    cli("checkpoint", "nightly")
    listed = cli("checkpoint", "nightly", "--list", "--json").json
    assert listed["run"] == "nightly"
    assert [(c["position"], c["kind"], c["problem"]) for c in listed["checkpoints"]] == [
        (13, "changes since 6", None),
        (6, "full", None),
    ]
    flip(nightly, "stored_checkpoints", 6)
    spoilt = cli("checkpoint", "nightly", "--list", "--json").json["checkpoints"]
    assert [c["problem"] for c in spoilt] == [
        "its base at 6: its bytes do not match its digest",
        "its bytes do not match its digest",
    ]
    assert "its bytes do not match" in cli("checkpoint", "nightly", "--list").out


def test_pruning_removes_what_does_not_verify_and_nothing_else(cli: Cli, nightly: Path) -> None:
    """Good checkpoints stay; a damaged one goes, with those that rest on it; the digest is as before."""
    cli("checkpoint", "nightly")
    digest = cli("digest", "nightly").out
    assert cli("checkpoint", "nightly", "--prune", "--json").json == {"run": "nightly", "removed": []}
    flip(nightly, "stored_checkpoints", 13)
    assert cli("verify", "nightly").code == 1
    assert cli("checkpoint", "nightly", "--prune", "--json").json == {"run": "nightly", "removed": [13]}
    assert cli("verify", "nightly").code == 0 and cli("digest", "nightly").out == digest
    flip(nightly, "stored_checkpoints", 6)
    assert "removed the checkpoints at 6" in cli("checkpoint", "nightly", "--prune").out
    assert cli("checkpoint", "nightly", "--list", "--json").json["checkpoints"] == []
    assert "no checkpoint" in cli("checkpoint", "nightly", "--list").err
    assert cli("digest", "nightly").out == digest


def test_verify_of_an_intact_run_is_ok(cli: Cli, nightly: Path) -> None:
    """``verify --json`` is run, ok, position and faults; --all is a list of these; exit code 0."""
    answer = cli("verify", "nightly", "--json")
    assert answer.code == 0
    assert answer.json == {"run": "nightly", "ok": True, "position": 13, "faults": []}
    assert cli("verify", "--all", "--json").json == [answer.json]
    assert cli("verify", "nightly").out == "nightly: intact (13 events, 1 checkpoints)\n"


@pytest.mark.parametrize("position", range(1, 14))
def test_verify_names_a_flipped_bit_at_its_position(cli: Cli, nightly: Path, position: int) -> None:
    """Damage anywhere in the journal is a finding with position, code, expected, found and hint; exit code 1."""
    flip(nightly, "stored_events", position)
    answer = cli("verify", "nightly", "--json")
    assert answer.code == 1 and answer.json["ok"] is False and answer.json["position"] == position - 1
    fault = answer.json["faults"][0]
    assert list(fault) == ["seq", "code", "expected", "found", "hint"] and fault["seq"] == position
    shown = cli("verify", "nightly")
    assert shown.code == 1 and fault["code"] in shown.out


def test_one_damaged_run_does_not_hide_the_others(cli: Cli, nightly: Path) -> None:
    """``verify --all`` checks every run, and one fault anywhere is a finding."""
    with open_store(nightly) as store:
        store.run("zebra").tasks.open_root("root")
    flip(nightly, "stored_events", 5)
    verdicts = cli("verify", "--all", "--json")
    assert verdicts.code == 1
    assert [(verdict["run"], verdict["ok"]) for verdict in verdicts.json] == [("nightly", False), ("zebra", True)]


def test_verify_all_of_an_empty_store_is_good(cli: Cli, tmp_path: Path) -> None:
    """No runs, no faults."""
    open_store(tmp_path / "refold.db").close()
    answer = cli("verify", "--all", "--json")
    assert (answer.code, answer.json) == (0, [])


def test_bench_prints_the_documented_row(cli: Cli) -> None:
    """``bench --json`` gives id, what, target, measured, met, ours, against and rounds, with median, min and max."""
    answer = cli("bench", "--only", "p7", "--rounds", 1, "--scale", 0.01, "--json")
    assert answer.code == 0, answer.err
    row = answer.json[0]
    assert list(row) == ["id", "what", "target", "measured", "met", "ours", "against", "rounds"]
    assert row["id"] == "P7" and row["rounds"] == 1 and isinstance(row["met"], bool)
    assert {"median", "min", "max"} <= set(row["ours"]) and row["ours"]["median"] > 0
    shown = cli("bench", "--only", "P7", "--rounds", 1, "--scale", 0.01)
    assert shown.code == 0 and "P7" in shown.out and "measured" in shown.out


@pytest.mark.parametrize("args", [("--only", "P99"), ("--rounds", "0"), ("--scale", "0"), ("--scale", "nan")])
def test_bench_refuses_what_it_cannot_measure(cli: Cli, args: tuple[str, ...]) -> None:
    """An unknown target, no rounds or no size is wrong usage."""
    answer = cli("bench", *args, "--json")
    assert answer.code == 2 and answer.error["hint"]
