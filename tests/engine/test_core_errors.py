"""Errors: one tree, each with its own code, and no hint names a command that is not there."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from pathlib import Path
from typing import Any

import click
import pytest

import engine
from engine.app.cli import COMMANDS, refold
from engine.core import errors
from engine.core.errors import (
    BackendUnavailable,
    Conflict,
    CorruptJournal,
    EngineError,
    IllegalTransition,
    ImportRefused,
    InvalidValue,
    LimitExceeded,
    Refused,
)

ROOT = Path(__file__).parents[2]
TREE: list[type[EngineError]] = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
]
EXAMPLES: list[EngineError] = [
    IllegalTransition("task 'a'", "done", "task.finished", []),
    IllegalTransition("task 'a'", "ready", "task.finished", ["started", "suspended"], hint="start it"),
    InvalidValue("result.items[3]", "not a number"),
    InvalidValue("", "not a number"),
    ImportRefused("3 rows break the rules", [{"row": 1}]),
    LimitExceeded("ID_BYTES_MAX", 300, 256),
    CorruptJournal("nightly", 7, "link ab", "link cd"),
    Conflict("position 3 was taken", hint="refresh", run="r", position=3),
    BackendUnavailable("the store is locked", hint="try again"),
    Refused("no"),
]


def test_every_error_has_its_own_code() -> None:
    """Codes are what programs and ``--json`` rely on: one a class, stable words, none shared."""
    codes = [kind.code for kind in TREE]
    assert all(issubclass(kind, EngineError) for kind in TREE)
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)
    assert sorted(errors.__all__) == sorted(kind.__name__ for kind in TREE)


def test_every_error_can_be_caught_by_name_from_the_package() -> None:
    """Whoever uses refold imports its errors from ``engine``."""
    assert all(getattr(engine, kind.__name__) is kind for kind in TREE)


def test_only_what_may_succeed_later_is_retryable() -> None:
    """A caller that retries exactly the retryable errors never loops on a refusal."""
    assert [kind.__name__ for kind in TREE if kind.retryable] == ["BackendUnavailable", "Conflict"]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_says_what_happened_and_what_to_do(error: EngineError) -> None:
    """Its text holds message and hint, its JSON form the same with the code, and details that JSON can hold."""
    shape = error.to_json()
    assert json.loads(json.dumps(shape)) == shape
    assert (shape["code"], shape["message"], shape["hint"]) == (error.code, error.message, error.hint)
    assert error.message in str(error)
    assert error.hint in str(error)


def test_an_illegal_transition_names_what_is_allowed() -> None:
    """Subject, state, event and the way out are in the message and in the details."""
    error = EXAMPLES[0]
    assert "task 'a' is done; task.finished is not allowed there" in str(error)
    assert "the state is final" in error.hint
    assert EXAMPLES[1].details == {
        "subject": "task 'a'",
        "state": "ready",
        "event": "task.finished",
        "allowed": ["started", "suspended"],
    }


def test_a_path_is_put_together_from_its_parts() -> None:
    """The path of a refused value is joined with dots before names and without before places."""
    assert InvalidValue("", "bad").at("a").path == "a"
    assert InvalidValue("b", "bad", hint="h").at("a").path == "a.b"
    assert InvalidValue("[3].c", "bad").at("a").path == "a[3].c"
    assert InvalidValue("b", "bad", hint="h").at("a").hint == "h"


def test_no_other_module_defines_an_error_that_reaches_a_caller() -> None:
    """The tree is one file: exceptions elsewhere are private to their package, and not of this tree."""
    for path in (ROOT / "engine").rglob("*.py"):
        if path.name == "errors.py" and path.parent.name == "core":
            continue
        for name in re.findall(r"^class \w+\((\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert name not in {kind.__name__ for kind in TREE}, path


def _named_commands() -> list[tuple[str, str]]:
    """Return every command line that a text in the sources names, with where it stands."""
    found = []
    for folder in ("engine", "projections"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line in re.findall(r"'(refold [^'\n]*)'", path.read_text(encoding="utf-8")):
                found.append((line, str(path.relative_to(ROOT))))
    return found


@pytest.mark.parametrize(("line", "where"), _named_commands())
def test_every_command_that_a_text_names_exists(line: str, where: str) -> None:
    """A hint that sends the reader to a command, or to an option of one, sends them to one that is there."""
    _, name, *rest = re.sub(r"\{.*?\}", "RUN", line).split()
    assert name in COMMANDS, f"{where} names {line!r}"
    command = refold.get_command(click.Context(refold), name)
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("-")} <= options, f"{where} names {line!r}"


def test_the_texts_do_name_commands() -> None:
    """The check above has something to check."""
    assert len(_named_commands()) > 5


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_to_another_process(error: EngineError) -> None:
    """Pools of workers hand errors over pickled: class, message, hint and details arrive."""
    arrived: Any = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert arrived.to_json() == error.to_json()
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
