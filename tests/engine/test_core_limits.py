"""Limits: every one that is named is enforced somewhere, and held by a test that names it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from engine.core import limits

ROOT = Path(__file__).parents[2]
NAMES = [name for name in vars(limits) if name.isupper()]


def texts(*folders: str) -> dict[Path, str]:
    return {
        path: path.read_text(encoding="utf-8")
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if path not in (ROOT / "engine/core/limits.py", Path(__file__))
    }


SOURCES = texts("engine", "projections")


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_is_a_positive_number_that_somebody_asks_for(name: str) -> None:
    """A limit that nobody reads limits nothing."""
    assert type(getattr(limits, name)) is int
    assert getattr(limits, name) > 0 or name == "I64_MIN"
    assert any(re.search(rf"\b{name}\b", text) for text in SOURCES.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_says_what_it_limits(name: str) -> None:
    """Every limit has its line of documentation, but for the plain ranges of numbers."""
    tree = ast.parse((ROOT / "engine/core/limits.py").read_text(encoding="utf-8"))
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id == name
        ):
            documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            assert documented or name in ("U32_MAX", "U64_MAX", "I64_MIN", "I64_MAX")
            return
    pytest.fail(f"{name} is not an annotated constant")


def test_no_other_file_makes_limits_of_its_own() -> None:
    """A number called ..._MAX that callers can run into stands in limits.py alone; private ones are not for callers."""
    for path, text in SOURCES.items():
        own = re.findall(r"^([A-Z][A-Z0-9_]*_MAX)\b[^=\n]*=", text, re.MULTILINE)
        # How many versions a tag has room for, and how much of a long text an error shows: neither refuses a value.
        assert set(own) <= {"VERSIONS_MAX", "SHOWN_CHARS_MAX"}, path
