"""Diff: patching the first state with what it gives is the second, whatever the two are; its rows say the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import open_store
from engine.core.errors import EngineError, ImportRefused, InvalidValue
from engine.core.json_patch import apply_patch, patch_between, same
from engine.diff import diff
from engine.documents import document, foreign_document
from engine.testing.strategies import commands, json_values
from projections.model import MODEL
from tests.app.test_app_examples import fill

documents = st.dictionaries(
    st.sampled_from(["tasks", "contexts", "graphs", "swarm"]),
    st.dictionaries(st.sampled_from(["a", "b/c", "~", "", "ü"]), json_values(), max_size=3),
)


def mixed(drawn: Any) -> st.SearchStrategy[Any]:
    """Return values that are ``drawn`` with some parts changed: two documents with nothing in common prove little."""
    if type(drawn) is dict and drawn:
        inner = st.fixed_dictionaries({}, optional={key: mixed(value) for key, value in drawn.items()})
        return inner | st.tuples(inner, st.dictionaries(st.sampled_from("abk"), json_values(3), max_size=2)).map(
            lambda two: {**two[0], **two[1]}
        )
    if type(drawn) is list and drawn:
        changed = st.tuples(*(mixed(item) for item in drawn)).map(list)
        return (
            changed
            | changed.map(lambda items: items[1:])
            | st.tuples(changed, json_values(2)).map(lambda two: [*two[0], two[1]])
        )
    return st.just(drawn) | json_values(3)


pairs = documents.flatmap(
    lambda one: st.tuples(
        st.just(one),
        documents | st.fixed_dictionaries({kind: st.fixed_dictionaries(
            {}, optional={key: mixed(value) for key, value in records.items()}
        ) for kind, records in one.items()}),
    )
)  # fmt: skip


@given(pairs)
def test_patching_the_first_gives_the_second(pair: tuple[Any, Any]) -> None:
    """For any two documents: the patch applied to A is B, type for type; the diff says so itself; A is unchanged."""
    before, after = pair
    kept = copy.deepcopy(before)
    found = diff(before, after)
    assert found.proved is True
    assert same(apply_patch(before, list(found.patch)), after) and same(before, kept)
    assert bool(found) == bool(found.patch) == (not same(before, after))


@given(pairs)
def test_the_rows_name_what_differs_and_nothing_else(pair: tuple[Any, Any]) -> None:
    """A record is named by some change exactly when it differs; an added or removed one as a whole, with its value."""
    before, after = pair
    found = diff(before, after)
    differing = set()
    for kind in {*before, *after}:
        old, new = before.get(kind, {}), after.get(kind, {})
        differing |= {
            (kind, key) for key in {*old, *new} if key not in old or key not in new or not same(old[key], new[key])
        }
    assert {(change.kind, change.id) for change in found.changes} == differing
    for change in found.changes:
        if change.what == "added" and change.path == "":
            assert same(change.after, after[change.kind][change.id]) and change.before is None
        if change.what == "removed" and change.path == "":
            assert same(change.before, before[change.kind][change.id]) and change.after is None
        if change.what == "changed":
            assert not same(change.before, change.after)


@given(json_values(10).flatmap(lambda one: st.tuples(st.just(one), mixed(one))))
def test_a_patch_between_any_two_json_values_applies(pair: tuple[Any, Any]) -> None:
    """Also where the whole value is of another type, and where lists grow and shrink in the middle."""
    before, after = pair
    assert same(apply_patch(before, list(patch_between(before, after))), after)


@given(json_values(10))
def test_what_is_the_same_has_no_patch(value: Any) -> None:
    """A value and its copy: no operation, and an empty patch changes nothing."""
    assert list(patch_between(value, copy.deepcopy(value))) == []
    assert same(apply_patch(value, []), value)


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a": 1}, {"a": 1.0}, [{"op": "replace", "path": "/a", "value": 1.0}]),
        ({"a/b": 1, "~": 2}, {}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/~0"}]),
        ({}, {"": None}, [{"op": "add", "path": "/", "value": None}]),
        ([1, 2, 3], [1, 3], [{"op": "remove", "path": "/1"}]),
        ([1], [1, 2], [{"op": "add", "path": "/1", "value": 2}]),
        (1, 2, [{"op": "replace", "path": "", "value": 2}]),
    ],
)
def test_patches_are_rfc_6902(before: Any, after: Any, patch: list[dict[str, Any]]) -> None:
    """Operations, pointers and their escapes are those of the two RFCs; 1, 1.0 and true are three values."""
    assert list(patch_between(before, after)) == patch


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/a/9", "value": 1},
        {"op": "add", "path": "/a/01", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "test", "path": "/a", "value": 1},
        {"op": "remove", "path": "/a/-"},
        {"op": "add", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_a_patch_that_does_not_apply_is_refused(operation: dict[str, Any]) -> None:
    """Nothing is guessed: the operation is named, and the document is as before."""
    document_ = {"a": [1]}
    with pytest.raises(InvalidValue, match=r"operation\[0\]|JSON Pointer"):
        apply_patch(document_, [operation])
    assert document_ == {"a": [1]}


def test_paths_are_written_as_people_write_them() -> None:
    """``waiting_on[1]`` in a list of the same length, the list as a whole otherwise; ``process.join_result``."""
    before = {"tasks": {"a": {"waiting_on": ["x", "y"], "process": {"role": "r", "join": None}, "ids": [1]}}}
    after = {"tasks": {"a": {"waiting_on": ["x", "z"], "process": {"role": "r", "join": 1}, "ids": [1, 2], "new": 0}}}
    rows = [(change.what, change.path, change.before, change.after) for change in diff(before, after).changes]
    assert rows == [
        ("changed", "waiting_on[1]", "y", "z"),
        ("changed", "process.join", None, 1),
        ("changed", "ids", [1], [1, 2]),
        ("added", "new", None, 0),
    ]
    odd = {"": 1, "a.b": {"c": 1}, "d[0]": 1}
    found = diff({"tasks": {"a": {}}}, {"tasks": {"a": odd}}).changes
    assert [change.path for change in found] == ['[""]', '["a.b"]', '["d[0]"]'], "no key is taken for a path"


@given(st.lists(commands(MODEL), max_size=25), st.data())
def test_any_two_positions_of_any_run_are_patched_into_each_other(given_: list[Any], data: st.DataObject) -> None:
    """Over random runs of all projections: the diff of two positions, either way round, is proved."""
    with open_store("memory:", clock=lambda: 1_000) as store:
        run = store.run("r")
        for command in given_:
            try:
                run.submit(command)
            except EngineError:
                continue
        if not run.position:
            return
        one, other = (data.draw(st.integers(0, run.position)) for _ in range(2))
        found = run.diff(one, other)
        assert found.proved
        assert same(apply_patch(document(run.at(one)), list(found.patch)), document(run.at(other)))
        assert not run.diff(one, one).patch


def test_every_two_neighbours_of_a_full_run_are_patched_into_each_other() -> None:
    """Over a run with something of every projection, each position differs from the one before as the patch says, and
    from the end, both ways."""
    with open_store("memory:") as store:
        run = store.run("r")
        fill(run)
        end = document(run)
        earlier = document(run.at(0))
        for position in range(1, run.position + 1):
            now = document(run.at(position))
            for one, other in ((earlier, now), (now, earlier), (now, end), (end, now)):
                found = diff(one, other)
                assert found.proved and same(apply_patch(one, list(found.patch)), other)
            earlier = now


# -- states of other programs -----------------------------------------------------------------------------------------


def test_a_foreign_state_comes_in_any_of_the_forms_it_is_written_in() -> None:
    """A list of rows, records by id, records in a list, what ``show --json`` prints: the same document."""
    row, graph, swarm = {"task_id": "a", "x": 1}, {"id": "g", "nodes": []}, {"tick": 1}
    expected = {"tasks": {"a": row}, "graphs": {"g": graph}, "swarm": {"swarm": swarm}}
    forms: list[Any] = [
        {"tasks": [row], "graphs": [graph], "swarm": swarm},
        {"tasks": {"a": row}, "graphs": {"g": graph}, "swarm": {"swarm": swarm}},
        {"run": "r", "position": 3, "digest": "", "lifecycles": {}, "records": {}, "tasks": [row],
         "graphs": {"g": graph}, "swarm": swarm},
    ]  # fmt: skip
    assert all(foreign_document(form) == expected for form in forms)
    assert foreign_document([row]) == {"tasks": {"a": row}}
    assert foreign_document({"swarm": None}) == {"swarm": {}}
    assert foreign_document({"contexts": {"c": {}}}) == {"contexts": {"c": {}}}


def test_a_verdict_and_a_second_request_for_help_are_differences() -> None:
    """What is recorded of a swarm shows in a diff also when its record has no place for it; a state of another program
    is not told that it lacks that."""
    with open_store("memory:") as store:
        run = store.run("r")
        run.swarm.start(2)
        run.swarm.raise_escalation(1, "timeout")
        record = run.swarm.context().to_record()
        before = run.position
        run.swarm.raise_escalation(1, "timeout")
        run.swarm.record_verdict(True, "good", details={"x": 1})
        found = run.at(before).diff_with(run)
        assert [(change.kind, change.id, change.what, change.after) for change in found.changes] == [
            ("swarm", "verdict", "added", {"success": True, "reason": "good", "details": {"x": 1}}),
            ("swarm", "raised_again", "added", {"1": 1}),
        ]
        assert found.proved
        assert not run.diff_with({"swarm": record})
        assert run.diff_with({"swarm": {"swarm": record, "verdict": {"success": False}}})
        run.swarm.clear_escalation(1)
        assert list(document(run)["swarm"]) == ["swarm", "verdict"]


@pytest.mark.parametrize(
    "value",
    [None, 1, "x", {}, {"task": []}, {"tasks": 1}, {"tasks": [1]}, {"tasks": [{}]}, {"tasks": [{"task_id": 1}]},
     {"tasks": [{"task_id": "a"}, {"task_id": "a"}]}, {"contexts": []}, {"swarm": 1}, {"tasks": [], "odd": 1}],
)  # fmt: skip
def test_what_is_no_state_is_refused_by_name(value: Any) -> None:
    """Nothing else is taken for a state: the place and the forms are named."""
    with pytest.raises(ImportRefused, match="no state to compare with") as refused:
        foreign_document(value)
    assert refused.value.violations and "refold show" in refused.value.hint
