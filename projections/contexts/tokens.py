"""Token estimates and the one compact JSON text they count. It must never ask a tokenizer: the estimate is a rule of
the record, and every reader has to get the same number.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

__all__ = ["MESSAGE_OVERHEAD", "compact", "text_tokens", "value_tokens"]

MESSAGE_OVERHEAD: Final = 4
"""Tokens that a message costs beside its body."""

_EXPONENT: Final = re.compile(r"\de[+-]\d")
_DECIMAL_DOWN_TO: Final = -5


def text_tokens(text: str) -> int:
    """Return the estimate of a text: a quarter of its code points, rounded up."""
    return (len(text) + 3) // 4


def value_tokens(value: Any) -> int:
    """Return the estimate of a JSON value: a string counts as text, null as 1, anything else as its compact text."""
    if type(value) is str:
        return (len(value) + 3) // 4
    if value is None:
        return 1
    return (len(compact(value)) + 3) // 4


def compact(value: Any) -> str:
    """Return a JSON value as text: keys sorted, no spaces, non-ASCII unescaped, floats as the record's runtime writes
    them."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    # Python and the runtime disagree only about floats with an exponent (1e-07 against 1e-7). The text shows whether
    # there can be one; most values pay for the look and nothing else.
    return _written(value) if _EXPONENT.search(text) else text


def _written(value: Any) -> str:
    if type(value) is float:
        return _float_text(value)
    if type(value) is list:
        return f"[{','.join(map(_written, value))}]"
    if type(value) is dict:
        return f"{{{','.join(f'{compact(key)}:{_written(value[key])}' for key in sorted(value))}}}"
    return json.dumps(value, ensure_ascii=False)


def _float_text(value: float) -> str:
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits
    if int(exponent) == _DECIMAL_DOWN_TO:  # the runtime writes 0.00001 where Python already takes an exponent
        sign = "-" if digits.startswith("-") else ""
        return f"{sign}0.0000{digits.lstrip('-').replace('.', '')}"
    return f"{digits}e{int(exponent)}"
