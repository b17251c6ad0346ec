"""What all tests share: the Hypothesis profiles, and that what takes long runs only when it is asked for.

``HYPOTHESIS_PROFILE`` names one: ``dev`` (the default: a fresh seed each time), ``ci`` (the same examples each time, so
that a build fails for what it changed). Tests that are marked ``sweep`` take long and end by themselves; ``make sweep``
runs them before the sweeps of ``tests/sweeps``, which go on for as long as they are given.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

_SHARED = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("dev", max_examples=50, **_SHARED)
settings.register_profile("ci", max_examples=50, derandomize=True, **_SHARED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``sweep`` unless ``-m`` says something about it."""
    if config.option.markexpr:
        return
    sweeps = [item for item in items if item.get_closest_marker("sweep") is not None]
    if sweeps:
        config.hook.pytest_deselected(items=sweeps)
        items[:] = [item for item in items if item.get_closest_marker("sweep") is None]
