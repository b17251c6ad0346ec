"""Recordings of the kernel, followed: after every step our table is the recorded one, from anywhere."""

from __future__ import annotations

import json

import pytest

from engine.adapters.kernel_recording import detect, read, recorded_table, steps
from engine.core.errors import ImportRefused
from projections.tasks import validate_table
from tests.adapters.recording_harness import (
    ALL,
    FOLLOWED,
    NOTED,
    REFUSED,
    RUNS,
    Followed,
    edited,
    folded,
    follow,
    restored,
)


@pytest.mark.parametrize("name", FOLLOWED)
def test_after_every_step_the_table_is_the_recorded_one(name):
    """Each step leaves exactly the recorded rows, under the deliberate differences; hardly any needs a note."""
    recording = ALL[name]
    followed = Followed()
    for step in steps(recording):
        followed.take(step)
        ours = recorded_table.comparable(followed.rows)
        assert ours == recorded_table.expected(recording["task_tables"][step.index]), step.index
        assert len(set(recorded_table.digests(followed.rows, recording, step.index))) == 1
        assert bool(step.notes) is (step.index == NOTED.get(name))
    assert step.index == len(recording["decoded_inputs"]) - 1


@pytest.mark.parametrize("name", sorted(RUNS))
def test_every_prefix_is_a_valid_table(name):
    """After every event of a recording, inside a step as well, the table breaks no rule."""
    events = [wire for group in follow(RUNS[name]).groups for wire in group[5]]
    for cut in range(len(events) + 1):
        state = folded([[0, None, None, None, None, events[:cut]]])
        assert validate_table(state.parts["tasks"].rows().to_json()) == []


@pytest.mark.parametrize("name", FOLLOWED)
def test_following_goes_on_from_any_checkpoint(name):
    """Cut after any step, from a fold or from a checkpoint, the rest gives the same bytes and the same events."""
    recorded = list(steps(ALL[name]))
    whole = follow(ALL[name])
    for cut in range(len(recorded) + 1):
        for state in (lambda run: folded(run.groups), lambda run: restored(run.state)):
            run = Followed()
            for step in recorded[:cut]:
                run.take(step)
            run.state = state(run)
            for step in recorded[cut:]:
                run.take(step)
            assert run.state.bytes() == whole.state.bytes()
            assert [group[5] for group in run.groups] == [group[5] for group in whole.groups]


@pytest.mark.parametrize("name", sorted(RUNS))
def test_following_reads_inputs_and_answers_only(name):
    """The facts are the same without the recorded tables, the terminal and the scenario, and with nonsense in them."""
    bare = {key: RUNS[name][key] for key in ("decoded_inputs", "planned_steps")}
    nonsense = {**RUNS[name], "task_tables": [None], "terminal": 5}
    assert list(steps(bare)) == list(steps(nonsense)) == list(steps(RUNS[name]))


def usage_of(recording):
    """The usage reports of a recording, by task: tokens and turns."""
    used = {}
    for given, answer in zip(recording["decoded_inputs"], recording["planned_steps"], strict=True):
        event = given["input"].get("event", {})
        reports = [(event.get("task_id"), event.get("result", {}).get("usage"))]
        reports.append(("root", answer["disposition"].get("terminal", {}).get("usage")))
        for task, usage in reports:
            if usage:
                tokens = int(usage.get("input_tokens", "0")) + int(usage.get("output_tokens", "0"))
                before = used.get(task, (0, 0))
                used[task] = (before[0] + tokens, before[1] + usage.get("turns", 0))
    return used


@pytest.mark.parametrize("name", FOLLOWED)
def test_usage_is_the_sum_of_the_reports(name):
    """Each row carries what the recording reports of that task, the root what the terminal says; nothing twice."""
    used = usage_of(ALL[name])
    for row in follow(ALL[name]).rows:
        assert (row.tokens_used, row.turns_used) == used.get(row.task_id, (0, 0))


def test_usage_of_a_workflow_and_of_an_agent():
    """Five children of three tokens and a turn each; an agent's own eight tokens and one turn."""
    rows = {row.task_id: row for row in follow(RUNS["wf_quota"]).rows}
    assert [(row.tokens_used, row.turns_used) for row in rows.values()] == [(0, 0)] + [(3, 1)] * 5
    (root,) = follow(RUNS["agent_tools"]).rows
    assert (root.tokens_used, root.turns_used) == (8, 1)


def test_a_wait_shrinks_with_its_children_and_ends_with_the_last():
    """waiting_on drops a child as it finishes; the finish of the last one lets the root run in the same event."""
    followed = Followed()
    waits = []
    for step in steps(RUNS["wf_mixed"]):
        followed.take(step)
        root = followed.rows[0]
        waits.append((root.lifecycle, list(root.waiting_on)))
    assert waits == [
        ("ready", []),
        ("suspended", ["wf-node0", "wf-node1"]),
        ("suspended", ["wf-node0", "wf-node1"]),
        ("suspended", ["wf-node1", "wf-node2"]),
        ("suspended", ["wf-node1", "wf-node2"]),
        ("suspended", ["wf-node2"]),
        ("done", []),
    ]
    names = [name for name, _ in list(steps(RUNS["wf_mixed"]))[-1].facts]
    assert names == ["task.finished", "task.finished"]


def test_a_cancelled_child_says_user_abort_on_its_row():
    """A child that reports it was cancelled is user_abort here and keeps its join result; the kernel says error."""
    recording = ALL["child_statuses"]
    row = {row.task_id: row for row in follow(recording).rows}["wf-node0"]
    assert (row.termination, row.process.join_result["result"]["termination"]) == ("user_abort", "user_abort")
    recorded = {row["task_id"]: row for row in recording["task_tables"][-1]}["wf-node0"]
    assert recorded["termination"] == "error"


def test_a_failed_workflow_leaves_its_root_completed():
    """An importer keeps what the recording says, here where the workflow failed and the kernel's root did not."""
    assert RUNS["wf_mixed"]["terminal"]["outcome"]["status"] == "failed"
    assert follow(RUNS["wf_mixed"]).rows[0].termination == "completed"


def test_the_roots_own_result_is_kept():
    """How the operation ended is in the root's finish: the agent's message, the workflow's outcome, the failure."""

    def result(name):
        return list(steps(RUNS[name]))[-1].facts[-1][1]["result"]

    assert result("agent_text")["final_message"] == {"role": "assistant", "content": "hello"}
    assert result("wf_mixed")["outcome"]["failed_nodes"] == ["b", "d"]
    assert result("provider_fail")["failure"]["code"] == "host_effect_failed"


def test_cancelling_the_operation_cancels_its_children_first():
    """A cancelled operation ends every live child as user_abort because of the root, then the root."""
    ends = list(steps(ALL["cancel_running"]))[-1].facts
    assert [(name, data["task_id"], data["termination"], data.get("because")) for name, data in ends] == [
        ("task.finished", "wf-node2", "user_abort", "root"),
        ("task.finished", "wf-node3", "user_abort", "root"),
        ("task.finished", "root", "user_abort", None),
    ]


def test_an_operation_that_ends_over_live_children_says_so():
    """Where the kernel leaves children running under a finished root, they are cancelled, and the step notes it."""
    name = "ends_over_children"
    *_, last = steps(ALL[name])
    assert len(last.notes) == 1 and "wf-node0" in last.notes[0]
    rows = follow(ALL[name]).rows
    assert validate_table(rows.to_json()) == []
    assert {row.lifecycle for row in rows} == {"done"}
    assert validate_table(ALL[name]["task_tables"][-1]) != []


def waits(name):
    """What the root waits on after each step of a recording, as it is recorded and as it is here."""
    followed = Followed()
    for step in steps(ALL[name]):
        followed.take(step)
        recorded = recorded_table.expected(ALL[name]["task_tables"][step.index])[0]
        yield recorded["waiting_on"], list(followed.rows[0].waiting_on)


@pytest.mark.parametrize(("name", "step", "waiting"), [
    ("launches_out_of_order", 4, ["wf-node0", "wf-node2", "wf-node3", "wf-node4"]),
    ("launch_left_out", 4, ["wf-node0", "wf-node2"]),
    ("spawn_over_approval", 6, ["wf-node2"]),
])  # fmt: skip
def test_a_join_begins_with_the_children_the_kernel_waits_for(name, step, waiting):
    """Out of running with every live child, in the order they were spawned, however and whether their launches were
    answered; out of an approval with the new ones alone."""
    assert list(waits(name))[step] == (waiting, waiting)


def test_a_launch_answered_after_its_workflow_ended_does_not_end_the_root():
    """The kernel ends the root over such an answer, goes on, and has it run again. Here it goes on, and a note says
    so; the table is the recorded one again at the end."""
    recording = ALL["late_launch"]
    tables = [recorded_table.expected(table)[0]["lifecycle"] for table in recording["task_tables"]]
    followed = Followed()
    ours, notes = [], []
    for step in steps(recording):
        followed.take(step)
        ours.append(followed.rows[0].lifecycle)
        notes += [step.index for _ in step.notes]
    assert (tables[3:], ours[3:], notes) == (["running", "done", "done"], ["running", "running", "done"], [4])
    assert len(set(recorded_table.digests(followed.rows, recording))) == 1


@pytest.mark.parametrize(("name", "how"), [("approval_ok", "approved"), ("approval_denied", "denied")])
def test_an_approval_ends_when_the_kernel_goes_on(name, how):
    """An answer that brings no effect about leaves the root waiting, as the kernel leaves it; the wait ends with that
    answer when the root goes on, and without a note."""
    recording = edited(name)
    following = recording["planned_steps"][3]["disposition"].pop("effects")
    seen = dict(enumerate(steps({key: recording[key][:4] for key in ("decoded_inputs", "planned_steps")})))
    assert (seen[3].facts, seen[3].notes) == ((), ())

    control = {"kind": "host_control", "command": {"kind": "update_task", "update": {"progress": "p"}}}
    recording["decoded_inputs"].insert(4, {"input_id": "in-x", "observed_at_ms": "1700000004500", "input": control})
    for effect in following:
        effect["causation_input_id"] = "in-x"
        effect["effect_id"] = effect["effect_id"].replace("step:3", "step:4")
    recording["planned_steps"].insert(4, {"disposition": {"kind": "effects", "effects": following}})
    cut = {key: recording[key][:5] for key in ("decoded_inputs", "planned_steps")}
    *_, last = steps(cut)
    ((event, data),) = last.facts
    asked = f"op-{name}:step:2:effect:0"
    assert (event, data["how"], data["awaited"], last.notes) == ("task.wait_ended", how, asked, ())
    assert follow(cut).rows[0].lifecycle == "running"


@pytest.mark.parametrize(("name", "step", "path"), [
    ("task_id_twice", 5, "planned_steps[5].disposition.effects[0].effect.tasks[0].task_id"),
    ("runs_on_from_join", 6, "planned_steps[6].disposition.effects[0].effect"),
])  # fmt: skip
def test_what_cannot_be_a_valid_table_is_refused_by_name(name, step, path):
    """A task id spawned twice and a root that leaves a join early are refused with step and path."""
    assert name in REFUSED
    with pytest.raises(ImportRefused) as caught:
        list(steps(ALL[name]))
    (violation,) = caught.value.violations
    assert (violation["step"], violation["path"]) == (step, path)
    assert f"step {step}: " in caught.value.message


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_step_says_what_led_to_it(name):
    """Each step carries its input's id and time, the same at every reading, and one actor."""
    try:
        recorded = list(steps(ALL[name]))
    except ImportRefused:
        assert name in REFUSED
        return
    inputs = ALL[name]["decoded_inputs"]
    assert [(step.index, step.input_id, step.at_ms) for step in recorded] == [
        (index, given["input_id"], int(given["observed_at_ms"])) for index, given in enumerate(inputs)
    ]
    assert {step.actor for step in recorded} == {"deepstrike"}


def test_recordings_are_known_by_their_keys(tmp_path):
    """detect takes every recording and nothing else; read gives it back from a file and from bytes."""
    for name, recording in RUNS.items():
        assert detect(recording)
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(recording))
        assert read(path) == read(path.read_bytes()) == recording
    for other in (None, [], {}, "x", {"decoded_inputs": []}, {"decoded_inputs": {}, "planned_steps": []}):
        assert not detect(other)
