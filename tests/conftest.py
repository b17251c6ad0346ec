"""What all tests share: the Hypothesis profiles.

``HYPOTHESIS_PROFILE`` names one: ``dev`` (the default: a fresh seed each time), ``ci`` (the same examples each time, so
that a build fails for what it changed).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SHARED = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("dev", max_examples=50, **_SHARED)
settings.register_profile("ci", max_examples=50, derandomize=True, **_SHARED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
