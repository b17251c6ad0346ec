"""The test case of a restore machine: run under a seed that a failure names, so that it can be had again. It must never
take the seed out of the hands of who has chosen one: a derandomised profile, ``@seed``, ``--hypothesis-seed``.
"""

from __future__ import annotations

import os
import random
from functools import cache, wraps
from typing import Any, Final
from unittest import TestCase

from hypothesis import core, seed
from hypothesis.stateful import RuleBasedStateMachine

__all__ = ["SEED_VARIABLE", "TestCases"]

SEED_VARIABLE: Final = "REFOLD_SEED"
"""The environment variable that names the seed of restore machines; without it each run draws one. The pytest plugin
sets it to the session's seed."""

_SEED_OF_HYPOTHESIS: Final = "_hypothesis_internal_use_seed"  # what @seed sets on a machine


class TestCases:
    """The descriptor behind ``RestoreMachine.TestCase``: the test case of the class that it is asked of."""

    __test__ = False

    def __get__(self, machine: object, kind: type[RuleBasedStateMachine]) -> type[TestCase]:
        return _test_case(kind)


@cache
def _test_case(kind: type[RuleBasedStateMachine]) -> type[TestCase]:
    plain: Any = RuleBasedStateMachine.__dict__["TestCase"].__get__(None, kind)

    class SeededTestCase(plain):  # type: ignore[misc]
        @wraps(plain.runTest)
        def runTest(self) -> None:
            number = None if _chosen(kind, self.settings) else _session_seed()
            if number is None:
                super().runTest()
                return
            seed(number)(kind)
            try:
                super().runTest()
            except Exception as error:
                error.add_note(f"seed {number}; repeat with --refold-seed={number}, or {SEED_VARIABLE}={number}")
                raise
            finally:
                delattr(kind, _SEED_OF_HYPOTHESIS)

    SeededTestCase.__name__ = SeededTestCase.__qualname__ = plain.__name__
    SeededTestCase.__module__ = kind.__module__
    return SeededTestCase


def _chosen(kind: type[RuleBasedStateMachine], settings: Any) -> bool:
    """Return whether somebody else has said where Hypothesis is to begin."""
    said = getattr(kind, _SEED_OF_HYPOTHESIS, None)
    everywhere = getattr(core, "global_force_seed", None)
    ours = everywhere is not None and str(everywhere) == os.environ.get(SEED_VARIABLE)  # by --refold-seed
    return settings.derandomize or said is not None or (everywhere is not None and not ours)


def _session_seed() -> int:
    return int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
