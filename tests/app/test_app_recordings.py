"""Import of recorded kernel runs, through the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from engine import open_store
from engine.adapters.kernel_recording import recorded_table
from engine.app.recordings import recorded_runs
from engine.import_recording import import_recording
from tests.app.conftest import Cli

RECORDED = dict(recorded_runs())
FOLDER = Path(str(files("engine.app"))) / "data" / "kernel-runs"


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_imports_step_by_step(cli: Cli, name: str) -> None:
    """``import --json`` is run, events, position and the position after every step; each step's table is the recorded
    one, now and restored from nothing."""
    file = FOLDER / f"{name}.json"
    answer = cli("import", file, "--format", "kernel-recording", "--run", "r", "--json")
    assert answer.code == 0, answer.err
    recording: Mapping[str, Any] = RECORDED[name]
    shape = answer.json
    assert list(shape) == ["run", "events", "position", "steps"]
    assert shape["run"] == "r" and shape["events"] == shape["position"] == shape["steps"][-1]["position"]
    assert all(list(step) == ["step", "position"] for step in shape["steps"])
    assert [step["step"] for step in shape["steps"]] == list(range(len(recording["planned_steps"])))
    positions = [step["position"] for step in shape["steps"]]
    assert positions == sorted(positions) and positions[0] > 0
    with open_store("refold.db") as store:
        for step in shape["steps"]:
            for start in ("best", "genesis"):
                rows = store.view("r", at=step["position"], start=start).tasks.rows()
                ours, recorded = recorded_table.digests(rows, recording, step["step"])
                assert ours == recorded, (step, start)


def test_where_a_recording_is_not_followed_the_step_says_so(cli: Cli) -> None:
    """A step that differs is named on standard error, for people and beside the JSON, whose shape stays as it is."""
    folder = Path(__file__).resolve().parents[2] / "fixtures" / "kernel-runs"
    answer = cli("import", folder / "ends_over_children.json", "--run", "r", "--json")
    assert all(list(step) == ["step", "position"] for step in answer.json["steps"])
    last = len(answer.json["steps"]) - 1
    (told,) = answer.err.splitlines()
    assert told.startswith(f"step {last}: ") and "wf-node0" in told
    assert cli("import", folder / "ends_over_children.json", "--run", "r").err == answer.err
    assert cli("import", folder / "launch_left_out.json", "--json").err == "", "nothing is said of what is followed"


def test_importing_a_recording_twice_adds_nothing(cli: Cli) -> None:
    """The second time the steps are where they were, no event is added, and the state is the same."""
    first = cli("import", FOLDER / "wf_quota.json", "--json").json
    digest = cli("digest", "wf_quota").out
    again = cli("import", FOLDER / "wf_quota.json", "--json").json
    assert first["run"] == "wf_quota", "the scenario names the run when nobody else does"
    assert again == {**first, "events": 0}
    assert cli("digest", "wf_quota").out == digest
    assert "nothing added" in cli("import", FOLDER / "wf_quota.json").out


@pytest.mark.parametrize("done", range(1, 11))
def test_a_half_imported_recording_goes_on_where_it_stopped(cli: Cli, done: int) -> None:
    """After an import that ended anywhere, importing again gives the steps, bytes and digest of an undisturbed one."""
    recording = RECORDED["wf_quota"]
    half = {
        **recording,
        "decoded_inputs": recording["decoded_inputs"][:done],
        "planned_steps": recording["planned_steps"][:done],
    }
    with open_store("refold.db") as store, open_store("undisturbed.db") as other:
        import_recording(store.run("r"), half)
        import_recording(other.run("r"), recording)
        link, digest = other.run("r").link(), other.run("r").digest()
    whole = cli("import", FOLDER / "wf_quota.json", "--run", "r", "--json").json
    undisturbed = cli("import", FOLDER / "wf_quota.json", "--run", "r", "--store", "undisturbed.db", "--json").json
    assert whole["steps"] == undisturbed["steps"]
    with open_store("refold.db") as store:
        run = store.run("r")
        assert (run.link(), run.digest()) == (link, digest)


def test_another_recording_under_the_same_run_is_refused(cli: Cli) -> None:
    """A run that holds one recording takes no other; nothing of it is added."""
    assert cli("import", FOLDER / "wf_quota.json", "--run", "r").code == 0
    before = cli("digest", "r").out
    answer = cli("import", FOLDER / "wf_mixed.json", "--run", "r", "--json")
    assert answer.code == 2 and answer.error["code"] in ("command_mismatch", "refused")
    assert cli("digest", "r").out == before


def test_the_recorded_tables_are_never_read(cli: Cli, tmp_path: Path) -> None:
    """Without its task_tables, scenario and terminal a recording gives the same run, once it is named."""
    bare = {key: RECORDED["preempt"][key] for key in ("decoded_inputs", "planned_steps")}
    Path("bare.json").write_text(json.dumps(bare))
    answer = cli("import", "bare.json", "--json")
    assert answer.code == 2 and "--run" in answer.error["hint"]
    assert cli("import", "bare.json", "--run", "p").code == 0
    assert cli("import", FOLDER / "preempt.json", "--run", "p", "--store", "o.db").code == 0
    assert cli("digest", "p").out == cli("digest", "p", "--store", "o.db").out


def test_a_recording_that_breaks_a_rule_leaves_no_step_behind(cli: Cli) -> None:
    """A step in the middle that cannot follow is named, and the steps before it are not imported either."""
    recording = json.loads((FOLDER / "wf_quota.json").read_text())
    for half in ("decoded_inputs", "planned_steps"):
        del recording[half][4]
    Path("cut.json").write_text(json.dumps(recording))
    answer = cli("import", "cut.json", "--run", "r", "--json")
    assert answer.code == 2 and answer.error["code"] == "import_refused"
    assert "step " in answer.error["message"] and answer.error["violations"]
    assert cli("runs", "--json").json == []


@pytest.mark.parametrize(
    "content",
    [
        {"decoded_inputs": [], "planned_steps": [{}]},
        {"decoded_inputs": [1], "planned_steps": [2]},
        {"decoded_inputs": None, "planned_steps": None},
        {"decoded_inputs": [{"input_id": "in-1"}], "planned_steps": [{}]},
        {"decoded_inputs": [{"input_id": "", "observed_at_ms": "1", "input": {"kind": "x"}}], "planned_steps": [{}]},
        {"decoded_inputs": [{"input_id": "i", "observed_at_ms": "-1", "input": {}}], "planned_steps": [{}]},
    ],
)
def test_a_file_that_only_looks_like_a_recording_is_refused(cli: Cli, content: Any) -> None:
    """Whatever is in the place of inputs and answers, the answer is import_refused, never a traceback."""
    Path("odd.json").write_text(json.dumps({**content, "scenario": "odd"}))
    answer = cli("import", "odd.json", "--json")
    assert answer.code == 2 and answer.error["code"] == "import_refused", answer
