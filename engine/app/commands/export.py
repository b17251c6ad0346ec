"""``refold export``: a run as a file that stands alone."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from engine.app.output import print_json, printable, progress_bar
from engine.app.shell import WRONG_USAGE, Failed, command_options, opened_store, run_argument
from engine.app.times import moment_options, position_in
from engine.files import put_in_place

PROGRESS_EVERY: Final = 1_000


@click.command("export")
@run_argument
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace the file even when it is not an export.")
@moment_options
@command_options
def command(run: str, file: Path, force: bool, at: int | None, at_time: int | None, as_json: bool) -> None:
    """Write a run as JSON Lines: one event a line, each with its envelope, each commit with its link.

    With --at or --at-time the run as it was then: its events up to there, which are a run of their own.

    The file is complete or not there: it is written beside its place and moved there at the end. An earlier export is
    replaced, any other file only with --force. FILE may be - for standard output. 'refold import' brings the file back
    to a byte-identical run.

    \b
    Examples:
      refold export nightly nightly.jsonl
      refold export nightly morning.jsonl --at-time 2026-05-01T12:00
    """
    with opened_store() as store:
        until = position_in(store, run, at, at_time)
        lines = store.export_lines(run, at=until)
        if str(file) == "-":
            for line in lines:
                click.echo(line)
            return
        if not force:
            _refuse_to_replace(file)
        end = store.journal.existing_head(run).position if until is None else until
        with progress_bar(f"exporting {run}") as progress:
            count = _write(file, lines, progress, end)
    if as_json:
        print_json({"run": run, "file": str(file), "events": count, "position": count})
    else:
        click.echo(f"run {printable(run)}: {count} events written to {printable(str(file))}")


def _refuse_to_replace(file: Path) -> None:
    """Raise when the file is there and is not an earlier export."""
    if not file.exists():
        return
    with file.open("rb") as existing:
        start = existing.read(10)
    if start and start != b'{"refold":':
        shape = {
            "code": "refused",
            "message": f"{file} exists and is not an export of refold",
            "hint": "name another file, or give --force to replace it",
        }
        raise Failed(shape, WRONG_USAGE)


def _write(file: Path, lines: Iterator[str], progress: Callable[[int, int], None] | None, end: int) -> int:
    """Write the lines durably, then move them into place; return how many there were."""
    target = Path(os.path.realpath(file))  # a link stays a link: what it names is replaced
    if target.is_dir():  # before anything is written beside it; an empty path names the folder that we are in
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    count = 0
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as out:
            for line in lines:
                out.write(line + "\n")
                count += 1
                if progress is not None and count % PROGRESS_EVERY == 0:
                    progress(count, end)
            out.flush()
            os.fsync(out.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        put_in_place(Path(name), target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return count
