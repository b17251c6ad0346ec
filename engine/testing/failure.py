"""What a failed example leaves behind: its journal as an archive that ``refold import`` opens, and how to open it. It
must
never make a failure fail: where the journal cannot be written, the failure says so and stands.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from engine.core.errors import EngineError
from engine.core.model import Model

__all__ = ["FOLDER_VARIABLE", "Home", "ReplayDiffers", "home_of", "how_to_open", "keep_journal", "raised_within"]

FOLDER_VARIABLE: Final = "REFOLD_FAILURES"
"""The environment variable that names the folder of kept journals; without it, one in the system's temporary folder."""


class ReplayDiffers(AssertionError):
    """A restore, a replay or a twin disagrees with the run. The message names the event and the field; ``journal`` is
    the
    path of the journal that shows it, where one was kept."""

    journal: Path | None = None
    told = False  # whether it has been said what became of the journal


Home = tuple[str, str, str]
"""Where a model lives: module name, its file, and the attribute that holds it."""


def home_of(model: Any) -> Home | None:
    """Return where a model (or projection) can be imported from, None when it is no module's attribute.

    Never a script: importing it elsewhere would run it. Of several modules that have it the one is taken that its
    functions are from, else one that is no test.
    """
    found: list[Home] = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name == "__main__":
            continue
        found += [(name, file, attribute) for attribute, value in list(vars(module).items()) if value is model]
    makers = {_maker(part) for part in getattr(model, "projections", (model,))}

    def fitness(home: Home) -> tuple[bool, bool]:
        last = home[0].rpartition(".")[2]
        return home[0] in makers, not last.startswith("test_") and last != "conftest"

    return max(reversed(found), key=fitness, default=None)


def _maker(projection: Any) -> str | None:
    decide = getattr(projection, "_decide", None)  # a plain projection's own
    return getattr(decide, "__module__", None) or type(projection).__module__


def keep_journal(name: str, lines: Iterable[str]) -> Path | None:
    """Write the journal of a failure and return its path; None when there is nothing to write or no place for it."""
    text = "".join(line + "\n" for line in lines)
    if not text:
        return None
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "refold-failures")
    path = folder / f"{name}.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError:
        return None
    return path


def how_to_open(path: Path, home: Home | None, model: Model) -> str:
    """Return the line that says how to look at a kept journal."""
    from projections.model import MODEL

    if model is MODEL:
        return f"journal: {path}; open it: refold import {path}"
    if home is None:
        return f"journal: {path}; open it: REFOLD_MODEL=module:NAME refold import {path}, with the name of your model"
    module, file, attribute = home
    root = Path(file).parents[module.count(".") + (Path(file).name == "__init__.py")]
    found = "" if root == Path.cwd() else f"PYTHONPATH={shlex.quote(str(root))} "
    return f"journal: {path}; open it: {found}REFOLD_MODEL={module}:{attribute} refold import {path}"


def raised_within(model: Model, error: Exception) -> ReplayDiffers | None:
    """Return what an error of a projection's own function comes to: the function and the event it was at. None when the
    error came from elsewhere, or is one of refold's: those are answers."""
    if isinstance(error, (EngineError, ReplayDiffers)):
        return None
    folds = {_code(fold) for projection in model.projections for fold in projection.evolve.values()}
    decides = {_code(function) for p in model.projections for function in (p.decide, p.admit)}
    raised = f"raised {type(error).__name__}: {error}"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        given: list[Any] = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
        if code in decides:
            return ReplayDiffers(f"{code.co_name} {raised}; it was given {given[-2]!r}")
        if code in folds:
            *_, wire, seq = given
            event_type = model.catalog.type_of(wire)
            return ReplayDiffers(
                f"evolve of event {seq} ({event_type.label}) {raised}; evolve never refuses: what must not happen, "
                f"decide refuses. The event: {event_type.data(wire)}"
            )
    return None


def _code(function: Any) -> Any:
    return getattr(getattr(function, "__func__", function), "__code__", None)
