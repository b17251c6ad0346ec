"""The kit's own fixtures, also where refold is not installed and its pytest plugin therefore not loaded by itself."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from engine.testing.plugin import refold_crashable, refold_model, refold_store

__all__ = ["failures", "quiet", "refold_crashable", "refold_model", "refold_store"]


@pytest.fixture(autouse=True)
def failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where journals of failures go. No seed that was given to these tests reaches the machines that they run: those
    that must find something take the same steps each time."""
    monkeypatch.setenv("REFOLD_FAILURES", str(tmp_path / "failures"))
    monkeypatch.delenv("REFOLD_SEED", raising=False)
    return tmp_path / "failures"


@pytest.fixture
def quiet() -> settings:
    """The same examples each time, found and not shrunk."""
    return settings(
        max_examples=80,
        stateful_step_count=15,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        print_blob=False,
        report_multiple_bugs=False,
    )
