"""The pytest plugin: stores for tests, one of them made to crash; a seed that is printed and can be given again. It
must
stay cheap to load: pytest loads it in every project that has refold installed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from engine.open_store import Store
    from engine.testing.crashable import CrashableStore

__all__ = ["refold_crashable", "refold_model", "refold_random", "refold_seed", "refold_store"]

_OPTION = "--refold-seed"
_FOLDER = "REFOLD_FAILURES"
_VARIABLE = "REFOLD_SEED"
_DRAWN = "REFOLD_SEED_DRAWN"  # by which engine.testing.seeded tells a seed that nobody gave
_BEFORE = pytest.StashKey[dict[str, str | None]]()
_SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--refold-seed``."""
    group = parser.getgroup("refold", "refold")
    group.addoption(
        _OPTION,
        type=int,
        metavar="N",
        help="The seed of refold_random and of restore machines, and of Hypothesis unless that is given one. "
        f"Default: ${_VARIABLE}, else another each time.",
    )
    group.addoption(
        "--refold-failures",
        metavar="FOLDER",
        help=f"Where the journals of failed restore machines go. Default: ${_FOLDER}, else a temporary folder.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle the seed: for this process, for restore machines, for workers that it starts; hand a given one on to
    Hypothesis."""
    given = config.getoption(_OPTION)
    config.stash[_BEFORE] = {name: os.environ.get(name) for name in (_VARIABLE, _DRAWN)}
    before = config.stash[_BEFORE][_VARIABLE]
    if given is None and before and not before.isdecimal():
        raise pytest.UsageError(f"{_VARIABLE} is {before!r}, and a seed is a whole number")
    config.stash[_SEED] = given if given is not None else int(before or random.SystemRandom().randrange(2**32))
    os.environ[_VARIABLE] = str(config.stash[_SEED])
    if given is not None:
        os.environ.pop(_DRAWN, None)
    elif not before:
        os.environ[_DRAWN] = os.environ[_VARIABLE]
    if given is not None and config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = str(given)
    if (folder := config.getoption("--refold-failures")) is not None:
        os.environ[_FOLDER] = str(Path(folder).absolute())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave the environment as it was."""
    if _BEFORE not in config.stash:
        return
    for name, before in config.stash[_BEFORE].items():
        if before is not None:
            os.environ[name] = before
        else:
            os.environ.pop(name, None)


def pytest_report_header(config: pytest.Config) -> str:
    """Print the seed."""
    return f"refold: seed {config.stash[_SEED]} (repeat with {_OPTION}={config.stash[_SEED]})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Say the seed with every failed test that used it."""
    report: pytest.TestReport = yield
    if report.failed and {"refold_seed", "refold_random"} & set(getattr(item, "fixturenames", ())):
        seed = item.config.stash[_SEED]
        report.sections.append(("refold", f"seed {seed}; repeat with {_OPTION}={seed}"))
    return report


@pytest.fixture
def refold_seed(request: pytest.FixtureRequest) -> int:
    """The session's seed: printed in the header, given by ``--refold-seed``."""
    return request.config.stash[_SEED]


@pytest.fixture
def refold_random(refold_seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A random generator of the test's own, made from the session's seed and the test's name."""
    return random.Random(f"{refold_seed} {request.node.nodeid}")


@pytest.fixture
def refold_model() -> Any:
    """The model of the stores below. Override it in a conftest to test projections of your own."""
    from projections.model import MODEL

    return MODEL


@pytest.fixture
def refold_store(tmp_path: Path, refold_model: Any) -> Iterator[Store]:
    """An empty store in a file of its own, closed after the test."""
    from engine.open_store import open_store

    with open_store(tmp_path / "refold.db", model=_model(refold_model)) as store:
        yield store


@pytest.fixture
def refold_crashable(tmp_path: Path, refold_model: Any) -> Iterator[CrashableStore]:
    """An empty store in a file that dies on command: ``arm(point, call)``, then ``reopen()``; see CrashableStore."""
    from engine.store import connect
    from engine.testing.crashable import CrashableStore

    store = CrashableStore(lambda: connect(tmp_path / "refold.db"), model=_model(refold_model))
    yield store
    store.close()


def _model(given: Any) -> Any:
    from engine.core.model import Model

    return given if isinstance(given, Model) else Model((given,))
