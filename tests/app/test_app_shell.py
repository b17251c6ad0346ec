"""What all commands share: help, version, finding the store, failures and their exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from engine import open_store
from engine.app.cli import COMMANDS, refold
from engine.app.shell import Failed
from engine.core import errors
from tests.app.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
READING = (
    ("runs",),
    ("show", "r"),
    ("show", "r", "--tasks", "--at", "1"),
    ("history", "r"),
    ("digest", "r"),
    ("restore", "r"),
    ("verify", "r"),
    ("verify", "--all"),
    ("export", "r", "out.jsonl"),
    ("checkpoint", "r"),
    ("checkpoint", "r", "--list"),
    ("checkpoint", "r", "--prune"),
)


def _process(*args: str, cwd: Path, **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "engine.app", *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell starts what it runs in the background with SIGINT ignored, and everything below inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **more,  # type: ignore[call-overload]
    )


def test_bare_refold_shows_the_help(cli: Cli) -> None:
    """Without a command the help is shown, which lists every command and the exit codes, and that is no error."""
    answer = cli()
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == cli("--help").out == cli("-h").out
    assert all(f"\n  {name} " in answer.out for name in COMMANDS)
    assert "Exit codes" in answer.out and "refold demo" in answer.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_teaches_with_an_example_and_takes_store_and_json(cli: Cli, name: str) -> None:
    """Each command's help holds an example that starts with its own name, and the two options of all commands."""
    answer = cli(name, "--help")
    assert answer.code == 0
    assert "Example" in answer.out and f"  refold {name}" in answer.out.replace("refold --store agents.db", "refold")
    assert "--json" in answer.out and "--store URL" in answer.out


def test_version_is_one_line(cli: Cli) -> None:
    """``--version`` names the program and its version."""
    answer = cli("--version")
    assert answer.code == 0 and answer.out.startswith("refold ") and answer.out.count("\n") == 1


def test_help_loads_neither_the_engine_nor_rich() -> None:
    """Help answers at once: it imports no database, no validation and no table printer."""
    code = (
        "import sys; from engine.app.cli import refold\n"
        "try: refold.main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'eventsourcing', 'pydantic', 'cbor2', 'rich', 'sqlite3', 'projections'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def test_the_store_is_found_by_option_then_environment_then_default(
    cli: Cli, nightly: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's own --store wins over the one before it, that over REFOLD_STORE, that over refold.db."""
    for name in ("one", "two", "three"):
        with open_store(tmp_path / f"{name}.db") as store:
            store.run(name).tasks.open_root("root")

    def run_of(*args: str) -> str:
        name: str = cli(*args).json[0]["run"]
        return name

    assert run_of("runs", "--json") == "nightly"
    monkeypatch.setenv("REFOLD_STORE", "one.db")
    assert run_of("runs", "--json") == "one"
    assert run_of("--store", "two.db", "runs", "--json") == "two"
    assert run_of("--store", "two.db", "runs", "--store", "three.db", "--json") == "three"
    assert run_of("runs", "--json", "--store", f"sqlite:///{tmp_path}/two.db") == "two"
    monkeypatch.setenv("REFOLD_STORE", "")
    assert run_of("runs", "--json") == "nightly"


def _missing(path: Path) -> None:
    assert not path.exists()


def _folder(path: Path) -> None:
    path.mkdir()


def _text(path: Path) -> None:
    path.write_text("not a store, but longer than a header would be\n" * 10)


def _empty(path: Path) -> None:
    path.touch()


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.close()


def _newer(path: Path) -> None:
    open_store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()


def _garbled(path: Path) -> None:
    with open_store(path) as store:
        store.run("r").tasks.open_root("root")
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)


@pytest.mark.parametrize("args", READING, ids=" ".join)
@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (_missing, "not_found"),
        (_folder, "not_a_store"),
        (_text, "not_a_store"),
        (_empty, "not_a_store"),
        (_foreign, "not_a_store"),
        (_newer, "schema_error"),
        (_garbled, "not_a_store"),
    ],
)
def test_what_is_no_store_is_store_trouble_and_stays_as_it_is(
    cli: Cli, tmp_path: Path, args: tuple[str, ...], spoil: object, code: str
) -> None:
    """No command that needs a store takes another file for one, makes one, or changes it: exit code 3, named."""
    path = tmp_path / "refold.db"
    assert callable(spoil)
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    answer = cli(*args, "--json")
    assert answer.code == 3 and answer.out == ""
    assert answer.error["code"] == code and "refold.db" in answer.error["message"] and answer.error["hint"]
    assert (path.read_bytes() if path.is_file() else None) == before
    assert path.exists() == (spoil is not _missing)
    assert not Path("out.jsonl").exists()


def test_errors_become_exit_codes_by_whose_fault_they_are() -> None:
    """What was asked wrongly is 2; what the store cannot do is 3; every error of the tree has its place."""
    made: list[errors.EngineError] = [
        errors.Refused("m"),
        errors.IllegalTransition("s", "a", "e", []),
        errors.InvalidValue("p", "m"),
        errors.CommandMismatch("m"),
        errors.ImportRefused("m", []),
        errors.ReadOnly("m"),
        errors.LimitExceeded("L", 2, 1),
        errors.NotFound("m"),
        errors.Conflict("m"),
        errors.CorruptJournal("r", 1, "a", "b"),
        errors.SchemaError("m"),
        errors.BackendUnavailable("m"),
        errors.NotAStore("m"),
    ]
    assert {type(error).__name__ for error in made} == set(errors.__all__) - {"EngineError"}
    wrong = {type(error).__name__ for error in made if Failed.by(error).exit_code == 2}
    assert wrong == {
        "Refused", "IllegalTransition", "InvalidValue", "CommandMismatch", "ImportRefused", "ReadOnly",
        "LimitExceeded", "NotFound",
    }  # fmt: skip
    assert {Failed.by(error).exit_code for error in made} == {2, 3}


def test_an_internal_error_is_no_answer_of_any_command(
    cli: Cli, nightly: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug ends with exit code 70, never with the 1 that means a finding, and shows its traceback to people."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(sys.modules["engine.open_store"], "verify", broken)
    answer = cli("verify", "nightly", "--json")
    assert answer.code == 70 and answer.error["code"] == "internal_error"
    shown = cli("verify", "nightly")
    assert shown.code == 70 and "Traceback" in shown.err and "report it" in shown.err


def test_a_broken_pipe_is_quiet(nightly: Path) -> None:
    """A reader that goes away ends the command without a word, with the exit code of SIGPIPE."""
    with open_store(nightly) as store:
        run = store.run("nightly")
        with run.batch():
            for _ in range(3000):
                run.tasks.report_usage("build", tokens=1)
    process = _process("history", "nightly", "--json", cwd=nightly.parent)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


def test_interrupting_is_quiet(tmp_path: Path) -> None:
    """Ctrl-C ends a command without a traceback, with the exit code of SIGINT."""
    process = _process("import", "-", cwd=tmp_path, stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(b'{"refold":1')
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while not _reads_input(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert b"Traceback" not in process.stderr.read()


def _reads_input(pid: int) -> bool:
    """Whether the process has got as far as waiting for its input; without /proc, give it a moment."""
    waiting = Path(f"/proc/{pid}/wchan")
    if not waiting.exists():
        time.sleep(2)
        return True
    return "pipe" in waiting.read_text()


def test_output_survives_a_terminal_without_unicode(tmp_path: Path) -> None:
    """Where the encoding cannot hold a character its number is printed; JSON is ASCII everywhere."""
    with open_store(tmp_path / "refold.db") as store:
        store.run("nächtlich").tasks.open_root("wurzel-Ω")
    command = [sys.executable, "-P", "-m", "engine.app", "show", "nächtlich"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=True)
    assert "run nächtlich".encode("latin-1") in shown.stdout and b"wurzel-\\u03a9" in shown.stdout
    as_json = subprocess.run([*command, "--json"], cwd=tmp_path, env=env, capture_output=True, check=True)
    assert json.loads(as_json.stdout.decode("ascii"))["run"] == "nächtlich"


def test_every_hint_names_commands_and_options_that_exist() -> None:
    """Wherever the code says 'refold ...' to a user, that command is there, with the options it is said to have."""
    seen = 0
    for path in [*ROOT.glob("engine/**/*.py"), *ROOT.glob("projections/**/*.py")]:
        for text in re.findall(r"'refold ([^'\n]+)'", path.read_text(encoding="utf-8")):
            words = text.split()
            if words[0] == "--help" or not words[0].isalpha():
                continue
            command = refold.get_command(click.Context(refold), words[0])
            assert command is not None, (path, text)
            options = {option for param in command.params for option in param.opts}
            assert {word for word in words if word.startswith("--")} - {"--help"} <= options, (path, text)
            seen += 1
    assert seen >= 5
