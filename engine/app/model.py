"""The model that the command line works with: refold's own projections, or those of the program that ``REFOLD_MODEL``
names. It must never be named by a store or a file: what is imported, the user alone says.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from engine.app.shell import WRONG_USAGE, Failed

if TYPE_CHECKING:
    from engine.core.model import Model

__all__ = ["MODEL_VARIABLE", "named_model"]

MODEL_VARIABLE: Final = "REFOLD_MODEL"
_HINT: Final = f"{MODEL_VARIABLE} is package.module:NAME of a Model or a projection, found from the current folder"


def named_model() -> Model:
    """Return the model to work with. Raises Failed when ``REFOLD_MODEL`` names none."""
    from engine.core.model import Model

    name = os.environ.get(MODEL_VARIABLE)
    if not name:
        from projections.model import MODEL

        return MODEL
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise _unusable(f"{name!r} is not of the form module:NAME")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as 'python -m' finds modules
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
        return found if isinstance(found, Model) else Model((found,))
    except Exception as error:  # importing runs the user's code, which may raise anything
        raise _unusable(f"{name!r} cannot be loaded: {type(error).__name__}: {error}") from error


def _unusable(problem: str) -> Failed:
    return Failed({"code": "wrong_usage", "message": problem, "hint": _HINT}, WRONG_USAGE)
