"""The catalogue of ``refold explain`` is complete: whatever code the source can print has a page, and no other has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import engine
import projections
from engine.app import docs, explain
from engine.core.errors import EngineError
from engine.import_file import FORMATS
from projections.graph import rules as graph_rules
from projections.swarm import rules as swarm_rules
from projections.tasks import violations as task_rules
from tests.app.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = explain.catalogue()


def _of(family: str) -> set[str]:
    return {code for code, page in PAGES.items() if page.family == family}


def _calls(naming: str = "") -> Iterator[ast.Call]:
    """Yield every call in those files of the two packages that hold a text."""
    for package in ("engine", "projections"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if naming in text else ():
                if isinstance(node, ast.Call):
                    yield node


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _texts(node: ast.expr | None) -> set[str]:
    """Return the literal texts that an expression may be."""
    if isinstance(node, ast.IfExp):
        return _texts(node.body) | _texts(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def _errors(kind: type[EngineError]) -> set[str]:
    return {kind.code}.union(*(_errors(inner) for inner in kind.__subclasses__()))


def test_every_error_has_a_page() -> None:
    """Every class of the tree of errors, wherever in the packages it is defined."""
    for package in (engine, projections):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and ".testing" not in module.name and ".bench" not in module.name:
                import_module(module.name)
    assert _of("errors") == _errors(EngineError)


def test_every_error_of_the_command_line_has_a_page() -> None:
    """What ``Failed`` shows beside the errors of the tree."""
    text = (ROOT / "engine" / "app" / "shell.py").read_text(encoding="utf-8")
    codes = set(re.findall(r'"code": "([a-z_]+)"', text))
    assert _of("command-line") == codes - _errors(EngineError) and len(codes) >= 3


def test_every_fault_has_a_page() -> None:
    """Every code that a ``Fault``, or a ``Finding`` of the doctor, is made with; those that take an error's code have
    that error's page."""
    found: set[str] = set()
    for call in (
        *_calls('class Fault:\n    """One thing that is not as it was written'),
        *_calls("engine.verify import"),
        *_calls("engine.verify_rows import"),
    ):
        if _name(call) == "Fault":
            assert len(call.args) >= 2, ast.unparse(call)
            texts = _texts(call.args[1])
            assert texts or ast.unparse(call.args[1]) == "error.code", ast.unparse(call)
            found |= texts
    assert len(found) >= 14
    for call in _calls("class Finding:"):
        if _name(call) == "Finding":
            texts = _texts(call.args[0])
            assert texts or ast.unparse(call.args[0]) == "error.code", ast.unparse(call)
            found |= texts
    assert {"damaged_file", "damaged_log"} <= found
    assert _of("findings") == found - _of("errors")


def test_every_rule_of_a_refusal_has_a_page() -> None:
    """Every ``rule=`` that a refusal names, and every rule of a task table, a task graph and a swarm by its own
    sentence."""
    found = set().union(*(_texts(word.value) for call in _calls() for word in call.keywords if word.arg == "rule"))
    assert len(found) >= 15
    assert _of("context-rules") == found
    assert _of("task-rules") == set(task_rules.RULE_TEXTS)
    for family, rules in (("graph-rules", graph_rules), ("swarm-rules", swarm_rules)):
        assert _of(family) == set(rules.RULE_TEXTS)
        for code, text in rules.RULE_TEXTS.items():
            assert PAGES[code].summary.lower() == f"{text.lower()}.", code


def test_every_format_of_an_import_has_a_page() -> None:
    """What is checked of a file stands under the name of its format."""
    assert _of("record-rules") == set(FORMATS)


def test_every_family_is_a_file_and_every_file_a_family() -> None:
    """Nothing in the folder is left out, no code stands twice, and every page is more than a heading."""
    folder = ROOT / "engine" / "app" / "data" / "pages"
    assert {path.stem for path in folder.iterdir()} == set(explain.FAMILIES)
    for page in PAGES.values():
        assert all(len(part) >= 3 for part in (page.summary, page.when, page.why, page.fix, page.example)), page.code
        assert all(part[-1] in ".`:}])" or part[-1].isalnum() for part in page.to_json().values()), page.code


def test_the_document_of_errors_is_fresh() -> None:
    """``engine/ERRORS.md`` holds the same pages; after a change: ``make docs``."""
    text = docs.ERRORS.read_text(encoding="utf-8")
    assert text == explain.render(), "run 'make docs' and commit engine/ERRORS.md"
    anchors = set(re.findall(r"\]\(#([\w-]+)\)", text))
    headings = {re.sub(r"[^\w-]", "", code) for code in re.findall(r"^### `([\w.-]+)`$", text, re.MULTILINE)}
    assert anchors == headings and len(anchors) == len(PAGES)


def test_a_page_is_shown_for_people_and_for_programs(cli: Cli) -> None:
    """``explain CODE`` prints all four parts; with --json as an object; without a code every page."""
    shown = cli("explain", "broken_link")
    assert shown.code == 0 and shown.err == ""
    assert all(f"\n{part}. " in shown.out for part in explain.PARTS)
    assert cli("explain", "broken_link", "--json").json == PAGES["broken_link"].to_json()
    assert [page["code"] for page in cli("explain", "--json").json] == list(PAGES)
    assert all(f"\n{code} " in cli("explain").out for code in ("conflict", "head_link", "parent.known", "task-graph"))


def test_an_unknown_code_names_those_that_look_like_it(cli: Cli) -> None:
    """A code that is not there is not_found, exit code 2, and the hint has the nearest."""
    answer = cli("explain", "broken_links", "--json")
    assert answer.code == 2 and answer.error["code"] == "not_found" and "broken_link" in answer.error["hint"]
    assert "refold explain" in cli("explain", "zzz", "--json").error["hint"]


def test_an_error_points_to_its_page(cli: Cli) -> None:
    """What goes wrong on the command line says for people where more is said."""
    shown = cli("runs")
    assert shown.code == 3 and shown.err.endswith("more: refold explain not_found\n")
