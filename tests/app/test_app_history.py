"""``refold history``: every filter, alone and together, is a plain filter over all events; pages; what each changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import open_store
from engine.core.envelope import Event
from engine.history import subjects
from tests.app.conftest import Cli
from tests.app.test_app_examples import MINUTE_MS, MORNING, fill

KEYS = ["seq", "type", "recorded_at_ms", "actor", "command_id", "cause", "data"]


@pytest.fixture
def busy(tmp_path: Path) -> list[Event]:
    """A store with something of every projection; the events of its run ``nightly``."""
    clock = iter(range(MORNING, MORNING * 2, MINUTE_MS))
    with open_store(tmp_path / "refold.db", clock=lambda: next(clock)) as store:
        run = store.run("nightly", actor="planner")
        fill(run)
        run.tasks.finish("build", attempt=1, cause=7, command_id="end", actor="builder")
        run.contexts.touch("chat", cause="12")
        return list(run.history())


def seqs(answer: Any) -> list[int]:
    return [event["seq"] for event in answer.json]


FILTERS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Event, Any], bool]]] = {
    "--task": (st.sampled_from(["root", "fetch", "build", "no"]), lambda event, id: id in subjects(event)),
    "--context": (st.sampled_from(["chat", "no"]), lambda event, id: event.data.get("context") == id),
    "--graph": (st.sampled_from(["build", "no"]), lambda event, id: event.data.get("graph") == id),
    "--node": (st.integers(0, 2), lambda event, n: event.type[:4] == "node" and event.data.get("node") == n),
    "--worker": (st.integers(0, 2), lambda event, n: event.data.get("worker") == n),
    "--type": (
        st.sampled_from(["task", "task.finished", "task.finished/1", "context", "graph", "node", "swarm", "no"]),
        lambda event, name: name in (event.type, event.type.split("/")[0], event.type.split(".")[0]),
    ),
    "--actor": (st.sampled_from(["planner", "fetcher", "no"]), lambda event, id: event.actor == id),
    "--command-id": (st.sampled_from(["end", "spawn-fetch"]), lambda event, id: event.command_id == id),
    "--cause": (
        st.sampled_from(["7", "text:12", "12", "spawn-fetch", "text:no"]),
        lambda event, cause: event.cause == (int(cause) if cause.isdigit() else cause.removeprefix("text:")),
    ),
    "--after": (st.integers(0, 60), lambda event, seq: event.seq > seq),
    "--until": (st.integers(0, 60), lambda event, seq: event.seq <= seq),
    "--since": (
        st.integers(MORNING - 1, MORNING + 60 * MINUTE_MS),
        lambda event, at_ms: event.recorded_at_ms >= at_ms,
    ),
    "--before": (st.integers(0, MORNING + 60 * MINUTE_MS), lambda event, at_ms: event.recorded_at_ms < at_ms),
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    wanted=st.fixed_dictionaries({}, optional={name: values for name, (values, _) in FILTERS.items()}),
    backwards=st.booleans(),
    limit=st.none() | st.integers(0, 5),
)
def test_filters_are_plain_filters(
    cli: Cli, busy: list[Event], wanted: dict[str, Any], backwards: bool, limit: int | None
) -> None:
    """Whatever is combined (field report D28: times in milliseconds on both sides), the answer is what a filter over
    all events gives, in the order asked for, up to the limit."""
    expected = [event.seq for event in busy if all(FILTERS[name][1](event, value) for name, value in wanted.items())]
    if backwards:
        expected.reverse()
    options = [word for name, value in wanted.items() for word in (name, value)]
    options += ["--newest-first"] * backwards + ([] if limit is None else ["--limit", limit])
    assert seqs(cli("history", "nightly", *options, "--json")) == expected[:limit]


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_finds_something_and_leaves_something_out(cli: Cli, busy: list[Event], name: str) -> None:
    """No filter is without effect on this run."""
    value = {
        "--task": "fetch", "--context": "chat", "--graph": "build", "--node": 1, "--worker": 0, "--type": "task",
        "--actor": "fetcher", "--command-id": "end", "--cause": "text:12", "--after": 5, "--until": 5,
        "--since": "2026-05-01T12:00", "--before": "2026-05-01T12:00",
    }[name]  # fmt: skip
    found = seqs(cli("history", "nightly", name, value, "--json"))
    assert 0 < len(found) < len(busy)


def test_types_add_up_and_other_filters_narrow(cli: Cli, busy: list[Event]) -> None:
    """Several --type are one or the other; a node belongs to its graph."""
    both = seqs(cli("history", "nightly", "--type", "task.started", "--type", "task.finished", "--json"))
    assert both == [event.seq for event in busy if event.type in ("task.started/1", "task.finished/1")]
    assert seqs(cli("history", "nightly", "--graph", "no", "--node", 0, "--json")) == []
    assert seqs(cli("history", "nightly", "--reverse", "--limit", 1, "--json")) == [busy[-1].seq]


def test_since_and_before_meet_without_overlap(cli: Cli, busy: list[Event]) -> None:
    """An event at a bound is in exactly one of two stretches of time that meet there."""
    for event in busy[:5]:
        after = seqs(cli("history", "nightly", "--since", event.recorded_at_ms, "--json"))
        before = seqs(cli("history", "nightly", "--before", event.recorded_at_ms, "--json"))
        assert before + after == [each.seq for each in busy] and event.seq in after


@pytest.mark.parametrize("page", [1, 2, 7, "n-1", "n", "n+1"])
def test_pages_put_together_are_the_whole(cli: Cli, busy: list[Event], page: int | str) -> None:
    """Whatever a page holds (field reports T17, T21), going on gives every event once, forwards and backwards, with
    changes and without."""
    size = {"n-1": len(busy) - 1, "n": len(busy), "n+1": len(busy) + 1}.get(str(page), page)
    more = ("--changes",) if page in (7, "n") else ()
    whole = cli("history", "nightly", *more, "--json").json
    forwards: list[Any] = []
    while part := cli(
        "history", "nightly", "--limit", size, "--after", forwards[-1]["seq"] if forwards else 0, *more, "--json"
    ).json:
        assert len(part) <= int(size)
        forwards += part
    backwards: list[Any] = []
    left: tuple[Any, ...] = ()
    while part := cli("history", "nightly", "--limit", size, "--newest-first", *left, *more, "--json").json:
        backwards += part
        left = ("--until", part[-1]["seq"] - 1)
    assert forwards == backwards[::-1] == whole


def test_changes_are_a_key_of_their_own(cli: Cli, busy: list[Event]) -> None:
    """Without --changes the shape is the seven keys; with it, one more: a list of kind, id, field, before, after."""
    plain = cli("history", "nightly", "--json").json
    assert all(list(event) == KEYS for event in plain)
    changed = cli("history", "nightly", "--changes", "--json").json
    assert [{key: event[key] for key in KEYS} for event in changed] == plain
    assert all(list(event) == [*KEYS, "changes"] for event in changed)
    suspended = next(event for event in changed if event["type"] == "task.suspended/1")
    assert {"kind": "tasks.tasks", "id": "root", "field": "lifecycle", "before": "running", "after": "suspended"} in (
        suspended["changes"]
    )


def test_changes_are_shown_in_words(cli: Cli, busy: list[Event]) -> None:
    """A person reads ``lifecycle: running -> suspended``; what came is told by what it holds."""
    shown = cli("history", "nightly", "--task", "root", "--changes").out
    assert "root.lifecycle: running -> suspended" in shown and "build is new: " in shown
    assert 'root.waiting_on: ["fetch","build"] -> ["build"]' in cli("history", "nightly", "--changes").out
    assert "swarm.visits: 0 -> 1" in cli("history", "nightly", "--worker", 0, "--changes").out


def test_filtered_backwards_the_changes_are_the_same(cli: Cli, busy: list[Event]) -> None:
    """What an event changed does not depend on which others are shown, nor on the order."""
    whole = {event["seq"]: event["changes"] for event in cli("history", "nightly", "--changes", "--json").json}
    for options in (("--task", "fetch"), ("--newest-first",), ("--newest-first", "--type", "task", "--limit", "4")):
        found = cli("history", "nightly", *options, "--changes", "--json").json
        assert found and all(event["changes"] == whole[event["seq"]] for event in found)


def test_a_long_history_comes_in_several_tables(cli: Cli, nightly: Path) -> None:
    """People get every event of a history that is longer than one table, and programs one list."""
    with open_store(nightly) as store:
        run = store.run("nightly")
        with run.batch():
            for _ in range(2100):
                run.tasks.report_usage("build", tokens=1)
    lines = cli("history", "nightly").out.splitlines()
    numbers = [int(line.split()[0]) for line in lines if not line.startswith(" seq")]
    assert numbers == list(range(1, 2114)) and len(lines) == 2113 + 3
    assert len(json.loads(cli("history", "nightly", "--json").out)) == 2113


@pytest.mark.parametrize(
    "options",
    [
        ("--node", "-1"), ("--node", "x"), ("--worker", 2**64), ("--limit", "-1"), ("--since", "yesterday"),
        ("--before", "1.5"), ("--after", "x"), ("--since", "2026-05-01T25:00"),
    ],
)  # fmt: skip
def test_a_bad_filter_is_wrong_usage(cli: Cli, nightly: Path, options: tuple[Any, ...]) -> None:
    """What cannot be a filter's value is exit code 2, and nothing is shown."""
    answer = cli("history", "nightly", *options, "--json")
    assert (answer.code, answer.out, answer.error["code"]) == (2, "", "wrong_usage")


@pytest.mark.parametrize("options", [(), ("--changes",), ("--newest-first", "--changes"), ("--task", "x")])
def test_a_run_that_is_not_there_is_not_found(cli: Cli, nightly: Path, options: tuple[str, ...]) -> None:
    """It is not an empty history."""
    answer = cli("history", "nobody", *options, "--json")
    assert answer.code == 2 and answer.error["code"] == "not_found"
