"""G11: Journals and checkpoints written by every released version restore for ever.

Each folder of fixtures/journals is a store as a version of refold left it, with a readable twin. They are never edited.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine import CorruptJournal, SchemaError, Store, open_store
from tests.engine.kit import stored_rows, wires_of

JOURNALS = Path(__file__).parents[2] / "fixtures" / "journals"
VERSIONS = sorted(path.name for path in JOURNALS.iterdir() if path.is_dir() and path.name.startswith("v"))


def twin_of(version: str) -> dict[str, Any]:
    twin: dict[str, Any] = json.loads((JOURNALS / version / "store.json").read_text("utf-8"))["runs"]
    return twin


def copied(version: str, name: str, folder: Path) -> Path:
    """Return a copy that may be opened for writing: the fixture itself is never touched."""
    path = folder / name
    shutil.copy(JOURNALS / version / name, path)
    path.chmod(0o644)
    return path


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def store(version: str, tmp_path: Path) -> Any:
    with open_store(copied(version, "store.db", tmp_path)) as opened:
        yield opened


def test_there_is_a_frozen_journal() -> None:
    """G11: the first format is among them."""
    assert "v1" in VERSIONS


def test_every_run_restores_to_its_recorded_digest(version: str, store: Store) -> None:
    """G11: from its checkpoints and from nothing, now and at every recorded position of the past, bytes are as they
    were."""
    twin = twin_of(version)
    assert [line.run for line in store.runs()] == sorted(twin)
    for name, recorded in twin.items():
        for start in ("best", "genesis", *recorded["checkpoints"]):
            if start in store.checkpoints.positions(name) and start not in usable(store, name):
                continue  # written under other schemas: such a checkpoint is ignored, which costs time only
            run = store.run(name, start=start)
            assert (run.position, run.digest(), run.link()) == tuple(
                recorded[key] for key in ("position", "digest", "link")
            )
        for position, digest in recorded["digests"].items():
            assert store.view(name, at=int(position)).digest() == digest
        assert store.verify(name).ok or not usable(store, name)


def usable(store: Store, name: str) -> set[int]:
    """Return the positions of the checkpoints that were written under today's schemas."""
    found = set()
    for position in store.checkpoints.positions(name):
        try:
            store.view(name, at=position, start=position)
            found.add(position)
        except Exception as error:
            assert "another schema" in str(error)
    return found


def test_every_run_reads_as_its_twin_says(version: str, store: Store) -> None:
    """G11: events, in their recorded versions or lifted from them, and task rows are those of the twin."""
    for name, recorded in twin_of(version).items():
        events = [event.to_json() for event in store.history(name)]
        assert events == recorded["events"]
        assert [row.to_json() for row in store.view(name).tasks.rows()] == recorded["tasks"]


def test_every_run_can_go_on(version: str, store: Store) -> None:
    """G11: what was recorded then is a run of now: it takes further commands and restores with them."""
    for name in twin_of(version):
        run = store.run(name)
        before = run.position
        task_id = next(iter(run.tasks.live())).task_id
        run.tasks.grant_capabilities(task_id, ["granted much later"])
        assert run.position == before + 1
        assert store.run(name).digest() == run.digest()


def test_a_command_id_of_then_is_known_now(version: str, store: Store) -> None:
    """G11: the fingerprints of commands are part of the format: a client that repeats itself years later is
    recognised."""
    run = store.run("nightly")
    root = run.tasks.root()
    assert root is not None
    outcome = run.tasks.spawn("fetch", parent=root.task_id, role="explore", command_id="spawn-fetch")
    assert outcome.repeated
    assert outcome.events[0].data["task_id"] == "fetch"


def test_the_exports_give_the_stored_rows_back(version: str, tmp_path: Path) -> None:
    """G11: the lines of then, imported now, are the rows of then; exported again they are the same lines."""
    original = copied(version, "store.db", tmp_path)
    for name, run_id in (("nightly.jsonl", "nightly"), ("short.jsonl", "läufe ✓")):
        lines = (JOURNALS / version / name).read_text("utf-8").splitlines()
        with open_store(tmp_path / "imported.db") as other:
            assert other.import_lines(lines)[0] == run_id
            assert list(other.export_lines(run_id)) == lines
        mine, theirs = (stored_rows(path, run_id) for path in (tmp_path / "imported.db", original))
        assert wires_of(mine, run_id) == wires_of(theirs, run_id)
        assert [stored[:32] for _, stored in mine] == [stored[:32] for _, stored in theirs]


def test_what_must_be_refused_is_refused(version: str, tmp_path: Path) -> None:
    """G11: a newer store, a newer row and a damaged byte are named as what they are; what is before them is read."""
    twin = twin_of(version)["nightly"]
    with pytest.raises(SchemaError, match="format 2"):
        open_store(copied(version, "refused-newer-store.db", tmp_path))
    with open_store(copied(version, "refused-newer-row.db", tmp_path)) as store:
        with pytest.raises(SchemaError, match=r"refold\.commit/2"):
            store.run("nightly", start="genesis")
        last = max(int(position) for position in twin["digests"] if int(position) < 100)
        assert store.view("nightly", at=last).digest() == twin["digests"][str(last)]
    with open_store(copied(version, "refused-damaged.db", tmp_path)) as store:
        with pytest.raises(CorruptJournal) as caught:
            store.run("nightly", start="genesis")
        assert (caught.value.run, caught.value.position) == ("nightly", 1)
        assert not store.verify("nightly").ok
        assert store.verify("läufe ✓").ok


def test_the_fixtures_are_never_written_to(version: str) -> None:
    """G11: nothing lies beside a frozen store that a writer would leave there."""
    assert not list((JOURNALS / version).glob("*.db-*"))
