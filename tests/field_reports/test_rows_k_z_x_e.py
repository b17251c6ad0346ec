"""The register is true: every row of ``rows_k_z_x_e.py`` is cited by a test, or gives a reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.field_reports.rows_k_z_x_e import ROWS

REASONS = ("comes with: ", "does not apply: ")


def docstrings() -> Iterator[str]:
    """What every test function of the project says that it holds, its parameters' ids included."""
    for file in Path(__file__).parents[1].rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield ast.get_docstring(node) or ""


def test_every_row_is_cited_or_has_its_reason() -> None:
    """Each row is named in the docstring of a test, or says why it is not; never both, and no reason is empty."""
    cited = {found for text in docstrings() for found in re.findall(r"\b[KZXE]\d+\b", text)}
    assert {row for row in ROWS if ROWS[row].reason is None} - cited == set()
    excused = {name: row.reason for name, row in ROWS.items() if row.reason is not None}
    assert excused.keys() & cited == set()
    assert all(reason.startswith(REASONS) and len(reason) > 40 for reason in excused.values())
    assert cited - {"E501"} <= ROWS.keys()
