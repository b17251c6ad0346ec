"""Checkers: the check of an event's fields as one function, made from its field table. It must never accept what the
fields' own checks refuse, nor give a value that they would have changed.

Checking every field by a call of its own costs more than everything else that an append does. Most field types are a
comparison or two, though, so these are written out one after another (a type's ``quick``), as dataclasses write their
constructors. Whatever does not pass them goes to the slow way, which decides, and names what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from engine.core.errors import InvalidValue
from engine.core.fields import Checked, Field

__all__ = ["Check", "checker"]

Check: TypeAlias = Callable[[Mapping[str, Any]], list[Any]]
"""``check({field: value})``: the event as stored. Raises InvalidValue."""

_SOURCE: Final = """\
def check(data):
    try:
        get = data.get
        {values}
    except refused:
        return slowly(data)
    if {tests}:
        return [tag, 0, {names}]
    return slowly(data)
"""


def checker(tag: int | str, fields: Sequence[Field], slowly: Check) -> Check:
    """Return the checker of an event with these fields. ``slowly`` says what is to become of what is not quickly seen
    to be right; the source holds no text of the catalogue, only names made here."""
    scope: dict[str, Any] = {"tag": tag, "slowly": slowly, "refused": InvalidValue, "type": type}

    def name(value: Any) -> str:
        named = f"c{len(scope)}"
        scope[named] = value
        return named

    values, tests, may_be_missing = [], [], False
    for index, column in enumerate(fields):
        value = f"v{index}"
        kind = column.type if isinstance(column.type, Checked) else Checked("", column.type.check)
        if kind.quick is None:
            values.append(f"{value} = {name(kind.check)}(get({name(column.name)}))")
        else:
            values.append(f"{value} = get({name(column.name)})")
            tests.append(kind.quick(value, name))
        may_be_missing |= kind.quick is None or kind.takes_none
    # Where no field may be None, as many keys as fields are the fields themselves.
    keys = name(frozenset(column.name for column in fields))
    tests.append(f"{keys}.issuperset(data)" if may_be_missing else f"len(data) == {len(fields)}")
    source = _SOURCE.format(
        values="\n        ".join(values),
        tests=" and ".join(tests),
        names=", ".join(f"v{i}" for i in range(len(fields))),
    )
    exec(compile(source, f"<checker of {tag}>", "exec"), scope)
    made: Check = scope["check"]
    return made
