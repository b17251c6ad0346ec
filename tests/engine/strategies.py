"""Hypothesis strategies of values that refold keeps exactly."""

from __future__ import annotations

from hypothesis import strategies as st

whole_numbers = st.integers(min_value=-(2**63), max_value=2**64 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)
scalars = st.none() | st.booleans() | whole_numbers | numbers | st.text(max_size=12)

json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=5),
    max_leaves=20,
)
"""JSON values; equal ones may differ in the order of their keys."""

plain_values = st.recursive(
    st.none()
    | st.booleans()
    | whole_numbers
    | st.floats(allow_nan=False)
    | st.text(max_size=12)
    | st.binary(max_size=12),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=5),
    max_leaves=20,
)
"""What the plain encoder is given: also bytes and -0.0."""
