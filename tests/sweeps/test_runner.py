"""The sweeps are run as told: shared fairly, kept whatever ends them, taken up where they stopped, and never silent
about a chunk that killed its process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.sweeps import report
from tests.sweeps.harness import ROOT, Tally, scratch, sweep_up
from tests.sweeps.ledger import VIOLATIONS_KEPT, Busy, Ledger, code_files
from tests.sweeps.registry import SWEEPS, sweep_named
from tests.sweeps.runner import Job, Worker, furthest_behind


def sweeps(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m tests.sweeps``."""
    command = [sys.executable, "-m", "tests.sweeps", "--state", str(state), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


# -- what was tried ---------------------------------------------------------------------------------------------------


def test_chunks_count_once_and_holes_are_filled_first(tmp_path: Path) -> None:
    """Chunks that end in another order than they began leave holes, and those are what is tried next."""
    ledger = Ledger(tmp_path, "code")
    tried = ledger.of("kill")
    assert [tried.free(()), tried.free({0}), tried.free({0, 1})] == [0, 1, 2]
    ledger.keep("kill", 2, Tally(7, Counter(a=1)), 1.5)
    ledger.keep("kill", 0, Tally(3, Counter(a=1, b=2)), 0.5)
    assert (tried.free(()), tried.free({1}), tried.done_of(3), tried.done_of(2)) == (1, 3, 2, 1)
    ledger.keep("kill", 1, Tally(1), 1.0)
    again = Ledger(tmp_path, "code").of("kill")
    assert (again.free(()), again.done_of(3), again.done_of(9)) == (3, 3, 3)
    assert (again.points, again.chunks, again.seconds, again.notes) == (11, 3, 3.0, {"a": 2, "b": 2})


def test_other_code_begins_anew(tmp_path: Path) -> None:
    """What was tried on another version counts for nothing, its violations neither."""
    Ledger(tmp_path, "before").keep("kill", 0, Tally(3, violations=["broken"]), 1.0)
    assert Ledger(tmp_path, "before").of("kill").violations == [(0, "broken")]
    tried = Ledger(tmp_path, "after").of("kill")
    assert (tried.points, tried.broken, tried.free(())) == (0, 0, 0)


def test_the_code_of_every_sweep_counts() -> None:
    """Whatever of the tests a sweep imports is part of the version that its ledger is for."""
    loaded = "import sys; from tests.sweeps.registry import SWEEPS; [entry.sweep for entry in SWEEPS]; "
    loaded += "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('tests.') and m.__file__), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    used = {Path(line) for line in done.stdout.splitlines() if not line.endswith(("__init__.py", "/registry.py"))}
    assert len(used) > 20
    assert used <= set(code_files())


def test_violations_are_counted_beyond_those_that_are_kept(tmp_path: Path) -> None:
    """The first of them are kept, by chunk; all are counted."""
    ledger = Ledger(tmp_path, "code")
    ledger.keep("kill", 1, Tally(1, violations=["late"] * VIOLATIONS_KEPT), 1.0)
    ledger.keep("kill", 0, Tally(1, violations=["early"]), 1.0)
    tried = Ledger(tmp_path, "code").of("kill")
    assert (tried.broken, len(tried.violations), tried.violations[0]) == (51, VIOLATIONS_KEPT, (0, "early"))


def test_one_process_writes(tmp_path: Path) -> None:
    """A second runner is told so instead of mixing up the first one's books."""
    with Ledger(tmp_path, "code").locked(), pytest.raises(Busy), Ledger(tmp_path, "code").locked():
        pass
    with Ledger(tmp_path, "code").locked():
        pass


# -- whose turn it is -------------------------------------------------------------------------------------------------


def test_the_sweep_furthest_behind_its_share_is_next(tmp_path: Path) -> None:
    """Time is shared by weight; what is being tried counts as time used; a full round counts for less."""
    ledger = Ledger(tmp_path, "code")
    entries = [sweep_named(name) for name in ("rows", "interrupts", "restores")]
    for entry in entries:
        ledger.keep(entry.name, 0, Tally(1), 100 * entry.sweep.weight)
    far = time.monotonic() + 1e6
    ledger.keep("restores", 1, Tally(1), 1.0)
    ledger.keep("rows", 1, Tally(1), 0.5)
    assert furthest_behind(entries, ledger, [], far).name == "interrupts"
    busy = [Job("interrupts", 1, None, time.monotonic() - 50)]
    assert furthest_behind(entries, ledger, busy, far).name == "rows"
    for number in range(2, entries[0].sweep.round_size or 0):
        ledger.of("rows").add(number, Tally(), 0.0)
    assert furthest_behind(entries, ledger, busy, far).name == "restores"
    assert furthest_behind(entries, ledger, [], time.monotonic() + 0.01) is None, "no chunk would end in time"


def test_a_chunk_that_kills_its_process_is_a_violation(tmp_path: Path) -> None:
    """The worker is made anew and goes on."""
    with (tmp_path / "log").open("wb") as errors:
        worker = Worker(errors)
        try:
            worker.give("restores", 5, None)
            os.kill(worker.pid, signal.SIGSEGV)
            chunk = worker.hear()
            assert chunk is not None
            assert (chunk.name, chunk.number, worker.job) == ("restores", 5, None)
            assert chunk.tally.violations == ["restores chunk 5: the process ended with SIGSEGV"]
            worker.give("restores", 0, 4)
            while (chunk := worker.hear()) is None:
                pass
            assert (chunk.number, chunk.tally.points, chunk.tally.violations) == (0, 4, [])
            worker.give("restores", 7, None)
            assert "did not end" in worker.given_up().tally.violations[0]
        finally:
            worker.stop()


def test_scratch_folders_of_dead_processes_go(tmp_path: Path) -> None:
    """A killed process leaves its folder; the next runner removes it, and none of the living."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import os; from tests.sweeps.harness import scratch\n"
         "with scratch() as f: print(f, flush=True); os.kill(os.getpid(), 9)"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    told, _ = child.communicate(timeout=60)
    with scratch() as mine:
        assert Path(told.strip()).is_dir()
        sweep_up()
        assert not Path(told.strip()).exists()
        assert mine.is_dir()


# -- as a user runs it ------------------------------------------------------------------------------------------------


def test_a_second_run_goes_on_where_the_first_stopped(tmp_path: Path) -> None:
    """Points and chunks add up; the table and the JSON say the same."""
    totals = []
    for _ in range(2):
        done = sweeps(tmp_path / "state", "--only", "restores", "--stop-after", "2", "--minutes", "9", "--json")
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(done.stdout)["sweeps"]
        totals.append((row["points"], row["chunks"]))
    assert 0 < totals[0][0] < totals[1][0]
    assert [chunks for _, chunks in totals] == [2, 4]
    shown = sweeps(tmp_path / "state", "--table", "--only", "restores")
    assert shown.returncode == 0
    assert f"{totals[1][0]:,}" in shown.stdout


def test_a_violation_is_shown_with_how_to_see_it_again(tmp_path: Path) -> None:
    """Exit code 1, the chunk, and the command that tries it alone; which then keeps nothing."""
    ledger = Ledger(tmp_path / "state")
    with ledger.locked():
        ledger.keep("restores", 3, Tally(9, violations=["restores chunk 3: broken"]), 1.0)
    shown = sweeps(tmp_path / "state", "--table")
    assert shown.returncode == 1
    assert "restores chunk 3: broken" in shown.stdout
    assert "python -m tests.sweeps --chunk restores:3" in shown.stdout
    alone = sweeps(tmp_path / "state", "--chunk", "restores:3", "--at-most", "5")
    assert alone.returncode == 0
    assert "restores:3: 5 points" in alone.stdout
    assert Ledger(tmp_path / "state").of("restores").points == 9


def test_an_interrupt_leaves_what_was_tried(tmp_path: Path) -> None:
    """^C ends it with 130, the table and a whole state; the chunks that were under way are tried again."""
    state = tmp_path / "state"
    command = [sys.executable, "-m", "tests.sweeps", "--state", str(state), "--only", "restores", "--minutes", "5"]
    running = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whatever runs the tests may ignore it
    )
    deadline = time.monotonic() + 120
    while not (state / "restores.json").exists():
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert "restores" in out
    tried = Ledger(state).of("restores")
    assert tried.chunks == tried.next - len(tried.holes) > 0
    with Ledger(state).locked():
        pass


def test_the_readme_takes_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written between two marks, again and again, and nothing else is touched."""
    page = tmp_path / "README.md"
    page.write_text(report.README.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(report, "README", page)
    outside = _parts(page)
    assert len(outside) == 3
    for points in (1_000, 333):
        ledger = Ledger(tmp_path / str(points), "code")
        ledger.folder.mkdir()
        ledger.keep("power", 0, Tally(points, Counter({"stands for": 77})), 60.0)
        report.write_readme(report.rows_of(SWEEPS, ledger), ledger, "make sweep")
        written = _parts(page)
        assert (written[0], written[2]) == (outside[0], outside[2])
    assert "| power | a disk that a power cut may leave | 333 | 0 % of 1,000,000 | 0 |" in written[1]
    assert "stand for 77" in written[1]


def _parts(page: Path) -> list[str]:
    return re.split(r"<!-- /?sweeps.*?-->", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "wrong",
    [
        ["--chunk", "nothing:1"],
        ["--chunk", "kill"],
        ["--minutes", "-1"],
        ["--minutes", "nan"],
        ["--minutes", "inf"],
        ["--cores", "0"],
        ["--stop-after", "0"],
        ["--stop-after", "-1"],
        ["--at-most", "3"],
        ["--chunk", "kill:0", "--at-most", "0"],
        ["--chunk", "kill:0", "--at-most", "-2"],
        ["--chunk", "kill:0", "--table"],
        ["--chunk", "kill:0", "--only", "power"],
        ["--state", __file__],
        ["--state", f"{__file__}/below"],
    ],
)
def test_wrong_usage_is_said(tmp_path: Path, wrong: list[str]) -> None:
    """Exit code 2, and what would be right."""
    done = sweeps(tmp_path / "state", *wrong)
    assert done.returncode == 2
    assert "usage" in done.stderr
