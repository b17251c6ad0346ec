"""What all tests share: the Hypothesis profiles, and that the long sweeps run only when they are asked for.

``HYPOTHESIS_PROFILE`` names one: ``dev`` (the default: a fresh seed each time), ``ci`` (the same examples each time, so
that a build fails for what it changed), ``sweep`` (as many examples as ``SWEEP_MINUTES`` allow a test that loops).
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

_SHARED = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("dev", max_examples=50, **_SHARED)
settings.register_profile("ci", max_examples=50, derandomize=True, **_SHARED)
settings.register_profile("sweep", max_examples=2000, **_SHARED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the sweeps out unless ``-m`` says something about them."""
    if config.option.markexpr:
        return
    sweeps = [item for item in items if item.get_closest_marker("sweep") is not None]
    if sweeps:
        config.hook.pytest_deselected(items=sweeps)
        items[:] = [item for item in items if item.get_closest_marker("sweep") is None]
