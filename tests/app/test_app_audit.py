"""why, diff, fork, delete and completion: shapes, words, and everything that can be asked wrongly."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from engine import open_store
from engine.app.cli import COMMANDS, refold
from engine.app.commands.completion import SHELLS, VARIABLE
from engine.core.json_patch import apply_patch
from engine.documents import document
from projections.model import MODEL
from tests.app.conftest import Cli, flip
from tests.app.test_app_examples import fill

ROOT = Path(__file__).resolve().parents[2]
TYPES = {event_type.name for event_type in MODEL.catalog.types}


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A store with the run ``full``, which holds something of everything, and its fork ``other`` from event 20."""
    path = tmp_path / "refold.db"
    clock = iter(range(1_700_000_000_000, 2_000_000_000_000, 1000))
    with open_store(path, clock=lambda: next(clock)) as store:
        run = store.run("full", actor="planner")
        fill(run)
        run.fork("other", at=20).tasks.finish("build", attempt=1, termination="error")
    return path


def documents(path: Path) -> Iterator[Any]:
    with open_store(path) as store:
        yield from (document(store.view("full", at=at)) for at in (0, 20, 30, None))
        yield document(store.view("other"))


# -- why --------------------------------------------------------------------------------------------------------------


def test_why_is_an_answer_and_its_steps(cli: Cli, full: Path) -> None:
    """``why --json`` is run, position, subject, answer and steps; the text is the answer above a row a step."""
    shape = cli("why", "full", "root", "--at", 20, "--json").json
    assert list(shape) == ["run", "position", "subject", "answer", "steps"]
    assert (shape["run"], shape["position"], shape["subject"]) == ("full", 20, "task root")
    assert shape["answer"].startswith("root is suspended since #9, waiting on fetch (running since #5 by planner")
    assert list(shape["steps"][0]) == ["seq", "type", "actor", "command_id", "cause", "text"]
    lines = cli("why", "full", "root", "--at", 20).out.splitlines()
    assert lines[0] == shape["answer"] and lines[1] == "" and len(lines) == 3 + len(shape["steps"])


@pytest.mark.parametrize(
    ("options", "subject", "says"),
    [
        (("--node", "build/1"), "node build/1", "node 1 (test) is pending"),
        (("--context", "chat"), "context chat", "within its window"),
        (("--worker", "0"), "worker 0", "worker 0 is"),
    ],
)
def test_why_of_everything_else(cli: Cli, full: Path, options: tuple[str, ...], subject: str, says: str) -> None:
    """A node, a conversation and a worker are asked about in the same way."""
    shape = cli("why", "full", *options, "--json").json
    assert shape["subject"] == subject and says in shape["answer"] and shape["steps"]
    assert says in cli("why", "full", *options).out


# -- diff -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sides", "one", "other"),
    [
        (("full", "0", "now"), 0, 3),
        (("full", "20", "30"), 1, 2),
        (("full", "30", "20"), 2, 1),
        (("full", "2023-11-14T22:13:39", "30"), 1, 2),
        (("full", "--at", "30"), 2, 3),
        (("full", "--at-time", "2023-11-14T22:13:39.500"), 1, 3),
        (("full@20", "other"), 1, 4),
        (("full", "other"), 3, 4),
        (("other@20", "full@20"), 1, 1),
        (("full@now", "full@30"), 3, 2),
    ],
)
def test_diff_is_proved_between_any_two_places(
    cli: Cli, full: Path, sides: tuple[str, ...], one: int, other: int
) -> None:
    """``diff --json`` is changes, patch and proved; the patch makes of the one state the other, to the letter."""
    states = list(documents(full))
    answer = cli("diff", *sides, "--json")
    assert answer.code == 0 and list(answer.json) == ["changes", "patch", "proved"]
    assert answer.json["proved"] is True
    assert apply_patch(states[one], answer.json["patch"]) == states[other]
    assert all(list(change) == ["kind", "id", "what", "path", "before", "after"] for change in answer.json["changes"])
    assert bool(answer.json["changes"]) == bool(answer.json["patch"]) == (one != other)
    coded = cli("diff", *sides, "--exit-code")
    assert coded.code == (1 if one != other else 0)


def test_diff_is_read_as_rows_with_field_paths(cli: Cli, full: Path) -> None:
    """Each row names the record, what became of which field, before and after; no difference is said."""
    shown = cli("diff", "full", 20, "now").out
    assert shown.startswith("from full@20 to full@") and "tasks fetch" in shown and "lifecycle" in shown
    assert "process.join_result" in shown and "swarm " in shown
    assert cli("diff", "full@20", "other@20").out == "no difference between full@20 and other@20\n"
    assert "tasks build" in cli("diff", "full", 4, 8).out


def test_diff_of_the_last_two_checkpoints(cli: Cli, full: Path) -> None:
    """``--checkpoints`` needs no position; with fewer than two there is nothing to compare."""
    with open_store(full) as store:
        newer, older = store.checkpoints.positions("full")[:2]
    assert cli("diff", "full", "--checkpoints", "--json").json == cli("diff", "full", older, newer, "--json").json
    answer = cli("diff", "other", "--checkpoints", "--json")
    assert (answer.code, answer.error["code"]) == (2, "not_found") and "0 checkpoints" in answer.error["message"]


def test_diff_with_a_foreign_state(cli: Cli, full: Path) -> None:
    """A file is compared in the kinds that it holds: what ``show`` prints, or a table of rows by itself."""
    whole = cli("show", "full", "--tasks", "--contexts", "--graphs", "--swarm", "--json")
    Path("whole.json").write_text(whole.out)
    assert cli("diff", "full", "--with", "whole.json", "--exit-code").out == (
        f"no difference between full@{whole.json['position']} and whole.json\n"
    )
    rows = whole.json["tasks"]
    rows[1]["tokens_used"] = "7"
    Path("rows.json").write_text(json.dumps(rows))
    answer = cli("diff", "full", "--with", "rows.json", "--exit-code", "--json")
    assert answer.code == 1 and [(c["id"], c["path"], c["after"]) for c in answer.json["changes"]] == [
        ("fetch", "tokens_used", "7")
    ]
    earlier = cli("diff", "full@20", "--with", "whole.json", "--json").json
    assert earlier == cli("diff", "full", "--at", 20, "--with", "whole.json", "--json").json
    assert earlier["changes"]


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (("diff", "full"), 2, "wrong_usage"),
        (("diff", "full", "1", "2", "3"), 2, "wrong_usage"),
        (("diff", "full", "x", "2"), 2, "wrong_usage"),
        (("diff", "full", "other", "--checkpoints"), 2, "wrong_usage"),
        (("diff", "full", "1", "2", "--at", "3"), 2, "wrong_usage"),
        (("diff", "full", "--checkpoints", "--at", "3"), 2, "wrong_usage"),
        (("diff", "full", "--with", "no.json"), 2, "wrong_usage"),
        (("diff", "full", "1", "9999"), 2, "not_found"),
        (("diff", "full", "nobody"), 2, "not_found"),
        (("diff", "nobody", "1", "2"), 2, "not_found"),
        (("diff", "full@9999", "other"), 2, "not_found"),
        (("diff", "@3", "other"), 2, "not_found"),
        (("why", "full"), 2, "wrong_usage"),
        (("why", "full", "root", "--worker", "1"), 2, "wrong_usage"),
        (("why", "full", "--node", "build"), 2, "wrong_usage"),
        (("why", "full", "--node", "build/x"), 2, "wrong_usage"),
        (("why", "full", "--node", "/1"), 2, "wrong_usage"),
        (("why", "full", "nobody"), 2, "not_found"),
        (("why", "full", "--node", "build/9"), 2, "not_found"),
        (("why", "full", "--context", "nothing"), 2, "not_found"),
        (("why", "full", "--worker", "9"), 2, "not_found"),
        (("why", "nobody", "root"), 2, "not_found"),
        (("why", "full", "root", "--at", "9999"), 2, "not_found"),
        (("why", "full", "fetch", "--at", "1"), 2, "not_found"),
        (("fork", "full"), 2, "wrong_usage"),
        (("fork", "full", "new", "--at", "9999"), 2, "not_found"),
        (("fork", "nobody", "new"), 2, "not_found"),
        (("fork", "full", ""), 2, "invalid_value"),
        (("fork", "full", "a\nb"), 2, "invalid_value"),
        (("fork", "full", "other"), 3, "conflict"),
        (("fork", "full", "full"), 3, "conflict"),
        (("delete", "full"), 2, "wrong_usage"),
        (("delete", "nobody", "--yes"), 2, "not_found"),
        (("completion", "tcsh"), 2, "wrong_usage"),
        (("completion",), 2, "wrong_usage"),
        (("show", "full", "--id", "fetch"), 2, "wrong_usage"),
        (("show", "full", "--tasks", "--graphs", "--id", "x"), 2, "wrong_usage"),
        (("show", "full", "--swarm", "--id", "x"), 2, "not_found"),
    ],
)
def test_what_is_asked_wrongly_is_typed(cli: Cli, full: Path, args: tuple[str, ...], code: int, error: str) -> None:
    """Every wrong id, position, time or option has its error and exit code, and changes nothing in the store."""
    before = full.read_bytes()
    answer = cli(*args, "--json")
    assert (answer.code, answer.error["code"], answer.out) == (code, error, ""), answer
    assert answer.error["hint"] and full.read_bytes() == before


@pytest.mark.parametrize(
    "args",
    [
        ("why", "r", "t"),
        ("diff", "r", "1", "2"),
        ("fork", "r", "n"),
        ("delete", "r", "--yes"),
        ("history", "r", "--changes"),
    ],
)
def test_without_a_store_nothing_is_made(cli: Cli, args: tuple[str, ...]) -> None:
    """A store that is missing is store trouble, exit code 3."""
    answer = cli(*args, "--json")
    assert (answer.code, answer.error["code"]) == (3, "not_found") and not Path("refold.db").exists()


def test_damage_is_not_explained_away(cli: Cli, full: Path) -> None:
    """Behind a flipped bit why, diff and fork stop with its position; before it they answer."""
    flip(full, "stored_events", 9)
    for args in (("why", "full", "root"), ("diff", "full", "3", "12"), ("fork", "full", "new", "--at", "9")):
        answer = cli(*args, "--json")
        assert (answer.code, answer.error["code"]) == (3, "corrupt_journal"), args
    assert cli("why", "full", "root", "--at", 8).code == 0
    assert cli("diff", "full", 3, 8).code == 0
    assert cli("fork", "full", "new", "--at", 8).code == 0


# -- fork and delete --------------------------------------------------------------------------------------------------


def test_a_fork_is_made_and_shown_with_its_lineage(cli: Cli, full: Path) -> None:
    """``fork --json`` is run, origin and position; ``runs`` shows where it came from."""
    assert cli("fork", "full", "new", "--at", 12, "--json").json == {"run": "new", "origin": "full", "position": 12}
    listed = {run["run"]: (run["origin"], run["origin_position"]) for run in cli("runs", "--json").json}
    assert listed == {"full": (None, None), "new": ("full", 12), "other": ("full", 20)}
    shown = cli("runs").out
    assert "full@12" in shown and "origin" in shown.splitlines()[0]
    end = cli("digest", "full", "--json").json["position"]
    assert cli("fork", "full", "at-end").out == f"run at-end: a fork that shares {end} events of run full\n"
    assert cli("verify", "--all").code == 0


def test_deleting_says_what_is_kept(cli: Cli, full: Path) -> None:
    """``delete --json`` is run, kept_until, needed_by and released; what a fork shares stays readable, and goes with
    it."""
    digest = cli("digest", "other").out
    answer = cli("delete", "full", "--yes", "--json")
    assert answer.json == {"run": "full", "kept_until": 20, "needed_by": ["other"], "released": []}
    assert [run["run"] for run in cli("runs", "--json").json] == ["other"]
    assert cli("digest", "other").out == digest and cli("verify", "--all").code == 0
    gone = "deleted before and kept for forks, now gone as well: full\n"
    assert cli("delete", "other", "--yes").out == f"run other is deleted\n{gone}"
    assert cli("runs", "--json").json == []


def test_deleting_asks_first(cli: Cli, full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a person is asked; no answer but yes deletes. Elsewhere --yes is needed."""
    from engine.app.commands import delete

    asked: list[str] = []
    monkeypatch.setattr(delete, "is_terminal", lambda _: True)

    def refuse(text: str, **_: Any) -> None:
        asked.append(text)
        raise click.Abort

    monkeypatch.setattr(delete.click, "confirm", refuse)
    assert cli("delete", "full").code == 130 and "with its" in asked[0]
    assert cli("delete", "full", "--json").code == 2, "a program is never asked"
    monkeypatch.setattr(delete.click, "confirm", lambda *_, **__: True)
    assert "is deleted; its events up to 20 are kept for other" in cli("delete", "full").out


# -- completion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_script_asks_this_command(cli: Cli, shell: str) -> None:
    """It names the variable that the command answers to, and its own function; --json has it as text."""
    script = cli("completion", shell).out
    assert VARIABLE in script and f"{shell}_complete" in script and "refold" in script
    assert cli("completion", shell, "--json").json == {"shell": shell, "script": script.removesuffix("\n")}


def test_the_bash_script_is_bash(cli: Cli) -> None:
    """bash reads it without complaint, and it registers a completion."""
    script = cli("completion", "bash").out
    done = subprocess.run(["bash", "-c", f"{script}\ncomplete -p refold"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and "refold" in done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("refold ", set(COMMANDS)),
        ("refold hist", {"history"}),
        ("refold history f", {"full"}),
        ("refold why ", {"full", "other"}),
        ("refold diff o", {"other"}),
        ("refold --store missing.db history ", set()),
        ("refold history full --newest", {"--newest-first"}),
        ("refold explain broken_", {"broken_link", "broken_joint"}),
        ("refold completion z", {"zsh"}),
        ("refold verify o", {"other"}),
        ("refold restore ", {"full", "other"}),
        ("refold checkpoint f", {"full"}),
        ("refold export f", {"full"}),
        ("refold import x --run o", {"other"}),
        ("refold history full --type task.wait", {"task.wait_ended"}),
        ("refold history full --type swa", {"swarm", *(n for n in TYPES if n.startswith("swarm."))}),
        ("refold sql waiting", {"waiting_at", "waiting_tasks"}),
        ("refold import x --format task-", {"task-graph", "task-context"}),
    ],
)
def test_words_are_completed(full: Path, line: str, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, options, choices, codes, and the runs of the store that the line names; a missing store has none."""
    from click.shell_completion import BashComplete

    monkeypatch.chdir(full.parent)
    monkeypatch.delenv("REFOLD_STORE", raising=False)
    *args, incomplete = line.split(" ")[1:]
    found = {item.value for item in BashComplete(refold, {}, "refold", VARIABLE).get_completions(args, incomplete)}
    assert found == expected


def test_the_program_answers_a_shell(full: Path) -> None:
    """Asked through its environment, as the script does, the command prints words and nothing else."""
    command = [sys.executable, "-P", "-m", "engine.app"]
    env = {"PYTHONPATH": str(ROOT), VARIABLE: "bash_complete", "COMP_WORDS": "refold digest o", "COMP_CWORD": "2"}
    done = subprocess.run(command, cwd=full.parent, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("plain,other\n", "")
