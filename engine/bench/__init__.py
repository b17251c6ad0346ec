"""Benchmarks: ratios of two things measured in one process run, interleaved. An absolute figure is never a result here.

Each measurement is a function that yields one :class:`~engine.bench.measure.Row`; ``MEASURES`` lists them by the id of
the target.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.bench.append import p1_append, p2_command
from engine.bench.measure import Setting
from engine.bench.records import p6_contexts, p6_graphs, p7_contexts, p7_graphs, p11_conversation, p11_events
from engine.bench.replay import p4_aggregates, p4_replay
from engine.bench.restoring import p8_long_run, p8_restore
from engine.bench.table import p6_flat, p6_saver, p7_delta
from engine.bench.time_travel import p9_many_tasks, p9_random_position, p9_step
from engine.core.errors import NotFound

__all__ = ["MEASURES", "run"]

MEASURES = {
    "P1": (p1_append,),
    "P2": (p2_command,),
    "P4": (p4_replay, p4_aggregates),
    "P6": (p6_flat, p6_saver, p6_contexts, p6_graphs),
    "P7": (p7_delta, p7_contexts, p7_graphs),
    "P8": (p8_restore, p8_long_run),
    "P9": (p9_random_position, p9_many_tasks, p9_step),
    "P11": (p11_events, p11_conversation),
}


def run(
    only: Sequence[str] | None = None,
    rounds: int = 5,
    scale: float = 1.0,
    progress: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Measure the named targets (default: all) and return one JSON row each.

    ``scale`` shrinks or grows the workloads (1.0: 10,000 tasks, about 100,000 events); ratios of small workloads say
    little. Raises
    NotFound for an unknown id.
    """
    wanted = [name.upper() for name in only] if only else list(MEASURES)
    for name in wanted:
        if name not in MEASURES:
            raise NotFound(f"there is no benchmark {name!r}", hint=f"choose from {', '.join(MEASURES)}")
    rows: list[dict[str, Any]] = []
    for name in wanted:
        for measure in MEASURES[name]:
            if progress is not None:
                progress(f"{name}: {(measure.__doc__ or name).splitlines()[0]}")
            with tempfile.TemporaryDirectory(prefix="refold-bench-", dir=Path.cwd()) as folder:
                rows.append(measure(Setting(Path(folder), rounds, scale)).to_json())
    return rows
