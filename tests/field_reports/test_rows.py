"""The register is true: every row of the eight tables is in it, every test it names is there and cites the row, and
every reason is one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.field_reports.rows import IDS, ROWS
from tests.field_reports.rows_k_z_x_e import ROWS as OTHERS

ROOT = Path(__file__).parents[2]


@cache
def promises(file: str) -> dict[str, str]:
    """The tests of a file by name, with what their docstrings say."""
    tree = ast.parse((ROOT / file).read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")}


def test_every_row_of_every_table_is_registered_once() -> None:
    """The two halves of the register together hold exactly the rows of the eight tables, each in one of them."""
    wanted = [f"{table}{number}" for table, numbers in IDS.items() for number in numbers]
    assert len(wanted) == len(set(wanted)) == 172
    assert sorted([*ROWS, *OTHERS]) == sorted(wanted)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_held_by_a_test_that_cites_it_or_says_why_not(row: str) -> None:
    """A tested row names a test that exists and whose docstring holds the row's id; any other gives a reason in whole
    sentences; and each says where it was reported and what it was, on one line."""
    thread, fault, verdict, where = ROWS[row]
    assert thread and fault and "\n" not in fault and not fault.endswith(".")
    if verdict == "tested":
        file, _, test = where.partition("::")
        assert re.search(rf"\b{row}\b", promises(file)[test]), f"{where} does not cite {row}"
    else:
        assert verdict in ("comes with", "does not apply")
        assert re.fullmatch(r"[A-Z][^.]{15,}.*\.", where), where
