"""The SQL read model: the runs of a store as tables, for any SQLite tool. It must never be a place of its own for
facts: it is a projection of the journal, which makes it anew at any time."""

from engine.readmodel.answer import Answer
from engine.readmodel.model import ReadModel
from engine.readmodel.place import beside
from engine.readmodel.update import Fault, Updated

__all__ = ["Answer", "Fault", "ReadModel", "Updated", "beside"]
