"""Storage: journal, checkpoints and the databases under them. The only package that touches eventsourcing; it must
never know what an event means."""

from engine.store.backend import Backend, Head
from engine.store.checkpoints import Checkpoint, Checkpoints, Rejected, capture
from engine.store.connect import connect
from engine.store.journal import Journal, RawCommit, cut

__all__ = [
    "Backend",
    "Checkpoint",
    "Checkpoints",
    "Head",
    "Journal",
    "RawCommit",
    "Rejected",
    "capture",
    "connect",
    "cut",
]
