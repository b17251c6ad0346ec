"""The test case of a restore machine: run under a seed that a failure names, so that it can be had again. It must never
take the seed out of the hands of who has chosen one: by ``@seed``, by ``--hypothesis-seed``, or by a derandomised
profile, which Hypothesis loads by itself on build servers, and which only a seed that was given goes before.
"""

from __future__ import annotations

import os
import random
from functools import cache, wraps
from typing import Any, Final
from unittest import TestCase

from hypothesis import core, seed
from hypothesis.stateful import RuleBasedStateMachine

__all__ = ["DRAWN_VARIABLE", "SEED_VARIABLE", "TestCases"]

SEED_VARIABLE: Final = "REFOLD_SEED"
"""The environment variable that names the seed of restore machines; without it each run draws one. The pytest plugin
sets it to the session's seed."""

DRAWN_VARIABLE: Final = "REFOLD_SEED_DRAWN"
"""The seed that nobody gave: set beside ``REFOLD_SEED`` by the pytest plugin when it has drawn it itself."""

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
            if _chosen(kind):
                super().runTest()
                return
            number = _session_seed(self.settings)
            if number is not None:
                seed(number)(kind)
            try:
                super().runTest()
            except Exception as error:
                error.add_note(_how_to_repeat(number))
                raise
            finally:
                if number is not None:
                    delattr(kind, _SEED_OF_HYPOTHESIS)

    SeededTestCase.__name__ = SeededTestCase.__qualname__ = plain.__name__
    SeededTestCase.__module__ = kind.__module__
    return SeededTestCase


def _chosen(kind: type[RuleBasedStateMachine]) -> bool:
    """Return whether somebody has given Hypothesis itself a seed."""
    said = getattr(kind, _SEED_OF_HYPOTHESIS, None)
    everywhere = getattr(core, "global_force_seed", None)
    ours = everywhere is not None and str(everywhere) == os.environ.get(SEED_VARIABLE)  # by --refold-seed
    return said is not None or (everywhere is not None and not ours)


def _session_seed(settings: Any) -> int | None:
    """Return the seed of the session, or one drawn now; none where derandomised settings stand against a seed that
    nobody gave."""
    named = os.environ.get(SEED_VARIABLE)
    given = bool(named) and named != os.environ.get(DRAWN_VARIABLE)
    if settings.derandomize and not given:
        return None
    return int(named or random.SystemRandom().randrange(2**32))


def _how_to_repeat(number: int | None) -> str:
    if number is None:
        return "no seed: the settings are derandomised, and each run takes these steps"
    return f"seed {number}; repeat with --refold-seed={number}, or {SEED_VARIABLE}={number}"
