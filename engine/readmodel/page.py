"""Describes the read model for people and programs: ``engine/SCHEMA.md`` and ``refold sql --schema``. It must never say
anything that the shapes do not; run ``make docs``, a test compares the page with the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from engine.core.errors import NotFound
from engine.readmodel.questions import QUESTIONS
from engine.readmodel.schema import TABLES
from engine.readmodel.shape import SQL_TYPES, Column, SqlTable
from engine.readmodel.views import VIEWS

__all__ = ["PAGE", "described", "render"]

PAGE: Final = Path(__file__).resolve().parents[1] / "SCHEMA.md"

_INTRO: Final = """
# The SQL read model

The tables that `refold sql` and `store.readmodel()` give, for any SQLite tool. Generated from the code by `make docs`;
do not edit it.

They lie in a file beside the store, `refold.read.db` for `refold.db`. `refold sql` brings it up to date before it asks;
other tools may read it at the same time, also while it is written. All rows of a run are true for the position in
`runs`. The file is made of the journal alone: deleting it loses nothing, and `refold sql --rebuild` makes it anew.
"""

_VALUES: Final = """
## Values

Ids are texts, times are Unix milliseconds, truth values are 0 and 1. JSON is compact text: `json_extract(value,
'$.a.b')` reads into it. NULL means that there is nothing; the JSON text `null` is a value. A whole number above 2^63-1,
for which SQLite has no integer, is the text of its digits and a `u`; sums and comparisons with it are approximate.
"""

_FORKS: Final = """
## Forks

A fork has rows of its own for all that it is, the history it shares with its origin included. So every row belongs to
one run, whatever is asked about a run is asked with `run = ...` alone, and deleting the origin takes none of the fork's
rows. The journal shares these events and copies none; here a fork costs what any run of its length costs, and like all
of the file it can be thrown away. What a fork did itself has `seq > origin_position` (column of `runs`); a sum over all
runs that leaves this out counts shared history once a fork.
"""


def described(name: str | None = None) -> list[dict[str, Any]]:
    """Return tables, views and questions, or the one of this name: name, what it is, doc, its columns (of a question,
    its parameters) and the SQL of what has some. Raises NotFound."""
    found: list[dict[str, Any]] = [
        *({"name": t.name, "what": "table", "doc": t.doc, "columns": _columns(t)} for t in TABLES),
        *({"name": v.name, "what": "view", "doc": v.doc, "columns": _listed(v.columns)} for v in VIEWS),
        *(
            {
                "name": question.name,
                "what": "question",
                "doc": question.asks,
                "sql": question.sql.strip(),
                "columns": [{"name": f":{key}", "type": "", "doc": doc} for key, doc in question.parameters.items()],
            }
            for question in QUESTIONS
        ),
    ]
    if name is None:
        return found
    named = [shape for shape in found if shape["name"] == name.strip()]
    if not named:
        names = ", ".join(shape["name"] for shape in found)
        raise NotFound(f"the read model has no table, view or question {name!r:.80}", hint=f"there are {names}")
    return named


def _columns(table: SqlTable) -> list[dict[str, Any]]:
    """Return the columns of a table, with what its keys say of them."""
    shapes = _listed(table.columns)
    for column in shapes:
        notes = ["key"] if column["name"] in table.key else []
        notes += [f"in {foreign.table}" for foreign in table.foreign if foreign.columns[-1] == column["name"] != "run"]
        if column["name"] in table.search:
            notes.append("full text")
        if notes:
            column["type"] += f", {', '.join(notes)}"
    return shapes


def _listed(columns: tuple[Column, ...]) -> list[dict[str, Any]]:
    return [
        {"name": column.name, "type": _type(column) + (" or NULL" if column.null else ""), "doc": column.doc}
        for column in columns
    ]


def _type(column: Column) -> str:
    return {"json": "TEXT (JSON)", "bool": "INTEGER (0, 1)"}.get(column.kind, SQL_TYPES[column.kind])


def render() -> str:
    """Return the page, a pure function of the code."""
    return "\n\n".join(part.strip("\n") for part in (_INTRO, _VALUES, _FORKS, *_shapes(), *_questions())) + "\n"


def _shapes() -> Iterator[str]:
    shapes = described()
    for what, title in (("table", "## Tables"), ("view", "## Views")):
        yield title
        if what == "table":
            yield "`key` marks the primary key; `in` names the table that a foreign key leads to, with the run."
        for shape in shapes:
            if shape["what"] == what:
                yield f"### {shape['name']}"
                yield shape["doc"]
                rows = [f"| `{c['name']}` | {c['type']} | {_cell(c['doc'])} |" for c in shape["columns"]]
                yield "\n".join(["| column | type | |", "| --- | --- | --- |", *rows])
    yield (
        "`messages_fts` is the full-text index of `messages` (SQLite's FTS5): `messages_fts MATCH 'word'`, joined by "
        "`messages.id = messages_fts.rowid`."
    )


def _questions() -> Iterator[str]:
    yield "## Questions"
    yield "`refold sql NAME --param name=value` runs them by name; any SQLite tool runs them as they stand."
    for question in QUESTIONS:
        yield f"### {question.name}"
        yield question.asks
        if question.parameters:
            yield "\n".join(f"- `:{name}`: {_cell(doc)}" for name, doc in question.parameters.items())
        yield f"```sql\n{question.sql.strip()}\n```"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
