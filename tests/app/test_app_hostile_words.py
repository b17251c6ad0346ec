"""Words on the command line that nobody would type: wrong usage, or the store's own answer, never a bug of refold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.conftest import Cli


@pytest.mark.parametrize("word", ["", "."])
def test_a_salvage_into_no_file_is_refused(cli: Cli, nightly: Path, word: str) -> None:
    """A path without a name names no file that could be made."""
    before = sorted(path.name for path in nightly.parent.iterdir())
    answer = cli("doctor", "--salvage", word, "--json")
    assert answer.code == 2, answer.err
    assert sorted(path.name for path in nightly.parent.iterdir() if not path.name.endswith(("-wal", "-shm"))) == before


@pytest.mark.parametrize("word", ["", ".", "folder", "to a folder"])
def test_an_export_in_the_place_of_a_folder_writes_nothing(cli: Cli, nightly: Path, word: str) -> None:
    """Not even beside it, for a moment: an empty path would put that outside the folder that we are in."""
    Path("folder").mkdir()
    Path("to a folder").symlink_to("folder")
    places = Path("folder"), Path().absolute().parent
    before = [path.stat().st_mtime_ns for path in places]
    answer = cli("export", "nightly", word, "--force", "--json")
    assert answer.code == 2, answer.err
    assert before == [path.stat().st_mtime_ns for path in places]
    assert {path.name for path in Path().iterdir()} - {"refold.db-wal", "refold.db-shm"} == {
        "refold.db",
        "folder",
        "to a folder",
    }


def test_a_state_to_compare_with_has_an_end(cli: Cli, nightly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is given as a state to compare with is read up to the limit on files, and no further."""
    monkeypatch.setattr("engine.read_json.IMPORT_BYTES_MAX", 2 << 20)
    Path("large.json").write_bytes(b"[" + b" " * (3 << 20) + b"]")
    answer = cli("diff", "nightly", "--with", "large.json", "--json")
    assert answer.code == 2 and "IMPORT_BYTES_MAX" in answer.error["message"]
