"""The stores that one test body runs over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.open_store import Store
from tests.engine.kit import BACKENDS, Ticks, toy_store, url_of


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty toy store on every backend: what holds on one holds on all."""
    with toy_store(url_of(request.param, tmp_path), clock=Ticks()) as opened:
        yield opened


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    """An empty toy store in a file, ``tmp_path / "refold.db"``."""
    with toy_store(tmp_path / "refold.db", clock=Ticks()) as opened:
        yield opened
