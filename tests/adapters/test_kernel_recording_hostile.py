"""Recordings that were changed, cut, doubled or made up: a typed refusal, or no change; never a crash."""

from __future__ import annotations

import copy
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.kernel_recording import read, steps
from engine.core.errors import EngineError, ImportRefused
from projections.tasks import validate_table
from tests.adapters.recording_harness import FOLLOWED, RUNS, Followed, edited, follow

LISTS = ("decoded_inputs", "planned_steps")
NAMES = sorted(RUNS)


def outcome(recording):
    """The state's bytes after following, and the error that stopped it."""
    followed = Followed()
    try:
        for step in steps(recording):
            before = followed.state.bytes()
            try:
                followed.take(step)
            except EngineError:
                assert followed.state.bytes() == before
                raise
            assert validate_table(followed.rows.to_json()) == []
    except EngineError as error:
        assert error.message
        return followed.state.bytes(), error
    return followed.state.bytes(), None


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_repeated_step_changes_nothing(name):
    """Any step recorded twice, at once or later, adds no fact and moves no byte."""
    whole = follow(edited(name)).state.bytes()
    count = len(edited(name)["decoded_inputs"])
    for index in range(count):
        for place in {index + 1, count}:
            recording = edited(name)
            for key in LISTS:
                recording[key].insert(place, recording[key][index])
            assert list(steps(recording))[place].facts == ()
            assert outcome(recording) == (whole, None)


@pytest.mark.parametrize("name", NAMES)
def test_an_input_that_was_not_taken_changes_nothing(name):
    """A rejected, aborted or replayed input between any two steps adds nothing, and may come again and be taken."""
    whole = follow(edited(name)).state.bytes()
    for index in range(len(RUNS[name]["decoded_inputs"])):
        for answer in (None, {"disposition": {"kind": "rejected", "code": "x"}}, {"status": "aborted"}):
            recording = edited(name)
            recording["decoded_inputs"].insert(index, recording["decoded_inputs"][index])
            recording["planned_steps"].insert(index, answer)
            assert outcome(recording) == (whole, None)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_input_id_with_other_content_is_refused(name):
    """A second input under a known id that says something else is refused at its id."""
    recording = edited(name)
    other = copy.deepcopy(recording["decoded_inputs"][-1])
    other["observed_at_ms"] = "1"
    recording["decoded_inputs"].append(other)
    recording["planned_steps"].append(recording["planned_steps"][-1])
    _, error = outcome(recording)
    assert isinstance(error, ImportRefused)
    assert error.violations[0]["path"] == f"decoded_inputs[{len(recording['decoded_inputs']) - 1}].input_id"


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_step_is_refused_or_leaves_a_valid_table(name):
    """Without any one of its steps but the last a recording is refused, by step and path; without the last it is a
    prefix."""
    count = len(RUNS[name]["decoded_inputs"])
    for index in range(count):
        recording = edited(name)
        for key in LISTS:
            del recording[key][index]
        _, error = outcome(recording)
        shrinks = index == count - 1 or silent(name, index)
        assert (error is None) is shrinks, (index, error)
        if error is not None:
            assert error.violations[0]["path"] and error.violations[0]["step"] is not None


def silent(name, index):
    """Whether no later answer numbers an effect, so that nothing after this step depends on its place."""
    later = RUNS[name]["planned_steps"][index + 1 :]
    resolved = {given["input"].get("effect_id") for given in RUNS[name]["decoded_inputs"][index + 1 :]}
    mine = {effect["effect_id"] for effect in RUNS[name]["planned_steps"][index]["disposition"].get("effects", [])}
    return index > 1 and not mine & resolved and not any(answer["disposition"].get("effects") for answer in later)


@pytest.mark.parametrize("name", NAMES)
def test_steps_in_another_order_are_refused(name):
    """Any two neighbouring steps swapped are refused, or neither depends on the other: then the table is the same."""
    whole = follow(edited(name)).rows
    for index in range(len(RUNS[name]["decoded_inputs"]) - 1):
        recording = edited(name)
        for key in LISTS:
            items = recording[key]
            items[index], items[index + 1] = items[index + 1], items[index]
        _, error = outcome(recording)
        if error is None:
            assert follow(recording).rows == whole
        else:
            assert error.violations[0]["path"] and error.violations[0]["step"] is not None


KINDS = [
    (1, lambda r: r["decoded_inputs"][1]["input"].update(kind="reboot"), "decoded_inputs[1].input"),
    (1, lambda r: r["decoded_inputs"][1]["input"]["entry"].update(kind="swarm"), "decoded_inputs[1].input.entry.kind"),
    (1, lambda r: r["planned_steps"][1]["disposition"].update(kind="maybe"), "planned_steps[1].disposition.kind"),
    (2, lambda r: r["decoded_inputs"][2]["input"].update(kind="split_tasks", tasks=[]), "decoded_inputs[2].input"),
    (2, lambda r: r["decoded_inputs"][2]["input"]["outcome"].update(status="perhaps"),
     "decoded_inputs[2].input.outcome.status"),
    (2, lambda r: r["decoded_inputs"][2]["input"]["outcome"]["result"].update(kind="tools"),
     "decoded_inputs[2].input.outcome.result.kind"),
    (2, lambda r: r["decoded_inputs"][2]["input"]["outcome"]["result"]["attempts"][0]["outcome"].update(status="late"),
     "decoded_inputs[2].input.outcome.result.attempts[0].outcome.status"),
    (2, lambda r: r["decoded_inputs"][2]["input"]["outcome"]["result"]["attempts"][0].update(attempt_id="other"),
     "decoded_inputs[2].input.outcome.result.attempts[0].attempt_id"),
    (2, lambda r: r["decoded_inputs"][2]["input"]["outcome"]["result"]["attempts"][0].update(task_id="other"),
     "decoded_inputs[2].input.outcome.result.attempts[0].task_id"),
    (2, lambda r: r["decoded_inputs"][2]["input"].update(effect_id="other"), "decoded_inputs[2].input.effect_id"),
    (3, lambda r: r["decoded_inputs"][3]["input"]["event"].update(kind="task_moved"), "decoded_inputs[3].input.event"),
    (3, lambda r: r["decoded_inputs"][3]["input"]["event"].update(task_id="x"),
     "decoded_inputs[3].input.event.task_id"),
    (3, lambda r: r["decoded_inputs"][3]["input"]["event"].update(attempt_id="wf-node0:attempt:2"),
     "decoded_inputs[3].input.event.attempt_id"),
    (3, lambda r: r["decoded_inputs"][3]["input"]["event"]["result"].update(status="paused"),
     "decoded_inputs[3].input.event.result.status"),
    (3, lambda r: r["decoded_inputs"][3]["input"]["event"]["result"].update(usage={"output_tokens": "-1"}),
     "decoded_inputs[3].input.event.result.usage.output_tokens"),
    (3, lambda r: r["decoded_inputs"][3]["input"]["event"]["result"].update(usage={"output_tokens": "007"}),
     "decoded_inputs[3].input.event.result.usage.output_tokens"),
    (3, lambda r: r["decoded_inputs"][3]["input"]["event"]["result"].update(usage={"output_tokens": str(2**64)}),
     "decoded_inputs[3].input.event.result.usage.output_tokens"),
    (3, lambda r: r["decoded_inputs"][3]["input"]["event"]["result"].update(usage={"turns": True}),
     "decoded_inputs[3].input.event.result.usage.turns"),
    (3, lambda r: r["planned_steps"][3]["disposition"]["effects"][0].update(causation_input_id="in-9"),
     "planned_steps[3].disposition.effects[0].causation_input_id"),
    (3, lambda r: r["planned_steps"][3]["disposition"]["effects"][0]["effect"].update(kind="merge_tasks"),
     "planned_steps[3].disposition.effects[0].effect"),
    (3, lambda r: r["planned_steps"][3]["disposition"]["effects"][0]["effect"]["tasks"][0].update(task_id="wf-node0"),
     "planned_steps[3].disposition.effects[0].effect.tasks[0].task_id"),
    (3, lambda r: r["planned_steps"][3]["disposition"]["effects"][0]["effect"]["tasks"][0].update(task_id="root"),
     "planned_steps[3].disposition.effects[0].effect.tasks[0].task_id"),
    (6, lambda r: r["planned_steps"][6]["disposition"]["terminal"].update(kind="vanished"),
     "planned_steps[6].disposition.terminal.kind"),
    (0, lambda r: r["decoded_inputs"][0].update(observed_at_ms="soon"), "decoded_inputs[0].observed_at_ms"),
    (0, lambda r: r["decoded_inputs"][0].update(input_id=""), "decoded_inputs[0].input_id"),
    (0, lambda r: r["decoded_inputs"][0].pop("input"), "decoded_inputs[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "change", "path"), KINDS)
def test_an_unknown_or_wrong_thing_is_refused_with_step_and_path(step, change, path):
    """What could touch the task table and is not known, or names what is not there, is refused where it stands."""
    recording = edited("wf_mixed")
    change(recording)
    _, error = outcome(recording)
    assert isinstance(error, ImportRefused)
    assert (error.violations[0]["step"], error.violations[0]["path"]) == (step, path)


def test_an_agent_that_ends_in_an_unknown_way_is_refused():
    """A termination that is none of the task table's is refused at its place."""
    recording = edited("agent_text")
    recording["planned_steps"][2]["disposition"]["terminal"]["result"]["termination"] = "bored"
    _, error = outcome(recording)
    assert error.violations[0]["path"] == "planned_steps[2].disposition.terminal.result.termination"


@pytest.mark.parametrize("extra", [
    {"kind": "host_control", "command": {"kind": "update_task", "update": {"progress": "p"}}},
    {"kind": "deliver_external_event", "event": {"kind": "deliver_signal", "signal": {"target": {"task_id": "root"}}}},
    {"kind": "deliver_external_event", "event": {"kind": "weather_changed", "to": ["rain"]}},
    {"kind": "tune_model", "temperature": 0.5},
])  # fmt: skip
def test_what_names_no_task_changes_no_task(extra):
    """Controls and signals, and inputs of unknown kind that name no task, are steps without facts."""
    recording = edited("wf_mixed")
    recording["decoded_inputs"].append({"input_id": "in-x", "observed_at_ms": "1700000009000", "input": extra})
    recording["planned_steps"].append({"disposition": {"kind": "effects"}})
    for key in LISTS:
        recording[key][6], recording[key][7] = recording[key][7], recording[key][6]
    assert list(steps(recording))[6].facts == ()
    assert outcome(recording)[1] is None


def test_an_effect_of_unknown_kind_that_names_no_task_changes_no_task():
    """An unknown effect and its result pass when neither names a task."""
    recording = edited("agent_text")
    effect = {"kind": "measure_weather", "where": "here"}
    recording["planned_steps"][1]["disposition"]["effects"].append(
        {"effect_id": "op-agent_text:step:1:effect:1", "causation_input_id": "in-2", "effect": effect}
    )
    result = {"kind": "resolve_effect", "effect_id": "op-agent_text:step:1:effect:1",
              "outcome": {"status": "succeeded", "result": {"kind": "weather", "rain": True}}}  # fmt: skip
    recording["decoded_inputs"].insert(2, {"input_id": "in-x", "observed_at_ms": "1700000002500", "input": result})
    recording["planned_steps"].insert(2, {"disposition": {"kind": "effects"}})
    assert outcome(recording) == (outcome(edited("agent_text"))[0], None)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"\xff\xfe", b"[]", b"null", b'"x"', b"NaN", b"9" * 6000, b"[" * 200_000, b'{"decoded_inputs": []}',
        b'{"decoded_inputs": [1], "planned_steps": []}', b'{"decoded_inputs": {}, "planned_steps": {}}',
        b'{"decoded_inputs": [], "decoded_inputs": [], "planned_steps": []}',
    ],
)  # fmt: skip
def test_bytes_that_are_no_recording_are_refused(raw):
    """Not JSON, not one value, a key twice, nested without end, or not a recording: ImportRefused."""
    with pytest.raises(ImportRefused):
        read(raw)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    """A missing file and a folder are typed refusals."""
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(ImportRefused):
            read(path)


def test_a_file_over_the_limit_is_refused_unread(tmp_path, monkeypatch):
    """A file larger than IMPORT_BYTES_MAX is refused by the limit's name."""
    monkeypatch.setattr("engine.adapters.kernel_recording.reading.IMPORT_BYTES_MAX", 10)
    path = tmp_path / "large.json"
    path.write_text(json.dumps(RUNS["agent_text"]))
    with pytest.raises(ImportRefused, match="IMPORT_BYTES_MAX"):
        read(path)


def deep(levels):
    value = 0
    for _ in range(levels):
        value = [value]
    return value


def test_values_that_nest_without_end_are_typed_refusals():
    """A value deeper than any JSON reader takes is refused, wherever it stands."""
    recording = edited("agent_text")
    recording["planned_steps"][2]["disposition"]["terminal"]["result"]["final_message"] = deep(100_000)
    assert outcome(recording)[1] is not None
    recording = edited("agent_text")
    recording["decoded_inputs"][1]["input"] = {"kind": "odd", "x": deep(100_000)}
    assert isinstance(outcome(recording)[1], ImportRefused)


def places(value, path=()):
    """Every place inside a JSON value."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


JUNK = st.sampled_from([None, True, -1, 2**70, 1.5, "", "x", "root", "wf-node0", [], [None], {}, {"kind": "x"}, [[]]])


@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32), junk=JUNK, drop=st.booleans())
def test_any_single_change_gives_a_valid_table_or_a_typed_refusal(name, seed, junk, drop):
    """Any one value replaced by junk, or left out, never crashes and never leaves an invalid table."""
    recording = {key: edited(name)[key] for key in LISTS}
    chosen = random.Random(seed)
    path = chosen.choice([place for place in places(recording) if len(place) > 1 and "config" not in place])
    inner = recording
    for step in path[:-1]:
        inner = inner[step]
    if drop:
        del inner[path[-1]]
    else:
        inner[path[-1]] = junk
    state, error = outcome(recording)
    assert state and (error is None or error.code)
