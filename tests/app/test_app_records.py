"""Records of other runtimes, in and out: what comes in goes out equal, what is malformed is named, and nothing is lost
in silence."""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import open_store
from engine.core.errors import ImportRefused, InvalidValue
from engine.import_record import import_record, rest_of_graph, rest_of_swarm
from projections.contexts import ContextState
from projections.graph.validate import read_graph
from tests.app.conftest import Cli
from tests.projections.contexts.contexts_strategies import any_messages, extras, texts
from tests.projections.swarm.swarm_strategies import situations

CONTEXT: dict[str, Any] = {
    "kind": "conversation",
    "version": 4,
    "summary": {"covers_messages": 6, "updated": 90, "goals": ["ship it"], "narrative": "so far so good", "mood": "x"},
    "messages": [
        {"role": "user", "text": "please fetch it", "principal": "ada", "ts": 100},
        {"role": "assistant", "tool_calls": [{"id": "c1", "name": "fetch", "arguments": {"url": "u"}}], "ts": 101},
        {"role": "tool", "id": "c1", "name": "fetch", "content": {"ok": True}, "is_error": False, "ts": 102},
        {"role": "assistant", "text": "here it is", "ts": 103, "trace": [1, 2.5, None]},
        {"role": "note", "text": "n", "ts": 104},
    ],
    "skills": [{"name": "git", "hash": "h1", "since": 3}],
    "plan": {
        "goal": "ship it", "next_id": 3, "created": 80, "updated": 95,
        "items": [
            {"id": 1, "title": "build", "status": "done", "updated": 90},
            {"id": 2, "title": "test", "status": "in_progress", "bound": {"task": {"id": "t"}}, "updated": 95},
        ],
    },
    "preflight": {"verdict": "go"},
    "model_window": 8000,
    "principal": "ada",
    "turns": 7,
    "created": 50,
    "updated": 104,
    "from_the_future": {"deep": [1, {"x": None}]},
}  # fmt: skip

SEED = {
    "agent_hint": None, "result": None, "assigned_agent": None, "retry_count": 0, "predicate_rerun_count": 0,
    "failure_strategy": None, "max_retries": None, "execution_mode": "parallel", "verify_predicate": None,
    "predicate_outcome": None, "execution_environment": None, "token_budget_cents": None, "network_scope": None,
    "asset_sensitivity": None,
}  # fmt: skip


def node(number: int, status: str = "pending", depends_on: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    known = {"id": number, "title": f"n{number}", "description": "d", "status": status, "depends_on": list(depends_on)}
    return {**SEED, **known, **more}


RESULT = {"output": "o", "artifacts": ["a"], "duration_ms": 5, "agent_id": None, "agent_def": None}
GRAPH: dict[str, Any] = {
    "id": "plan",
    "goal": "reach it",
    "nodes": [
        node(0, "completed", result=RESULT, shade="blue"),
        node(1, "running", (0,), attempts=[
            {"number": 1, "handle": "h", "agent": "a", "started_ms": 5, "ended_ms": None, "outcome": None,
             "error": None}]),
        node(2, "pending", (1,)),
        node(3, "ready"),
        node(4, "pending", (2, 3), max_retries=2, asset_sensitivity="internal"),
    ],
    "status": "running",
    "default_failure_strategy": "abort",
    "default_max_retries": 3,
    "created_at": 4,
    "finished_at": None,
    "owner": {"team": "x"},
}  # fmt: skip

SWARM: dict[str, Any] = {
    "tick": 9,
    "workers": {
        "0": {"id": 0, "consecutive_failures": 0, "last_action": "look", "last_success": True, "last_output": None,
              "history_len": 4, "has_escalation": False, "phase": "working", "color": "red"},
        "1": {"id": 1, "consecutive_failures": 3, "last_action": "dig", "last_success": False, "last_output": "no",
              "history_len": 5, "has_escalation": True, "phase": "escalated"},
        "2": {"id": 2, "consecutive_failures": 0, "last_action": None, "last_success": None, "last_output": None,
              "history_len": 0, "has_escalation": False, "phase": "done"},
    },
    "success_rate": 0.5,
    "progress": 0.25,
    "escalations": [[1, {"reason": {"consecutive_failures": 3}, "raised_at_tick": 8, "context": None}]],
    "available_actions": None,
    "v2_guidances": [],
    "excluded_actions": ["sleep"],
    "previous_guidances": {"0": {"actions": ["look"], "content": None, "scope": "minimal"}},
    "done_workers": [2],
    "metadata": {"map": {"x": [1, 2]}, "5": 5.5},
    "invented": "later",
}  # fmt: skip

RECORDS: dict[str, dict[str, Any]] = {"context": CONTEXT, "task-graph": GRAPH, "task-context": SWARM}


def given_file(name: str, record: Any) -> Path:
    path = Path(name)
    path.write_text(json.dumps(record))
    return path


def shown(cli: Cli, form: str, *more: object) -> Any:
    """Return the record that a run holds of a format."""
    flag = {"context": "--contexts", "task-graph": "--graphs", "task-context": "--swarm"}[form]
    shape = cli("show", "r", flag, *more, "--json").json
    assert list(shape) == ["run", "position", flag.removeprefix("--")] and shape["run"] == "r"
    return shape[flag.removeprefix("--")]


def without_estimate(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "est_tokens"}


# -- in and out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("form", RECORDS)
def test_a_record_goes_out_as_it_came_in(cli: Cli, form: str, named: bool) -> None:
    """Unknown keys at every level included; the format is found by the content when it is not named."""
    file = given_file("chat.json", RECORDS[form])
    answer = cli("import", file, *(("--format", form) if named else ()), "--run", "r", "--json")
    assert answer.code == 0, answer.err
    assert list(answer.json) == ["run", "events", "position", "format", "id", "lost"]
    ids = {"context": "chat", "task-graph": "plan", "task-context": None}
    assert (answer.json["format"], answer.json["id"], answer.json["lost"]) == (form, ids[form], [])
    assert answer.json["events"] == answer.json["position"] > 0
    if form == "task-context":
        assert shown(cli, form) == SWARM
    else:
        [(name, record)] = shown(cli, form).items()
        assert name == ids[form] and without_estimate(record) == RECORDS[form]
        assert shown(cli, form, "--id", name) == {name: record}
    assert cli("verify", "r").code == 0


@pytest.mark.parametrize("form", RECORDS)
def test_importing_a_record_again_adds_nothing(cli: Cli, form: str) -> None:
    """Also when the run has gone on since, and when the file is written otherwise; another record is refused."""
    file = given_file("chat.json", RECORDS[form])
    first = cli("import", file, "--run", "r", "--json").json
    with open_store("refold.db") as store:
        run = store.run("r")
        if form == "context":
            run.contexts.append("chat", {"role": "user", "text": "more"})
        elif form == "task-graph":
            run.graphs.complete("plan", 1, "done", attempt=1)
        else:
            run.swarm.advance_tick()
        position = run.position
    Path("chat.json").write_text(json.dumps(RECORDS[form], indent=3, sort_keys=True))
    again = cli("import", file, "--run", "r", "--json").json
    assert again == {**first, "events": 0, "position": position}
    assert "nothing added" in cli("import", file, "--run", "r").out
    other = given_file("other.json", {**RECORDS[form], "another": 1})
    more = ("--id", "chat") if form == "context" else ()
    answer = cli("import", other, "--run", "r", *more, "--json")
    assert answer.code == 2 and answer.error["code"] in ("refused", "illegal_transition"), answer
    assert cli("digest", "r", "--json").json["position"] == position


def test_ids_are_given_found_or_asked_for(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation is named by --id, else by its file; a graph is renamed; a swarm has no name; a run has one."""
    file = given_file("chat.json", CONTEXT)
    assert cli("import", file, "--run", "r", "--id", "a/b", "--json").json["id"] == "a/b"
    assert cli("import", file, "--run", "r", "--json").json["id"] == "chat"
    assert list(shown(cli, "context")) == ["a/b", "chat"]
    graph = given_file("g.json", GRAPH)
    assert cli("import", graph, "--run", "r", "--id", "again", "--json").json["id"] == "again"
    assert shown(cli, "task-graph") == {"again": {**GRAPH, "id": "again"}}
    swarm = given_file("s.json", SWARM)
    assert cli("import", swarm, "--run", "r", "--id", "x", "--json").error["code"] == "import_refused"
    nameless = cli("import", file, "--json")
    assert (nameless.code, nameless.error["code"]) == (2, "import_refused") and "--run" in nameless.error["hint"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(CONTEXT).encode())))
    answer = cli("import", "-", "--run", "r", "--json")
    assert answer.error["code"] == "import_refused" and "--id" in answer.error["hint"]
    for bad in ("", "a\nb", "x" * 300):
        assert cli("import", file, "--run", "r", "--id", bad, "--json").error["code"] == "invalid_value"


def test_several_records_live_in_one_run_beside_tasks(cli: Cli) -> None:
    """A record of each kind, each as it came in, at the position of each; people see all of them."""
    positions = {}
    for form, record in RECORDS.items():
        answer = cli("import", given_file("chat.json", record), "--run", "r", "--json").json
        positions[form] = answer["position"]
    assert shown(cli, "task-context") == SWARM and shown(cli, "task-graph") == {"plan": GRAPH}
    assert shown(cli, "task-graph", "--at", positions["context"]) == {}
    assert shown(cli, "task-context", "--at", positions["task-graph"]) is None
    overview = cli("show", "r").out
    assert all(word in overview for word in ("chat", "plan", "reach it", "swarm at tick 9", "escalated"))
    one = cli("show", "r", "--contexts", "--id", "chat").out
    assert "please fetch it" in one and '{"ok":true}' in one and "assistant" in one
    assert "n4" in cli("show", "r", "--graphs", "--id", "plan").out
    worker = cli("show", "r", "--swarm", "--id", 1, "--json").json["swarm"]
    assert list(worker["workers"]) == ["1"] and worker["tick"] == 9 and worker["done_workers"] == []
    assert '{"consecutive_failures":3}' in cli("show", "r", "--swarm", "--id", 1).out


@given(
    st.builds(
        ContextState,
        st.sampled_from(["root", "conversation"]),
        st.integers(0, 2**64 - 1),
        messages=st.lists(any_messages, max_size=4).map(tuple),
        preflight=st.none() | st.dictionaries(texts, st.integers(0, 9), max_size=2),
        model_window=st.integers(0, 2**64 - 1),
        principal=st.none() | texts,
        turns=st.integers(0, 2**64 - 1),
        created=st.integers(0, 2**64 - 1),
        updated=st.integers(0, 2**64 - 1),
        extra=extras,
    )
)
def test_any_conversation_goes_out_as_it_came_in(state: ContextState) -> None:
    """Whatever messages, counters and unknown keys it has."""
    record = state.to_json()
    with open_store("memory:") as store:
        run = store.run("r")
        assert import_record(run, "context", record, id="c").lost == ()
        assert without_estimate(run.contexts.to_record("c")) == without_estimate(record)
        assert import_record(run, "context", record, id="c").events == 0


@given(situations())
def test_any_swarm_goes_out_as_it_came_in(record: dict[str, Any]) -> None:
    """Whatever its workers, escalations, guidances and unknown keys are, with --partial and without."""
    with open_store("memory:") as store:
        taken = import_record(store.run("r"), "task-context", record, partial=True)
        assert taken.lost == () and store.run("r").swarm.context().to_record() == record


# -- what is malformed ------------------------------------------------------------------------------------------------


def spoilt(form: str, spoil: Callable[[Any], None]) -> Any:
    record = copy.deepcopy(RECORDS[form])
    spoil(record)
    return record


def put(*path: Any) -> Callable[[Any], None]:
    """Return a function that puts the last of ``path`` where the others lead."""

    def spoil(record: Any) -> None:
        for step in path[:-2]:
            record = record[step]
        record[path[-2]] = path[-1]

    return spoil


BAD: list[tuple[str, Callable[[Any], None], dict[str, Any]]] = [
    ("context", put("messages", 2, "role", "robot"), {"path": "messages[2].role", "index": 2}),
    ("context", put("messages", 0, "text", 5), {"path": "messages[0].text", "index": 0}),
    ("context", put("messages", 4, None), {"path": "messages[4]", "index": 4}),
    ("context", put("messages", 1, "tool_calls", 0, "id", 1), {"path": "messages[1].tool_calls[0].id", "index": 1}),
    ("context", put("turns", -1), {"path": "turns"}),
    ("context", put("plan", "items", 1, "status", "lost"), {"path": "plan.items[1].status"}),
    ("context", put("skills", 0, "hash", None), {"path": "skills[0].hash"}),
    ("task-graph", put("nodes", 2, "title", 5), {"node": 2, "field": "title"}),
    ("task-graph", put("nodes", 3, "status", "lost"), {"node": 3, "field": "status"}),
    ("task-graph", put("nodes", 2, "x"), {"node": 2, "field": ""}),
    ("task-graph", put("nodes", 1, "attempts", 0, "outcome", "odd"), {"node": 1, "field": "attempts[0].outcome"}),
    ("task-graph", put("nodes", 4, "depends_on", [9]), {"node": 4, "field": "depends_on"}),
    ("task-graph", put("nodes", 3, "depends_on", [3]), {"node": 3, "field": "depends_on"}),
    ("task-context", put("workers", "1", "last_success", "no"), {"path": "workers.1.last_success"}),
    ("task-context", put("workers", "0", "id", 7), {"path": "workers.0.id"}),
    ("task-context", put("escalations", 0, 1, "reason", "bored"), {"path": "escalations[0][1].reason"}),
    ("task-context", put("previous_guidances", "0", "scope", 1), {"path": "previous_guidances.0.scope"}),
]
WHOLE: list[tuple[str, Callable[[Any], None]]] = [
    ("task-graph", put("goal", 7)),
    ("task-graph", put("status", "lost")),
    ("task-graph", put("nodes", {})),
    ("task-graph", put("nodes", [])),
    ("task-graph", put("finished_at", 9)),
    ("task-context", put("tick", "x")),
    ("task-context", put("success_rate", 1.5)),
    ("task-context", put("workers", [])),
    ("task-context", put("done_workers", [2, 2])),
]


def named(violation: dict[str, Any], place: dict[str, Any]) -> bool:
    return all(violation.get(key) == value for key, value in place.items())


@pytest.mark.parametrize(("form", "spoil", "place"), BAD, ids=lambda value: str(value) if type(value) is dict else "")
def test_what_is_malformed_is_named_by_index_and_path(
    cli: Cli, form: str, spoil: Callable[[Any], None], place: dict[str, Any]
) -> None:
    """Without --partial nothing is imported, no run appears; with it the rest is, and the answer names the same."""
    file = given_file("chat.json", spoilt(form, spoil))
    answer = cli("import", file, "--format", form, "--run", "r", "--json")
    assert (answer.code, answer.error["code"], answer.out) == (2, "import_refused", "")
    assert any(named(violation, place) for violation in answer.error["violations"]), answer.error
    assert cli("runs", "--json").json == []
    partly = cli("import", file, "--format", form, "--run", "r", "--partial", "--json")
    assert partly.code == 0, partly.err
    assert any(named(violation, place) for violation in partly.json["lost"])
    for lost in partly.json["lost"]:
        assert json.dumps(lost, ensure_ascii=False) in cli("import", file, "--run", "r", "--partial").err
    causes = {event["cause"] for event in cli("history", "r", "--limit", 1, "--json").json}
    assert causes == {f"partial import, {len(partly.json['lost'])} left out"}
    assert cli("verify", "r").code == 0


def test_every_violation_is_named_at_once(cli: Cli) -> None:
    """Two bad messages and a bad counter: three violations, in JSON and for people."""
    record = spoilt("context", put("messages", 0, {"role": "user"}))
    record["messages"][3] = 7
    record["updated"] = "now"
    file = given_file("chat.json", record)
    answer = cli("import", file, "--run", "r", "--json")
    paths = [violation["path"] for violation in answer.error["violations"]]
    assert sorted(paths) == ["messages[0].text", "messages[3]", "updated"]
    told = cli("import", file, "--run", "r").err
    assert all(f'"path": "{path}"' in told for path in paths) and "--partial" in told + cli("import", "--help").out


def test_a_conversation_keeps_all_but_the_malformed_message(cli: Cli) -> None:
    """With --partial every other message, field and unknown key is as it came."""
    file = given_file("chat.json", spoilt("context", put("messages", 4, {"role": "robot", "text": "x", "ts": 1})))
    assert cli("import", file, "--run", "r", "--partial").code == 0
    expected = {**CONTEXT, "messages": CONTEXT["messages"][:4]}
    assert without_estimate(shown(cli, "context")["chat"]) == expected


def test_a_graph_loses_a_node_with_all_that_depends_on_it(cli: Cli) -> None:
    """Nobody knows whether a dependent may run when what it waits for is not known; the others are numbered anew."""
    file = given_file("plan.json", spoilt("task-graph", put("nodes", 1, "title", None)))
    lost = cli("import", file, "--run", "r", "--partial", "--json").json["lost"]
    assert [(each["node"], each["field"], each["value"]) for each in lost] == [
        (1, "title", None), (2, "depends_on", 1), (4, "depends_on", 2)
    ]  # fmt: skip
    kept = shown(cli, "task-graph")["plan"]
    assert kept == {**GRAPH, "nodes": [GRAPH["nodes"][0], {**GRAPH["nodes"][3], "id": 1}]}


def test_a_swarm_loses_a_worker_with_what_names_it(cli: Cli) -> None:
    """The escalation of a worker that is left out names nobody, and goes too; each is reported at its own place."""
    file = given_file("s.json", spoilt("task-context", put("workers", "1", "history_len", -1)))
    lost = cli("import", file, "--run", "r", "--partial", "--json").json["lost"]
    assert [each["path"] for each in lost] == ["workers.1.history_len", "escalations[0][0]"]
    workers = {key: worker for key, worker in SWARM["workers"].items() if key != "1"}
    assert shown(cli, "task-context") == {**SWARM, "workers": workers, "escalations": []}


@pytest.mark.parametrize(("form", "spoil"), WHOLE)
def test_what_is_wrong_with_the_whole_cannot_be_left_out(cli: Cli, form: str, spoil: Callable[[Any], None]) -> None:
    """A graph without a goal, a swarm without a tick: refused by name, with --partial too."""
    file = given_file("x.json", spoilt(form, spoil))
    for more in ((), ("--partial",)):
        answer = cli("import", file, "--format", form, "--run", "r", *more, "--json")
        assert (answer.code, answer.error["code"]) == (2, "import_refused") and answer.error["violations"], answer
    assert cli("runs", "--json").json == []


@st.composite
def damaged_graphs(draw: st.DrawFn) -> tuple[dict[str, Any], set[int]]:
    """A graph of pending nodes, some of which are malformed; and which."""
    size = draw(st.integers(1, 9))
    nodes: list[Any] = []
    for number in range(size):
        depends_on = draw(st.lists(st.sampled_from(range(number)), unique=True, max_size=2)) if number else []
        nodes.append(node(number, "pending", tuple(depends_on)))
    bad = draw(st.sets(st.integers(0, size - 1)))
    for number in bad:
        nodes[number] = draw(st.sampled_from([None, 5, {}, {**nodes[number], "title": 1}, {**nodes[number], "id": 99}]))
    return {**GRAPH, "status": "created", "nodes": nodes}, bad


@given(damaged_graphs())
def test_what_is_left_of_any_graph_is_a_graph(drawn: tuple[dict[str, Any], set[int]]) -> None:
    """It keeps every rule; what is gone was malformed or depends on what was; every dependency means the same node."""
    record, bad = drawn
    before = copy.deepcopy(record)
    gone = set(bad)
    for number, each in enumerate(record["nodes"]):
        if number not in bad and gone & set(each["depends_on"]):
            gone.add(number)
    if len(gone) == len(record["nodes"]):
        with pytest.raises(ImportRefused) as refused:
            rest_of_graph(record)
        assert {violation["node"] for violation in refused.value.violations} == gone
        return
    rest, lost = rest_of_graph(record)
    assert record == before and {each["node"] for each in lost} == gone
    read_graph(rest)
    kept = [number for number in range(len(before["nodes"])) if number not in gone]
    assert [each["title"] for each in rest["nodes"]] == [f"n{number}" for number in kept]
    for place, number in enumerate(kept):
        assert [kept[other] for other in rest["nodes"][place]["depends_on"]] == before["nodes"][number]["depends_on"]


@given(situations(), st.data())
def test_what_is_left_of_any_swarm_is_a_swarm(record: dict[str, Any], data: st.DataObject) -> None:
    """Whatever entries are spoilt, the rest keeps every rule and the report names each by where it was."""
    spoilt_ = copy.deepcopy(record)
    places = [("workers", key) for key in record["workers"]]
    places += [("previous_guidances", key) for key in record["previous_guidances"]]
    places += [("escalations", index) for index in range(len(record["escalations"]))]
    chosen = data.draw(st.lists(st.sampled_from(places), unique=True)) if places else []
    for name, key in chosen:
        spoilt_[name][key] = 7
    rest, lost = rest_of_swarm(spoilt_)
    assert rest_of_swarm(rest) == (rest, [])
    paths = {each["path"] for each in lost}
    for name, key in chosen:
        assert (f"{name}[{key}]" if name == "escalations" else f"{name}.{key}") in paths
    if not chosen:
        assert (rest, lost) == (record, [])


# -- what a file is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "of no known format"),
        ({"hello": 1}, "of no known format"),
        ({**GRAPH, **CONTEXT}, "could be context or task-graph"),
        ({"tick": 1}, "of no known format"),
    ],
)
def test_a_file_of_no_format_or_of_several_is_refused(cli: Cli, content: Any, says: str) -> None:
    """What the keys do not say is not guessed: the formats and their marks are named."""
    answer = cli("import", given_file("odd.json", content), "--run", "r", "--json")
    assert (answer.code, answer.error["code"]) == (2, "import_refused") and says in answer.error["message"]
    assert "task-graph" in answer.error["message"] + answer.error["hint"]


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"messages": [}', '{"messages": [], "messages": []}',
                                  '{"messages": NaN}', '{"messages": [' * 3000, "\x00", '{"nodes": 1} {}'])  # fmt: skip
@pytest.mark.parametrize("form", [None, *RECORDS])
def test_hostile_text_is_refused(cli: Cli, text: str, form: str | None) -> None:
    """Whatever it is taken for: import_refused, exit code 2, and no run."""
    Path("odd.json").write_text(text)
    answer = cli("import", "odd.json", *(("--format", form) if form else ()), "--run", "r", "--json")
    assert answer.code == 2 and answer.error["code"] in ("import_refused", "invalid_value"), answer
    assert not Path("refold.db").exists() or cli("runs", "--json").json == []


@pytest.mark.parametrize("form", RECORDS)
@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {}, True])
def test_a_record_of_another_type_is_refused(cli: Cli, form: str, value: Any) -> None:
    """A format that is forced is believed, and then checked: partly too there is nothing to take."""
    if form == "context" and value == {}:
        return  # every field of a conversation has a default
    file = given_file("odd.json", value)
    for more in ((), ("--partial",)):
        answer = cli("import", file, "--format", form, "--run", "r", *more, "--json")
        assert answer.code == 2 and answer.error["code"] in ("import_refused", "invalid_value"), answer


def test_partial_and_id_are_for_records(cli: Cli, nightly: Path) -> None:
    """An export or a recording is whole or nothing."""
    assert cli("export", "nightly", "n.jsonl").code == 0
    for more in (("--partial",), ("--id", "x")):
        assert cli("import", "n.jsonl", *more, "--store", "o.db", "--json").error["code"] == "import_refused"


def test_the_python_side_names_the_same(cli: Cli) -> None:
    """``import_record`` raises what the command prints; a run that is named wrongly is refused by its rule."""
    with open_store("memory:") as store:
        run = store.run("r")
        with pytest.raises(ImportRefused) as refused:
            import_record(run, "task-graph", spoilt("task-graph", put("nodes", 2, "title", 5)))
        assert refused.value.violations[0]["node"] == 2 and run.position == 0
        with pytest.raises(InvalidValue):
            import_record(run, "context", CONTEXT, id="")
        assert import_record(run, "task-graph", GRAPH).id == "plan"
