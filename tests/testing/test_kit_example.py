"""The example of the kit's README: quoted as it is, its bug found and shrunk, its journal opened by 'refold'."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import engine.testing
from engine.app.cli import refold
from engine.testing import ReplayDiffers, restore_machine
from tests.testing import example_counter

README = Path(engine.testing.__file__).parent / "README.md"


def test_the_readme_quotes_the_example_as_it_is_run() -> None:
    """The README's code is the file that these tests run, without its docstring."""
    source = Path(example_counter.__file__).read_text(encoding="utf-8").partition("\n\n")[2]
    (quoted,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert quoted == source


def test_the_bug_of_the_example_is_found_and_shrunk_to_one_event(
    quiet: settings, failures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kit shrinks the hidden state to one command given twice, and 'refold import' opens the journal it leaves."""
    shrinking = settings(quiet, phases=[Phase.generate, Phase.shrink], stateful_step_count=10)
    with pytest.raises(ReplayDiffers, match=r"asked for Add.* answer differently: 1 events against 0") as caught:
        run_state_machine_as_test(restore_machine(example_counter.COUNTERS), settings=shrinking)
    path = caught.value.journal
    assert path == failures / "counters.jsonl"
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(event["type"], event["data"]) for event in events] == [("counter.added/1", {"counter": "a", "by": 0})]
    (note,) = [note for note in caught.value.__notes__ if str(path) in note]
    assert note.endswith(f"REFOLD_MODEL=tests.testing.example_counter:COUNTERS refold import {path}")

    monkeypatch.setenv("REFOLD_MODEL", "tests.testing.example_counter:COUNTERS")
    monkeypatch.setenv("REFOLD_STORE", str(tmp_path / "failures.db"))
    assert CliRunner().invoke(refold, ["import", str(path)]).exit_code == 0
    shown = CliRunner().invoke(refold, ["history", "run", "--json"])
    assert shown.exit_code == 0 and "counter.added/1" in shown.output


def test_the_example_without_its_bug_passes(quiet: settings) -> None:
    """What decides is in the state: nothing is found."""

    def decide(counters, command):
        kept = counters.get(command.counter)
        if kept is not None and kept["last"] == command.by:
            return []
        return [(example_counter.ADDED, {"counter": command.counter, "by": command.by})]

    def evolve(counters, event):
        kept = counters.get(event["counter"], {"sum": 0})
        counters[event["counter"]] = {"sum": kept["sum"] + event["by"], "last": event["by"]}

    counters = engine.testing.PlainProjection(
        "counters",
        [example_counter.ADDED],
        initial=dict,
        decide=decide,
        evolve=evolve,
        commands=[example_counter.Add],
    )
    run_state_machine_as_test(restore_machine(counters), settings=settings(quiet, max_examples=10))
