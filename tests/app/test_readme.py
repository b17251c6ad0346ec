"""The README is executed: its commands run in an empty folder and print what it says, its Python runs, its links and
its claims about files hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "engine" / "ARCHITECTURE.md")
README = PAGES[0].read_text(encoding="utf-8")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its first line's number, its text."""

    language: str
    line: int
    text: str


def _blocks(text: str) -> list[Block]:
    found = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        found.append(Block(match[1], text.count("\n", 0, match.start()) + 2, match[2]))
    return found


BLOCKS = _blocks(README)


def _examples(block: Block) -> list[tuple[str, str]]:
    """Return (command, expected output) of a console block."""
    examples: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            examples.append((line[2:], ""))
        elif examples:
            command, expected = examples[-1]
            examples[-1] = (command, f"{expected}{line}\n")
    return examples


def _matches(expected: str, found: str) -> bool:
    """Whether the output is as expected, where ``...`` stands for anything."""
    parts = [re.escape(part) for part in expected.rstrip("\n").split("...")]
    return re.fullmatch(".*?".join(parts), found.rstrip("\n"), re.DOTALL) is not None


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder with ``refold`` and ``python`` of this source tree and this interpreter."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, command in (("refold", "-P -m engine.app"), ("python", "")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        script.chmod(0o755)
    return folder


def test_the_readme_runs_as_written(tmp_path: Path, bin_folder: Path) -> None:
    """Every console and Python block runs, in order, in one empty folder, and prints what the README shows."""
    folder = tmp_path / "empty"
    folder.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith("REFOLD")}
    env |= {"PATH": f"{bin_folder}{os.pathsep}{env['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    ran = 0
    for block in BLOCKS:
        if block.language == "python":
            named = re.match(r"# (\w+\.py)\n", block.text)
            file = folder / (named[1] if named else f"line_{block.line}.py")
            file.write_text(block.text)
            examples = [(f"python {file.name}", "".join(re.findall(r"# prints (.*\n)", block.text)))]
        elif block.language == "console":
            examples = _examples(block)
        else:
            continue
        for command, expected in examples:
            done = subprocess.run(
                ["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=300
            )
            where = f"README.md line {block.line}: {command}"
            assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
            assert _matches(expected, done.stdout), f"{where}\nexpected:\n{expected}\nfound:\n{done.stdout}"
            ran += 1
    assert ran >= 8


def test_the_make_targets_of_the_readme_exist() -> None:
    """Each ``make`` command that the README gives is a target of the Makefile."""
    named = set(re.findall(r"\bmake ([a-z]+)", README))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "sweep", "bench"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_lead_to_files(page: Path) -> None:
    """Every relative link, and every path in code font, is there."""
    text = page.read_text(encoding="utf-8")
    links = {link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link}
    paths = set(re.findall(r"`((?:engine|projections|tests|fixtures)/[\w./]*)`", text))
    assert links or paths
    for link in links:
        assert (page.parent / link).exists(), link
    for path in paths:
        assert (ROOT / path).exists(), path


def test_the_guarantees_are_the_same_everywhere() -> None:
    """G1 to G13 stand in both pages in the same words."""
    tables = [
        re.findall(r"^\| (G\d+) \| ([^|]+?) \|", text.read_text(encoding="utf-8"), re.MULTILINE) for text in PAGES
    ]
    assert tables[0] == tables[1]
    assert [name for name, _ in tables[0]] == [f"G{number}" for number in range(1, 14)]


def test_every_guarantee_has_the_tests_that_the_readme_names() -> None:
    """Behind every pattern of the README's table there is a file of tests."""
    patterns = re.findall(r"^\| G\d+ \|.*\| `(test_g\d\d_\*)` \|$", README, re.MULTILINE)
    assert len(patterns) == 13
    folder = ROOT / "tests" / "guarantees"
    assert [pattern for pattern in patterns if not list(folder.glob(f"{pattern}.py"))] == []


def test_no_page_names_this_machine() -> None:
    """No path of a developer's machine and no registry's address stands in the documents."""
    for page in (*PAGES, ROOT / "CHANGELOG.md", ROOT / "Makefile", ROOT / ".ci" / "run"):
        found = re.findall(r"(?<![\w.])/(?:home|root|work|tmp|Users)/|index-url", page.read_text(encoding="utf-8"))
        assert not found, (page, found)
