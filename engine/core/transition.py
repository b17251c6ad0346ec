"""Transitions as data: the one shape in which every projection writes its life cycles. It must never hold a condition;
a guard that depends on more than the state belongs to the decider and is said in ``note``.

Decide, admit, the tests and the diagrams in the documents read the same tuple of :class:`Transition`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Transition", "allowed", "mermaid", "states"]


class Transition(NamedTuple):
    """One step of a life cycle: ``event`` takes a subject from ``source`` (None: it does not exist yet) to
    ``target``."""

    source: str | None
    target: str
    event: str
    note: str = ""


def allowed(table: Iterable[Transition], source: str | None) -> list[str]:
    """Return the names of the events that are legal in ``source``, each once, in the order of the table."""
    return list(dict.fromkeys(step.event for step in table if step.source == source))


def states(table: Iterable[Transition]) -> list[str]:
    """Return every state of the table, each once, in order of first mention."""
    return list(dict.fromkeys(state for step in table for state in (step.source, step.target) if state is not None))


def mermaid(table: Iterable[Transition]) -> str:
    """Return the table as a Mermaid state diagram, one arrow a step; a state that nothing leaves ends the diagram.

    The text is a pure function of the table, so a document can be checked for freshness by comparing strings.
    """
    steps = tuple(table)
    lines = ["stateDiagram-v2"]
    arrows: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        label = step.event.rpartition(".")[2].replace("_", " ") + (f" ({step.note})" if step.note else "")
        arrows.setdefault((step.source or "[*]", step.target), []).append(_label(label))
    for (source, target), labels in arrows.items():
        lines.append(f"    {source} --> {target}: {'<br/>'.join(labels)}")
    left = {step.source for step in steps}
    lines.extend(f"    {state} --> [*]" for state in states(steps) if state not in left)
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Return text without the two characters that end or split a Mermaid label."""
    return text.replace(";", ",").replace(":", " -")
