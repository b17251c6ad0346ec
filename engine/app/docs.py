"""Writes ``engine/FORMAT.md`` from the code: what is on disk, byte by byte, for readers in other languages; and
``engine/ERRORS.md`` from the pages of ``refold explain`` and ``engine/SCHEMA.md`` from the shapes of the read model. It
must never say anything that the code does not; run it with ``make docs``, a test compares the two."""

from __future__ import annotations

import ast
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from inspect import cleandoc, getsource
from pathlib import Path
from types import ModuleType
from typing import Final

from engine import archive
from engine.app import explain
from engine.core import envelope, limits
from engine.core.catalog import EventType
from engine.core.decider import Projection
from engine.core.envelope import COMMIT_TOPIC
from engine.core.state import COMMAND_NOTED, STATE_FORMAT
from engine.core.transition import Transition, mermaid
from engine.open_store import open_store
from engine.readmodel import page as schema
from engine.store import checkpoints, sqlite, sqlite_recorders
from engine.store.checkpoints import CHECKPOINT_TOPIC
from projections.model import MODEL

__all__ = ["ERRORS", "PAGE", "main", "render"]

PAGE: Final = Path(__file__).resolve().parents[1] / "FORMAT.md"
ERRORS: Final = PAGE.with_name("ERRORS.md")


def main() -> None:
    """Write the pages."""
    PAGE.write_text(render(), encoding="utf-8")
    ERRORS.write_text(explain.render(), encoding="utf-8")
    schema.PAGE.write_text(schema.render(), encoding="utf-8")


def render() -> str:
    """Return the page, a pure function of the code."""
    parts = [_intro(), *_bytes(), *_database(), *_catalogue(), *_life_cycles(), *_limits()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _intro() -> str:
    return """
# Format

What refold writes, for readers in other languages and for whoever opens a store in ten years. Generated from the code
by `make docs`; do not edit it.

Every stored thing says which format it has: a store by its header, a commit and a checkpoint by the topic of its row,
an event by its tag, an export by the first key of every line. A reader refuses what it does not know.
"""


def _bytes() -> Iterator[str]:
    yield "## Values"
    yield """
All values are CBOR (RFC 8949) in one form, so that equal values are equal bytes: definite lengths, the shortest head,
64-bit floats only, no tags, no simple values but null, false and true. -0.0 is written as 0.0; NaN and infinities do
not occur. Maps have text keys, in the order of their encoded bytes, each once. Integers lie in -2^63..2^64-1. Stored
arrays have no keys; only JSON values that users handed in hold maps."""
    yield "## Commit"
    yield f"A row with the topic `{COMMIT_TOPIC}` is one commit, at the position of its first event."
    yield _rest(envelope)
    yield (
        "An event is `[tag, cause_back, field, ...]`: `cause_back` is 0 when the command caused it, k when the event "
        "k places before, in the same commit, did. "
        "The tag of an event type is `number * 16 + version`; types without a number are tagged "
        "by their text, `name/version`. Fields stand in the order of the tables below, each exactly once."
    )
    yield "The chain begins, before the first event of a run, with:"
    yield "```python\n" + _body(getsource(envelope.genesis)) + "\n```"
    yield "## Checkpoint"
    yield f"A row with the topic `{CHECKPOINT_TOPIC}` is one checkpoint, at the position that it describes."
    yield _rest(checkpoints)
    yield "## State digest"
    yield f"""
SHA-256 over these values, one after the other: `["refold.state", {STATE_FORMAT}, position]`; then for every table that
holds records, in the order of their names, `[name, number of records]` and for each record, in the table's order,
`[key, record]`. A table without records is left out, so that a projection added later does not move old digests."""
    yield "## Export"
    yield f"""
`refold export` writes JSON Lines in UTF-8, one event a line, in order; `"refold": {archive.FORMAT}` is the first key of
every line. Every line stands alone: run, seq, type with version, envelope, data. `group` counts the commands within a
commit; the last line of a commit carries its `link`, and the last line of the run `"end": true`, so that a shortened
file is noticed. Bytes are `{{"$bytes": base64}}`; a map of one key that would look like that is wrapped,
`{{"$map": map}}`."""


def _database() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        open_store(path).close()
        with closing(sqlite3.connect(path)) as connection:
            schema = [
                row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql > '' ORDER BY name")
            ]
    yield "## SQLite store"
    yield (
        f"`PRAGMA application_id` is {sqlite.APPLICATION_ID} (`{sqlite.APPLICATION_ID.to_bytes(4, 'big').decode()}`), "
        f"`PRAGMA user_version` is the format, {sqlite.STORE_FORMAT}. Write-ahead logging, `synchronous=FULL`. "
        f"`hidden` is {sqlite_recorders.HIDDEN} for a deleted run whose events a fork still needs, else 0."
    )
    yield "```sql\n" + ";\n".join(schema) + ";\n```"


def _catalogue() -> Iterator[str]:
    yield "## Events"
    yield "### run"
    yield _event(COMMAND_NOTED)
    for projection in MODEL.projections:
        yield f"### {projection.name}"
        for event_type in projection.events:
            yield _event(event_type)
        for step in projection.upcasts:
            yield f"Older version, lifted when it is read: {_event(step.old)}"


def _event(event_type: EventType) -> str:
    lines = [f"**`{event_type.label}`**, tag {event_type.tag}: {_plain(event_type.doc)}", ""]
    if event_type.fields:
        lines += ["| field | type | |", "| --- | --- | --- |"]
    for column in event_type.fields:
        label = column.type.label.replace("|", "\\|")
        lines.append(f"| `{column.name}` | {label} | {_plain(column.doc)} |")
    return "\n".join(lines)


def _life_cycles() -> Iterator[str]:
    yield "## Life cycles"
    yield "Drawn from the tables that the code decides by. What is in brackets is checked beside the table."
    for projection in MODEL.projections:
        for name, table in _tables(projection):
            title = projection.name if name == "DIAGRAM" else f"{projection.name}: {name.lower().replace('_', ' ')}"
            yield f"### {title}"
            yield f"```mermaid\n{mermaid(table)}```"


def _tables(projection: Projection) -> list[tuple[str, tuple[Transition, ...]]]:
    """Return the life cycles of a projection: its DIAGRAM, or else every table of transitions that it names."""
    module = import_module(f"projections.{projection.name}.transitions")
    found = [
        (name, value)
        for name, value in vars(module).items()
        if type(value) is tuple and value and all(isinstance(step, Transition) for step in value)
    ]
    return [(name, table) for name, table in found if name == "DIAGRAM"] or found


def _limits() -> Iterator[str]:
    yield "## Limits"
    yield "What is over a limit is refused before anything is written, by the limit's name."
    lines = ["| limit | value | |", "| --- | --- | --- |"]
    body = ast.parse(getsource(limits)).body
    for place, statement in enumerate(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name = statement.target.id
        after = body[place + 1] if place + 1 < len(body) else None
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = _plain(str(after.value.value))
        lines.append(f"| `{name}` | {getattr(limits, name):,} | {text} |")
    yield "\n".join(lines)


def _rest(module: ModuleType) -> str:
    """Return a module's docstring without its first paragraph, which is about the code, as Markdown."""
    _, _, rest = cleandoc(module.__doc__ or "").partition("\n\n")
    return _markdown(rest)


def _plain(text: str) -> str:
    """Return a docstring on one line, as Markdown."""
    return " ".join(_markdown(text).split())


def _markdown(text: str) -> str:
    """Return reStructuredText as this project writes it as Markdown: code, roles, literal blocks."""
    text = re.sub(r":(?:class|func|meth|mod|data):`([^`]+)`", r"`\1`", text)
    text = re.sub(r" \([^()]*spec/[^()]*\)", "", text).replace("``", "`")
    return re.sub(r"::\n\n((?:    .*\n?)+)", lambda block: f":\n\n```\n{cleandoc(block[1])}\n```\n", text)


def _body(source: str) -> str:
    """Return the body of a function without its docstring."""
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return "\n".join(ast.unparse(statement) for statement in tree.body[1:])


if __name__ == "__main__":
    main()
