"""Storage: journal, checkpoints and the databases under them. The only package that touches eventsourcing; it must
never know what an event means."""

from engine.store.backend import Backend, Head, Origin
from engine.store.checkpoints import Checkpoint, Checkpoints, Outdated, Rejected, capture, merged
from engine.store.connect import connect
from engine.store.journal import Journal
from engine.store.lineage import Segment, cut
from engine.store.row import RawCommit

__all__ = [
    "Backend",
    "Checkpoint",
    "Checkpoints",
    "Head",
    "Journal",
    "Origin",
    "RawCommit",
    "Outdated",
    "Rejected",
    "Segment",
    "capture",
    "connect",
    "cut",
    "merged",
]
