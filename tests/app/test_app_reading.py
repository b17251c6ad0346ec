"""The reading commands: exact shapes, positions of the past, and that reading writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import open_store
from engine.documents import document
from tests.app.conftest import Cli, flip

ROW = [
    "task_id",
    "parent_task_id",
    "lifecycle",
    "termination",
    "wait",
    "waiting_on",
    "capability_ids",
    "process",
    "tokens_used",
    "turns_used",
]


def test_runs_lists_every_run_with_its_position_and_link(cli: Cli, nightly: Path) -> None:
    """``runs --json`` is a list of run, position, link, checkpoints and origin, in order of id."""
    with open_store(nightly) as store:
        store.run("another").tasks.open_root("root")
        link = store.run("nightly").link()
    answer = cli("runs", "--json")
    assert answer.code == 0
    assert [run["run"] for run in answer.json] == ["another", "nightly"]
    assert answer.json[1] == {
        "run": "nightly",
        "position": 13,
        "link": link,
        "checkpoints": [6],
        "origin": None,
        "origin_position": None,
    }
    shown = cli("runs")
    assert shown.code == 0 and link in shown.out and "nightly" in shown.out


def test_runs_of_a_store_without_runs_is_an_empty_list(cli: Cli, tmp_path: Path) -> None:
    """A store that holds nothing is no error; a person is told what to do."""
    open_store(tmp_path / "refold.db").close()
    assert cli("runs", "--json").json == []
    shown = cli("runs")
    assert (shown.code, shown.out) == (0, "") and "refold import" in shown.err


def test_show_tasks_has_the_ten_fields_in_order(cli: Cli, nightly: Path) -> None:
    """``show --tasks --json`` is run, position and rows: ten fields, tokens as decimal text, in order of creation."""
    answer = cli("show", "nightly", "--tasks", "--json")
    assert answer.code == 0
    assert list(answer.json) == ["run", "position", "tasks"]
    assert (answer.json["run"], answer.json["position"]) == ("nightly", 13)
    rows = answer.json["tasks"]
    assert [row["task_id"] for row in rows] == ["root", "fetch", "build"]
    assert all(list(row) == ROW for row in rows)
    assert rows[0]["process"] is None and rows[0]["waiting_on"] == ["build"] and rows[0]["wait"] == "sub_agent_join"
    assert rows[1]["process"]["join_result"]["result"]["final_message"] == "found it"
    assert rows[2]["tokens_used"] == str(2**60) and rows[2]["turns_used"] == 1
    assert rows[2]["capability_ids"] == ["shell", "network"]


@pytest.mark.parametrize("at", range(14))
def test_show_at_a_position_is_the_table_of_that_position(cli: Cli, nightly: Path, at: int) -> None:
    """``--at N`` gives what a fold of the first N events gives, for every N, 0 included."""
    answer = cli("show", "nightly", "--tasks", "--at", at, "--json")
    with open_store(nightly) as store:
        expected = store.view("nightly", at=at, start="genesis").tasks.rows().to_json()
    assert answer.json == {"run": "nightly", "position": at, "tasks": expected}


def test_show_without_tasks_adds_digest_and_counts(cli: Cli, nightly: Path) -> None:
    """``show`` alone tells the digest, the tasks by lifecycle and the records of every table beside the rows."""
    shape = cli("show", "nightly", "--json").json
    assert shape["digest"] == cli("digest", "nightly").out.strip()
    assert shape["lifecycles"]["done"] == 1 and shape["lifecycles"]["running"] == 1
    assert shape["records"]["tasks.tasks"] == 3 and shape["records"]["run.ledger"] == 2
    shown = cli("show", "nightly").out
    assert "1 running, 1 suspended, 1 done" in shown and "sub_agent_join" in shown and "worktree" in shown


def test_show_gives_the_records_of_the_other_projections(cli: Cli, nightly: Path) -> None:
    """``--contexts``, ``--graphs`` and ``--swarm`` give the records of the state; ``--id`` one of them."""
    with open_store(nightly) as store:
        run = store.run("nightly")
        before = run.position
        run.contexts.create("chat", "conversation", 8000)
        run.contexts.append("chat", {"role": "user", "text": "hello"})
        run.graphs.create("plan", "reach it", [{"id": 0, "title": "first", "description": "go"}])
        run.swarm.start(2)
        expected = document(run)
    for part in ("contexts", "graphs"):
        shape = cli("show", "nightly", f"--{part}", "--json").json
        assert list(shape) == ["run", "position", part] and shape[part] == expected[part] != {}
        assert cli("show", "nightly", f"--{part}", "--at", before, "--json").json[part] == {}
        assert cli("show", "nightly", f"--{part}", "--id", "nobody", "--json").error["code"] == "not_found"
    assert cli("show", "nightly", "--contexts", "--id", "chat", "--json").json["contexts"] == expected["contexts"]
    assert cli("show", "nightly", "--swarm", "--json").json["swarm"] == expected["swarm"]["swarm"]
    assert cli("show", "nightly", "--swarm", "--at", before, "--json").json["swarm"] is None
    rows = cli("show", "nightly", "--tasks", "--id", "fetch", "--json").json["tasks"]
    assert [row["task_id"] for row in rows] == ["fetch"]
    assert "fetch" in cli("show", "nightly", "--tasks", "--id", "fetch").out
    shown = cli("show", "nightly").out
    assert "conversations" in shown and "reach it" in shown and "idle" in shown
    assert cli("show", "nightly", "--swarm", "--at", before).out == ""
    assert cli("show", "nightly", "--id", "fetch", "--json").error["code"] == "wrong_usage"


def test_history_has_seven_keys_an_event(cli: Cli, nightly: Path) -> None:
    """``history --json`` is a list of the seven documented keys, with the envelope as it was recorded."""
    events = cli("history", "nightly", "--json").json
    assert [event["seq"] for event in events] == list(range(1, 14))
    keys = ["seq", "type", "recorded_at_ms", "actor", "command_id", "cause", "data"]
    assert all(list(event) == keys for event in events)
    assert events[2]["type"] == "task.spawned/1" and events[2]["command_id"] == "spawn-fetch"
    assert events[0]["recorded_at_ms"] == 1_700_000_000_000 and events[0]["actor"] == "planner"
    assert events[2]["data"]["role"] == "explore"


def test_history_of_a_task_holds_every_event_that_names_it(cli: Cli, nightly: Path) -> None:
    """``--task`` keeps the events that name the task in any role, in order, the join of its parent included."""
    events = cli("history", "nightly", "--task", "fetch", "--json").json
    assert [event["seq"] for event in events] == [3, 4, 5, 6, 10, 11]
    shown = cli("history", "nightly", "--task", "fetch")
    assert shown.code == 0 and len(shown.out.splitlines()) == 7
    assert "2023-11-14 22:13:20.000" in cli("history", "nightly", "--until", 1).out


def test_history_filters_narrow_each_other(cli: Cli, nightly: Path) -> None:
    """Type, actor, command and range filters combine; nothing left is an empty list and no error."""
    assert [event["seq"] for event in cli("history", "nightly", "--type", "task.spawned", "--json").json] == [3, 7]
    assert [event["seq"] for event in cli("history", "nightly", "--after", 10, "--until", 12, "--json").json] == [
        11,
        12,
    ]
    assert len(cli("history", "nightly", "--command-id", "finish-fetch", "--json").json) == 1
    assert cli("history", "nightly", "--actor", "nobody", "--json").json == []
    nothing = cli("history", "nightly", "--task", "nobody")
    assert (nothing.code, nothing.out) == (0, "") and "no event" in nothing.err


def test_digest_is_the_same_however_it_is_reached(cli: Cli, nightly: Path) -> None:
    """``digest`` agrees with restore from the checkpoint and from nothing, now and in the past."""
    answer = cli("digest", "nightly", "--json")
    assert list(answer.json) == ["run", "position", "digest"] and answer.json["position"] == 13
    best = cli("restore", "nightly", "--json").json
    nothing = cli("restore", "nightly", "--from", "genesis", "--json").json
    assert best["digest"] == nothing["digest"] == answer.json["digest"] == cli("digest", "nightly").out.strip()
    with open_store(nightly) as store:
        assert cli("digest", "nightly", "--at", 7, "--json").json["digest"] == store.run("nightly").at(7).digest()


def test_restore_reports_what_it_used(cli: Cli, nightly: Path) -> None:
    """``restore --json`` adds used, events_folded and rejected, for the best checkpoint, genesis and a named one."""
    keys = ["run", "position", "digest", "used", "events_folded", "rejected"]
    best = cli("restore", "nightly", "--json").json
    assert list(best) == keys
    assert (best["position"], best["used"], best["events_folded"], best["rejected"]) == (13, 6, 7, [])
    nothing = cli("restore", "nightly", "--from", "genesis", "--json").json
    assert (nothing["used"], nothing["events_folded"]) == ("genesis", 13)
    assert cli("restore", "nightly", "--from", "6", "--json").json == best
    shown = cli("restore", "nightly")
    assert "the checkpoint at 6" in shown.out and best["digest"] in shown.out


def test_restore_names_a_rejected_checkpoint_and_why(cli: Cli, nightly: Path) -> None:
    """A damaged checkpoint costs time only: the digest stays, and the report says what was refused and why."""
    before = cli("restore", "nightly", "--json").json
    flip(nightly, "stored_checkpoints", 6)
    after = cli("restore", "nightly", "--json").json
    assert after["digest"] == before["digest"] and after["used"] == "genesis" and after["events_folded"] == 13
    assert after["rejected"] == [{"position": 6, "reason": "its bytes do not match its digest"}]
    assert "rejected" in cli("restore", "nightly").out
    assert cli("restore", "nightly", "--from", "6").code == 2


@pytest.mark.parametrize("position", range(1, 14))
@pytest.mark.parametrize("start", [(), ("--from", "genesis"), ("--from", "6")])
def test_restore_names_damage_wherever_it_is(cli: Cli, nightly: Path, position: int, start: tuple[str, ...]) -> None:
    """A flipped bit is named with its position, also in front of the checkpoint that spares reading it; --at a position
    before the damage answers. The state that the checkpoint gives is right, and served to those who go on from it."""
    digest = cli("digest", "nightly").out
    flip(nightly, "stored_events", position)
    answer = cli("restore", "nightly", *start, "--json")
    assert answer.code == 3 and answer.out == ""
    assert answer.error["code"] == "corrupt_journal" and f"at position {position}:" in answer.error["message"]
    if position > 6:
        assert cli("restore", "nightly", *start, "--at", str(position - 1), "--json").json["position"] == position - 1
    elif start != ("--from", "genesis"):
        assert cli("digest", "nightly").out == digest


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("show", "nobody"), "no run 'nobody'"),
        (("history", "nobody"), "no run 'nobody'"),
        (("digest", "nobody"), "no run 'nobody'"),
        (("restore", "nobody"), "no run 'nobody'"),
        (("verify", "nobody"), "no run 'nobody'"),
        (("export", "nobody", "out.jsonl"), "no run 'nobody'"),
        (("checkpoint", "nobody"), "no run 'nobody'"),
        (("checkpoint", "nobody", "--list"), "no run 'nobody'"),
        (("checkpoint", "nobody", "--prune"), "no run 'nobody'"),
        (("show", "nightly", "--at", "14"), "it ends at 13"),
        (("digest", "nightly", "--at", str(2**63 - 1)), "it ends at 13"),
        (("restore", "nightly", "--from", "5"), "there is none at 5"),
    ],
)
def test_what_is_not_there_is_said_with_exit_code_2(cli: Cli, nightly: Path, args: tuple[str, ...], says: str) -> None:
    """An unknown run, position or checkpoint is not_found, exit code 2, for people and for programs."""
    answer = cli(*args, "--json")
    assert answer.code == 2 and answer.out == ""
    assert answer.error["code"] == "not_found" and says in answer.error["message"] and answer.error["hint"]
    shown = cli(*args)
    assert shown.code == 2 and shown.err.startswith("error: ") and "\nhint: " in shown.err


@pytest.mark.parametrize(
    "args",
    [
        ("show", "nightly", "--at", "-1"),
        ("show", "nightly", "--at", "x"),
        ("digest", "nightly", "--at", str(10**30)),
        ("restore", "nightly", "--from", "1x"),
        ("restore", "nightly", "--from", str(10**30)),
        ("restore", "nightly", "--from", "9" * 5000),
        ("history", "nightly", "--after", "-5"),
        ("history",),
        ("show", "nightly", "--nope"),
        ("verify",),
        ("verify", "nightly", "--all"),
        ("checkpoint", "nightly", "--full", "--list"),
        ("nope",),
    ],
)
def test_a_wrong_command_line_is_wrong_usage(cli: Cli, nightly: Path, args: tuple[str, ...]) -> None:
    """What cannot be parsed is exit code 2 with the way to the help, as JSON when that was asked for."""
    answer = cli(*args, "--json")
    assert answer.code == 2 and answer.error["code"] == "wrong_usage"
    assert list(answer.error) == ["code", "message", "hint"] and "--help" in answer.error["hint"]
    assert cli(*args).code == 2


def test_damage_in_the_journal_is_named_and_never_served(cli: Cli, nightly: Path) -> None:
    """A flipped bit stops every reader with corrupt_journal and its position, exit code 3; what is before it reads."""
    flip(nightly, "stored_events", 9)
    for args in (("show", "nightly"), ("digest", "nightly"), ("restore", "nightly"), ("export", "nightly", "o.jsonl")):
        answer = cli(*args, "--json")
        assert answer.code == 3 and answer.out == ""
        assert answer.error["code"] == "corrupt_journal" and "position 9" in answer.error["message"]
    assert not Path("o.jsonl").exists()
    history = cli("history", "nightly", "--json")
    assert history.code == 3 and history.error["code"] == "corrupt_journal"
    assert not history.out.rstrip().endswith("]"), "a part must not look like the whole"
    assert cli("show", "nightly", "--at", 8).code == 0


def test_reading_changes_nothing_in_the_store(cli: Cli, nightly: Path) -> None:
    """Every reading command leaves the store's file byte-identical."""
    before = nightly.read_bytes()
    for args in (
        ("runs",),
        ("show", "nightly"),
        ("show", "nightly", "--contexts"),
        ("history", "nightly"),
        ("history", "nightly", "--changes", "--newest-first"),
        ("why", "nightly", "root", "--at-time", 1_700_000_005_000),
        ("diff", "nightly", 2, "now"),
        ("digest", "nightly"),
        ("restore", "nightly"),
        ("verify", "--all"),
        ("export", "nightly", "out.jsonl"),
        ("checkpoint", "nightly", "--list"),
    ):
        assert cli(*args).code == 0
    assert nightly.read_bytes() == before


def test_control_characters_do_not_reach_the_terminal(cli: Cli, tmp_path: Path) -> None:
    """Ids and texts that would move a cursor, change a colour or turn the writing round are printed as numbers."""
    with open_store(tmp_path / "refold.db") as store:
        run = store.run("[bold]r\u202e1\u00a0x", actor="\U0001f916")
        run.tasks.open_root("root")
        run.tasks.suspend("root", wait="signal", awaited="\x1b[31mred\n")
    shown = cli("history", "[bold]r\u202e1\u00a0x")
    assert shown.code == 0 and "\x1b" not in shown.out and "\\u001b[31mred\\n" in shown.out
    listed = cli("runs").out
    assert "\u202e" not in listed and "[bold]r\\u202e1\\xa0x" in listed
    assert cli("show", "[bold]r\u202e1\u00a0x", "--json").json["run"] == "[bold]r\u202e1\u00a0x"
    missing = cli("show", "\x1b[31m")
    assert missing.code == 2 and "\x1b" not in missing.err
