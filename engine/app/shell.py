"""What every command shares: the options ``--store`` and ``--json``, opening the store, and how a failure is shown. It
must never know a command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from engine.core.errors import EngineError, ImportRefused, NotFound, Refused

if TYPE_CHECKING:
    from engine.open_store import Store

__all__ = [
    "POSITION",
    "WRONG_USAGE",
    "Failed",
    "command_options",
    "is_terminal",
    "known_runs",
    "named_store",
    "note",
    "opened_store",
    "run_argument",
    "stdout_is_terminal",
    "store_option",
    "store_url",
]

F = TypeVar("F", bound=Callable[..., Any])

STORE_DEFAULT: Final = "refold.db"
STORE_VARIABLE: Final = "REFOLD_STORE"

WRONG_USAGE: Final = 2
STORE_TROUBLE: Final = 3
INTERNAL_ERROR: Final = 70

_STORE = "refold.store"


class Failed(Exception):
    """A failure as the user sees it: what ``--json`` prints, and the exit code."""

    def __init__(self, shape: dict[str, Any], exit_code: int) -> None:
        super().__init__(shape["message"])
        self.shape = shape
        self.exit_code = exit_code

    @classmethod
    def by(cls, error: EngineError) -> Failed:
        """Return the failure for an engine's error: what was asked wrongly is 2, what the store cannot do is 3."""
        return cls.with_code(error, WRONG_USAGE if isinstance(error, Refused | NotFound) else STORE_TROUBLE)

    @classmethod
    def with_code(cls, error: EngineError, exit_code: int) -> Failed:
        """Return the failure for an engine's error with an exit code of one's own choice."""
        shape: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
        if isinstance(error, ImportRefused):
            shape["violations"] = error.violations
        return cls(shape, exit_code)

    @classmethod
    def used_wrongly(cls, error: click.ClickException, prog_name: str) -> Failed:
        """Return the failure for a command line that click could not take."""
        context = getattr(error, "ctx", None)
        path = prog_name if context is None else context.command_path
        hint = f"'{path} --help' shows how it is used"
        return cls({"code": "wrong_usage", "message": error.format_message(), "hint": hint}, WRONG_USAGE)

    @classmethod
    def at_file(cls, error: OSError) -> Failed:
        """Return the failure for a file that cannot be read or written."""
        where = "" if error.filename is None else f"{error.filename}: "
        shape = {
            "code": "file_error",
            "message": f"{where}{error.strerror or error}",
            "hint": "check the path, its permissions and the space on the disk",
        }
        return cls(shape, WRONG_USAGE)

    @classmethod
    def by_a_bug(cls, error: Exception) -> Failed:
        """Return the failure for what refold did not foresee; its exit code is no answer of any command."""
        hint = "this is a bug in refold: report it with the traceback (without --json it is printed)"
        shape = {"code": "internal_error", "message": f"{type(error).__name__}: {error}", "hint": hint}
        return cls(shape, INTERNAL_ERROR)

    def show(self, *, as_json: bool) -> int:
        """Print the failure on standard error; return its exit code."""
        from engine.app.output import printable

        if as_json:
            click.echo(json.dumps({"error": self.shape}), err=True)
        else:
            click.echo(f"error: {printable(self.shape['message'])}", err=True)
            violations = self.shape.get("violations", [])
            for violation in violations if len(violations) > 1 else ():  # a single one is the message
                click.echo(f"  - {printable(json.dumps(violation, ensure_ascii=False))}", err=True)
            if self.shape["hint"]:
                click.echo(f"hint: {printable(self.shape['hint'])}", err=True)
            click.echo(f"more: refold explain {self.shape['code']}", err=True)
        return self.exit_code


def _keep_store(ctx: click.Context, _: click.Parameter, url: str | None) -> None:
    if url is not None:
        ctx.find_root().meta[_STORE] = url


def store_option(function: F) -> F:
    """Add ``--store``; the command's own wins over the one before the command, then the environment, then
    refold.db."""
    return click.option(
        "--store",
        metavar="URL",
        expose_value=False,
        callback=_keep_store,
        help=f"The store: a path or sqlite:///path. Default: ${STORE_VARIABLE}, else {STORE_DEFAULT}.",
    )(function)


def command_options(function: F) -> F:
    """Add the options of every command: ``--store`` and ``--json`` (as ``as_json``)."""
    flag = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    return flag(store_option(function))


POSITION: Final = click.IntRange(0, 2**63 - 1)
"""What a position may be on the command line; whether it exists, the run knows."""


def known_runs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the runs whose names begin so, for a shell that completes them; none when the store cannot tell."""
    from engine.open_store import open_store

    url = ctx.find_root().meta.get(_STORE) or os.environ.get(STORE_VARIABLE) or STORE_DEFAULT
    try:
        with open_store(url, create=False, read_only=True) as store:
            return [run.run for run in store.runs() if run.run.startswith(incomplete) and run.run.isprintable()]
    except (EngineError, OSError):
        return []


def run_argument(function: F) -> F:
    """Add the argument RUN (as ``run``), which shells complete from the store."""
    return click.argument("run", shell_complete=known_runs)(function)


def named_store() -> str | None:
    """Return the store that the command line itself names, or None."""
    named: str | None = click.get_current_context().find_root().meta.get(_STORE)
    return named


def store_url() -> str:
    """Return the store to use: named by the command line, by the environment, or the default."""
    named = named_store()
    return named if named is not None else os.environ.get(STORE_VARIABLE) or STORE_DEFAULT


@contextmanager
def opened_store(*, create: bool = False, read_only: bool = True) -> Iterator[Store]:
    """Open the store for a command. A reading command never makes one, nor changes a file that is none.

    Whatever opening raises is store trouble, a missing store too.
    """
    from engine.app.model import named_model
    from engine.open_store import open_store

    model = named_model()
    try:
        if not create and not read_only:  # an empty file is no store, and opening it for writing would make it one
            open_store(store_url(), read_only=True).close()
        store = open_store(store_url(), create=create, read_only=read_only, model=model)
    except EngineError as error:
        raise Failed.with_code(error, STORE_TROUBLE) from error
    with store:
        yield store


def note(text: str) -> None:
    """Say something beside the answer, on standard error."""
    click.echo(text, err=True)


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal; a closed one is none."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def stdout_is_terminal() -> bool:
    """Return whether a person looks at standard output."""
    return is_terminal(sys.stdout)
