"""The model: the projections that a run is folded into, from one stream."""

from __future__ import annotations

from typing import Final

from engine.core.decider import Model
from projections.tasks import PROJECTION as TASKS

__all__ = ["MODEL"]

MODEL: Final = Model((TASKS,))
"""What ``open_store`` uses unless it is given another."""
