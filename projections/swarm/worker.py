"""Worker summaries: one worker as a manager sees it. A summary is a picture; it must never be the place where a
worker's state lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.core.codec import encode
from engine.core.errors import InvalidValue
from engine.core.fields import BOOL, TEXT, U32, U64, one_of
from projections.swarm.shape import field_of, leaf, maybe, shaped
from projections.swarm.transitions import PHASES
from projections.swarm.value import Kind, RecordValue, WorkerId

__all__ = ["SUMMARY", "WorkerSummary", "derived_phase"]

SUMMARY: Final = shaped(
    {
        "id": leaf(U64),
        "consecutive_failures": leaf(U32),
        "history_len": leaf(U64),
        "has_escalation": leaf(BOOL),
    },
    {
        "last_action": maybe(leaf(TEXT)),
        "last_success": maybe(leaf(BOOL)),
        "last_output": maybe(leaf(TEXT)),
        "phase": leaf(one_of("worker phase", PHASES)),
    },
)


class WorkerSummary(RecordValue):
    """One worker as a manager sees it. ``phase`` is derived: idle, working, escalated or done."""

    __slots__ = ("_phase",)
    KIND = Kind("worker summary", SUMMARY, {"last_action": None, "last_success": None, "last_output": None})

    _phase: str

    def __init__(
        self,
        id: WorkerId,
        *,
        consecutive_failures: int = 0,
        last_action: str | None = None,
        last_success: bool | None = None,
        last_output: str | None = None,
        history_len: int = 0,
        has_escalation: bool = False,
        phase: str | None = None,
    ) -> None:
        record = {
            "id": id,
            "consecutive_failures": consecutive_failures,
            "last_action": last_action,
            "last_success": last_success,
            "last_output": last_output,
            "history_len": history_len,
            "has_escalation": has_escalation,
        }
        record["phase"] = derived_phase(record) if phase is None else phase
        self._build(record)
        object.__setattr__(self, "_phase", self._record["phase"])

    @classmethod
    def new(cls, id: WorkerId) -> WorkerSummary:
        """Return the summary of a worker that has done nothing yet."""
        return cls(id)

    @classmethod
    def trusted(cls, record: dict[str, Any], phase: str | None = None) -> WorkerSummary:
        """Return the summary of a checked record; ``phase`` when the context knows it better than the record."""
        value = super().trusted(record)
        object.__setattr__(value, "_phase", phase or record.get("phase") or derived_phase(record))
        return value

    @property
    def id(self) -> WorkerId:
        """The worker's number."""
        number: int = self._record["id"]
        return number

    @property
    def consecutive_failures(self) -> int:
        """Failures since the last success."""
        count: int = self._record["consecutive_failures"]
        return count

    @property
    def last_action(self) -> str | None:
        """The latest action, or None before the first."""
        found: str | None = self._get("last_action")
        return found

    @property
    def last_success(self) -> bool | None:
        """Whether the latest action succeeded, or None before the first."""
        found: bool | None = self._get("last_success")
        return found

    @property
    def last_output(self) -> str | None:
        """What the latest action gave, or None."""
        found: str | None = self._get("last_output")
        return found

    @property
    def history_len(self) -> int:
        """How many actions the worker has completed."""
        count: int = self._record["history_len"]
        return count

    @property
    def has_escalation(self) -> bool:
        """Whether an escalation of this worker is open."""
        found: bool = self._record["has_escalation"]
        return found

    @property
    def phase(self) -> str:
        """The worker's phase: one of PHASES."""
        return self._phase

    def with_phase(self, phase: str) -> WorkerSummary:
        """Return a copy in another phase."""
        return self._with(phase=phase)

    def escalated(self) -> WorkerSummary:
        """Return a copy that has an open escalation."""
        return self._with(has_escalation=True, **({} if self._phase == "done" else {"phase": "escalated"}))

    def _with(self, **changes: Any) -> WorkerSummary:
        try:
            return WorkerSummary.trusted(field_of(self.KIND.what, SUMMARY).check({**self._record, **changes}))
        except InvalidValue as error:
            raise error.at(self.KIND.what) from None

    def _identity(self) -> bytes:
        return encode(sorted({**self.KIND.absent, **self._record, "phase": self._phase}.items()))


def derived_phase(record: Mapping[str, Any]) -> str:
    """Return the phase that a summary alone implies, for records that do not state it."""
    if record["has_escalation"]:
        return "escalated"
    return "working" if record["history_len"] else "idle"
