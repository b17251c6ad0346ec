"""Times and positions as people write them: milliseconds throughout, UTC unless said otherwise, nothing guessed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import open_store
from engine.app.output import when
from engine.app.times import Where, parse_time, parse_where
from engine.core.limits import TIME_MS_MAX
from tests.app.conftest import Cli

NOON_MS = 1_777_636_800_000  # 2026-05-01T12:00Z


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("0", 0),
        ("1777636800000", NOON_MS),
        (str(TIME_MS_MAX), TIME_MS_MAX),
        ("2026-05-01T12:00", NOON_MS),
        ("2026-05-01T12:00Z", NOON_MS),
        ("2026-05-01 12:00:00.000", NOON_MS),
        ("2026-05-01T14:00+02:00", NOON_MS),
        ("2026-05-01", NOON_MS - 12 * 3_600_000),
        ("20260501T1200", NOON_MS),
        ("1970-01-01T00:00", 0),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601(text: str, at_ms: int) -> None:
    """Digits are Unix milliseconds; everything else is ISO 8601, in UTC when it names no zone."""
    assert parse_time(text) == parse_time(text, "up") == at_ms


@pytest.mark.parametrize(
    "text",
    ["", "noon", "-1", "12:00", "1e3", "١٢", "2026-13-01", "1969-12-31", "9" * 5000, str(TIME_MS_MAX + 1), "now", "\0"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    """Anything else is refused with the forms that are taken, or the range."""
    with pytest.raises(ValueError, match=r"Unix milliseconds|outside the times"):
        parse_time(text)


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)),
    st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_a_time_between_two_milliseconds_is_rounded_as_asked(moment: datetime, zone: timezone) -> None:
    """Down for as-of, up for since and before; whatever zone the same moment is written in."""
    exact = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    text = moment.replace(tzinfo=UTC).astimezone(zone).isoformat()
    assert parse_time(text) == exact // 1000
    assert parse_time(text, "up") == -(-exact // 1000)


@given(st.integers(0, int(datetime(9999, 12, 31, tzinfo=UTC).timestamp() * 1000)))
def test_what_is_printed_as_a_time_is_read_as_that_time(at_ms: int) -> None:
    """A time copied out of a table names the very event that stands beside it."""
    assert parse_time(when(at_ms)) == at_ms


def test_a_place_is_a_position_a_time_or_now() -> None:
    """Digits are a position, ``now`` the end, the rest a time."""
    assert parse_where("12") == Where(at=12)
    assert parse_where("now") == Where()
    assert parse_where("2026-05-01T12:00") == Where(at_time=NOON_MS)
    for text in ("", "x", "-1", "9" * 30):
        with pytest.raises(ValueError, match=r"neither|no position"):
            parse_where(text)


def test_as_of_a_time_is_as_of_its_last_event(cli: Cli, nightly: Path) -> None:
    """``--at-time`` is ``--at`` the last event recorded at or before it: on every command that looks back."""
    begun = 1_700_000_000_000  # the store's clock: an event a second
    for at_ms, position in ((begun - 1, 0), (begun, 1), (begun + 999, 1), (begun + 1000, 2), (begun + 10**9, 13)):
        assert cli("digest", "nightly", "--at-time", at_ms, "--json").json["position"] == position
        shown = cli("show", "nightly", "--tasks", "--at-time", at_ms, "--json").json
        assert shown == cli("show", "nightly", "--tasks", "--at", position, "--json").json
    at = ("--at-time", when(begun + 9_500))
    assert cli("why", "nightly", "root", *at, "--json").json == cli("why", "nightly", "root", "--at", 10, "--json").json
    assert cli("fork", "nightly", "then", *at, "--json").json["position"] == 10
    restored = cli("restore", "nightly", *at, "--json").json
    assert (restored["position"], restored["used"]) == (10, 6)
    assert restored["digest"] == cli("digest", "nightly", "--at", 10, "--json").json["digest"]
    assert cli("restore", "nightly", "--at", 10, "--from", "genesis", "--json").json["digest"] == restored["digest"]
    assert cli("export", "nightly", "then.jsonl", *at, "--json").json["events"] == 10
    assert cli("import", "then.jsonl", "--run", "again").code == 0
    assert cli("digest", "again", "--json").json["digest"] == restored["digest"]


def test_the_time_zone_of_the_machine_is_never_asked(cli: Cli, nightly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time without a zone is the same moment wherever the machine stands."""
    args = ("digest", "nightly", "--at-time", "2023-11-14T22:13:25", "--json")
    here = cli(*args).json
    monkeypatch.setenv("TZ", "America/New_York")
    import time

    time.tzset()
    try:
        assert cli(*args).json == here and here["position"] == 6
    finally:
        monkeypatch.undo()
        time.tzset()


def test_where_the_clock_went_back_a_time_is_a_place_in_the_run(tmp_path: Path, cli: Cli) -> None:
    """Order never depends on the clock: the answer is the last event that is not later, whatever stands before it."""
    times = iter((100, 300, 200, 400))
    with open_store(tmp_path / "refold.db", clock=lambda: next(times)) as store:
        run = store.run("r")
        run.tasks.open_root("root")
        run.tasks.start("root")
        run.tasks.yield_task("root")
        run.tasks.start("root")
    expected = {99: 0, 100: 1, 199: 1, 200: 3, 300: 3, 399: 3, 400: 4}
    assert {at: cli("digest", "r", "--at-time", at, "--json").json["position"] for at in expected} == expected


@pytest.mark.parametrize("command", [("show",), ("digest",), ("why",), ("fork",), ("diff",), ("restore",), ("export",)])
@pytest.mark.parametrize("time", ["noon", "-5", "12:00", "9" * 40])
def test_a_bad_time_is_wrong_usage(cli: Cli, nightly: Path, command: tuple[str, ...], time: str) -> None:
    """Exit code 2 with the forms that are taken; with --at beside it, both are refused."""
    more = {"why": ("root",), "fork": ("new",), "export": ("new.jsonl",)}.get(command[0], ())
    answer = cli(*command, "nightly", *more, f"--at-time={time}", "--json")
    assert (answer.code, answer.error["code"]) == (2, "wrong_usage") and answer.out == ""
    both = cli(*command, "nightly", *more, "--at", 3, "--at-time", 5, "--json")
    assert (both.code, both.error["code"]) == (2, "wrong_usage") and "exclude" in both.error["message"]
    assert [run["run"] for run in cli("runs", "--json").json] == ["nightly"]
