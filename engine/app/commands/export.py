"""``refold export``: a run as a file that stands alone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from engine.app.output import print_json, printable
from engine.app.shell import WRONG_USAGE, Failed, command_options, opened_store
from engine.files import put_in_place


@click.command("export")
@click.argument("run")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--force", is_flag=True, help="Replace the file even when it is not an export.")
@command_options
def command(run: str, file: Path, force: bool, as_json: bool) -> None:
    """Write a run as JSON Lines: one event a line, each with its envelope, each commit with its link.

    The file is complete or not there: it is written beside its place and moved there at the end. An earlier export is
    replaced, any other file only with --force. FILE may be - for standard output. 'refold import' brings the file back
    to a byte-identical run.

    \b
    Example:
      refold export nightly nightly.jsonl
    """
    with opened_store() as store:
        lines = store.export_lines(run)
        if str(file) == "-":
            for line in lines:
                click.echo(line)
            return
        if not force:
            _refuse_to_replace(file)
        count = _write(file, lines)
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


def _write(file: Path, lines: Iterator[str]) -> int:
    """Write the lines durably, then move them into place; return how many there were."""
    target = Path(os.path.realpath(file))  # a link stays a link: what it names is replaced
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    count = 0
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as out:
            for line in lines:
                out.write(line + "\n")
                count += 1
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
