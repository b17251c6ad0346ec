"""Transitions as data: what can be read off a table."""

from __future__ import annotations

from engine.core.transition import Transition, allowed, mermaid, states

TABLE = (
    Transition(None, "new", "thing.made"),
    Transition("new", "old", "thing.aged", "slowly; surely: yes"),
    Transition("new", "new", "thing.renamed"),
    Transition("new", "old", "thing.worn_out"),
)


def test_allowed_names_each_event_once_in_the_order_of_the_table() -> None:
    """The events legal in a state come from the table alone; a final state allows none."""
    assert allowed(TABLE, "new") == ["thing.aged", "thing.renamed", "thing.worn_out"]
    assert allowed(TABLE, None) == ["thing.made"]
    assert allowed(TABLE, "old") == []


def test_states_come_in_order_of_first_mention() -> None:
    """Every state of the table is listed once."""
    assert states(TABLE) == ["new", "old"]


def test_the_diagram_is_one_string_for_one_table() -> None:
    """Mermaid text joins the events between two states, marks the start and the end, and escapes its own marks."""
    assert mermaid(TABLE) == (
        "stateDiagram-v2\n"
        "    [*] --> new: made\n"
        "    new --> old: aged (slowly, surely - yes)<br/>worn out\n"
        "    new --> new: renamed\n"
        "    old --> [*]\n"
    )
