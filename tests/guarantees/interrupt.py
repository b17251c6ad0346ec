"""Strikes like a signal: raises an exception at the n-th place in our code where the interpreter would let one through,
which is on entering a function and on coming back from a call."""

from __future__ import annotations

import dis
import itertools
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

__all__ = ["Strike"]

ROOT = str(Path(__file__).parents[2])
OURS = (f"{ROOT}/engine/", f"{ROOT}/projections/", f"{ROOT}/tests/toy.py")


@cache
def _after_calls(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions that follow a call, as far as they have the call's own handler.

    A signal strikes at the end of the call itself. An exception raised at the next instruction is the same thing only
    where no ``with`` or ``try`` begins or ends between the two.
    """
    handlers = [(entry.start, entry.end, entry.target) for entry in dis._parse_exception_table(code)]  # type: ignore[attr-defined]

    def handler(offset: int) -> int | None:
        return next((target for start, end, target in handlers if start <= offset < end), None)

    return frozenset(
        after.offset
        for call, after in itertools.pairwise(dis.get_instructions(code))
        if call.opname.startswith("CALL") and handler(call.offset) == handler(after.offset)
    )


class Strike:
    """``with Strike(n):`` raises in the block at place n, counted from 0; ``fired`` says whether there was such a
    place."""

    def __init__(self, place: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.place = place
        self.error = error
        self.fired = False
        self.where = "nowhere"

    def __enter__(self) -> Strike:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.fired or not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        self._strike(frame)
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode" and not self.fired and frame.f_lasti in _after_calls(frame.f_code):
            self._strike(frame)
        return self._stepped

    def _strike(self, frame: FrameType) -> None:
        if self.place == 0:
            self.fired = True
            self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
            raise self.error(f"struck in {self.where}")
        self.place -= 1
