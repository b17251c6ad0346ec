"""The memory of a process, simulated: what a projection's functions keep outside their state. A restart must lose it,
and
two processes must not share it, so that whatever relies on it is found in a test that runs in one process.

Found are the module variables, closures, defaults, class attributes and objects that the functions of a model can reach
within their own package. What hides deeper is left to :mod:`engine.testing.elsewhere`, which starts a real process.
"""

from __future__ import annotations

import dis
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, TypeAlias

from engine.core.model import Model

__all__ = ["Memory", "ProcessMemory"]

_CONTAINERS: Final = (dict, list, set, bytearray, deque)
_BINDING: Final = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "STORE_DEREF"))
_NOTHING: Final = nullcontext()
_OURS: Final = ("engine",)  # refold's own machinery keeps caches of pure functions only


@dataclass(frozen=True, slots=True)
class _Slot:
    """One variable: its name, how to read it and how to bind it anew."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class _Bound:
    """What a variable is bound to in an image, and what that holds when it is a container."""

    value: Any
    content: Any


_Image: TypeAlias = dict[int, Any]
"""What differs from a process that has just started: number of a variable or container -> what it is or holds."""


class Memory:
    """Everything outside their states that the functions of a model can reach and change."""

    def __init__(self, model: Model) -> None:
        self._slots: list[_Slot] = []
        self._held: list[Any] = []
        self._caches: list[Any] = []
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # keeps every visited object alive, so that ids stay theirs
        self._codes: list[CodeType] = []
        self._attributes: list[tuple[str, dict[str, Any]]] = []  # of functions
        roots = list(_roots(model))
        self._packages = {_package(root) for root in roots} - {None, *_OURS}
        for root in roots:
            self._visit(root)
        bound_anew = {name for code in self._codes for name in _stored(code)}
        for name, attributes in self._attributes:
            if attributes or name in bound_anew:
                self._visit(attributes)
        self._slots = [slot for slot in self._slots if slot.name in bound_anew]
        self._bound = [slot.get() for slot in self._slots]
        self._content = [_copied(held) for held in self._held]

    def __bool__(self) -> bool:
        return bool(self._slots or self._held or self._caches)

    def process(self) -> ProcessMemory:
        """Return the memory of a process that has just started."""
        return ProcessMemory(self, {})

    # -- images -------------------------------------------------------------------------------------------------------

    def image(self) -> _Image:
        """Return what differs now from a process that has just started."""
        held = [
            (number, _copied(now))
            for number, (now, first) in enumerate(zip(self._held, self._content, strict=True))
            if (list(now) if type(now) is deque else now) != first
        ]
        bound = [
            (~number, _Bound(now, _copied(now)))
            for number, (slot, first) in enumerate(zip(self._slots, self._bound, strict=True))
            if (now := slot.get()) is not first
        ]
        return dict(held + bound)

    def install(self, image: _Image, instead_of: _Image) -> None:
        """Make the memory what an image says, where it is now what another one says."""
        for number in {**instead_of, **image}:
            if number >= 0:
                _refill(self._held[number], _copied(image.get(number, self._content[number])))
                continue
            bound = image.get(number)
            self._slots[~number].put(self._bound[~number] if bound is None else bound.value)
            if bound is not None and isinstance(bound.value, _CONTAINERS):
                _refill(bound.value, _copied(bound.content))
        for cache in self._caches:
            cache.cache_clear()

    # -- what there is ------------------------------------------------------------------------------------------------

    def _visit(self, value: Any) -> None:
        if id(value) in self._seen:
            return
        if isinstance(value, _CONTAINERS):
            self._remember(value)
            self._held.append(value)
            for item in list(value.values()) if isinstance(value, dict) else list(value):
                if callable(item) or hasattr(item, "__dict__"):
                    self._visit(item)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._visit(value.__func__)
            self._visit(value.__self__)
        elif isinstance(value, partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self._visit(part)
        elif hasattr(value, "cache_clear") and hasattr(value, "__wrapped__"):
            self._remember(value)
            self._caches.append(value)
            self._visit(value.__wrapped__)
        elif isinstance(value, type):
            self._class(value)
        elif _package(type(value)) in self._packages and isinstance(getattr(value, "__dict__", None), dict):
            self._remember(value)
            self._visit(value.__dict__)
            self._visit(type(value))
        elif type(value).__module__.startswith("engine.core.plain") and hasattr(value, "__dict__"):
            self._remember(value)  # a plain projection: its functions are the user's
            for part in value.__dict__.values():
                self._visit(part)

    def _remember(self, value: Any) -> None:
        self._seen.add(id(value))
        self._kept.append(value)

    def _function(self, function: FunctionType) -> None:
        self._remember(function)
        for part in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._visit(part)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._cell(name, cell)
        if _package(function) not in self._packages:
            return
        self._attributes.append((function.__name__, function.__dict__))
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            self._visit(wrapped)
        self._codes.append(function.__code__)
        names = set(_names(function.__code__))
        self._namespace(function.__globals__, names)

    def _namespace(self, space: dict[str, Any], names: set[str]) -> None:
        for name in sorted(names & space.keys()):
            value = space[name]
            if isinstance(value, ModuleType):
                if value.__name__.partition(".")[0] in self._packages and id(value) not in self._seen:
                    self._remember(value)
                    self._namespace(value.__dict__, names)
            elif isinstance(value, (FunctionType, type)):
                self._visit(value)
            else:
                self._item(space, name)

    def _item(self, space: dict[str, Any], name: str) -> None:
        self._slots.append(_Slot(name, lambda: space.get(name), lambda value: space.__setitem__(name, value)))
        self._visit(space[name])

    def _cell(self, name: str, cell: Any) -> None:
        if id(cell) in self._seen:
            return
        self._remember(cell)
        try:
            value = cell.cell_contents
        except ValueError:  # empty until the function around it has run on
            return
        self._slots.append(_Slot(name, lambda: cell.cell_contents, lambda new: setattr(cell, "cell_contents", new)))
        self._visit(value)

    def _class(self, kind: type[Any]) -> None:
        if kind.__module__.partition(".")[0] not in self._packages or hasattr(kind, "model_fields"):
            return
        self._remember(kind)
        for name, value in list(vars(kind).items()):
            if name.startswith("__") and name != "__init__":
                continue
            inner = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(inner, FunctionType):
                self._visit(inner)
            elif isinstance(inner, (*_CONTAINERS, int, float)) or inner is None:
                self._slots.append(_attribute(kind, name))
                self._visit(inner)
        for base in kind.__bases__:
            self._visit(base)


class ProcessMemory:
    """The memory of one simulated process. Inside ``with`` it is the memory that the functions see."""

    def __init__(self, memory: Memory, image: _Image) -> None:
        self._memory = memory
        self._image = image
        self._running = False

    def branch(self) -> ProcessMemory:
        """Return the memory of another process that remembers the same; this one is left as it is."""
        return ProcessMemory(self._memory, {number: _copied(content) for number, content in self._image.items()})

    def running(self) -> AbstractContextManager[None]:
        """Run a block as this process; what it leaves behind is there the next time, and nowhere else."""
        if not self._memory or self._running:  # nothing to keep apart, or running already
            return _NOTHING
        return self._installed()

    @contextmanager
    def _installed(self) -> Iterator[None]:
        memory = self._memory
        outside = memory.image()
        memory.install(self._image, outside)
        self._running = True
        try:
            yield
        finally:
            self._running = False
            self._image = memory.image()
            memory.install(outside, self._image)


def _attribute(owner: Any, name: str) -> _Slot:
    return _Slot(name, lambda: vars(owner).get(name), lambda value: setattr(owner, name, value))


def _roots(model: Model) -> Iterator[Any]:
    """Yield the functions and classes that a model is made of."""
    for projection in model.projections:
        yield projection
        yield from projection.evolve.values()
        for name in ("decide", "admit", "initial", "resolve", "document"):
            if hasattr(projection, name):
                yield getattr(projection, name)
        for step in projection.upcasts:
            yield step.lift
        state = projection.initial()
        yield type(state)
        for table in state.tables:
            yield table.load
            if table.refer is not None:
                yield table.refer
        for name in ("_decide", "_admit", "_initial"):  # a plain projection's own
            if getattr(projection, name, None) is not None:
                yield getattr(projection, name)
    for functions in (*model.reactions.values(), *model.guards.values()):
        yield from functions


def _package(value: Any) -> str | None:
    module = getattr(value, "__module__", None) or getattr(type(value), "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else None


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function's code and the code inside it mention."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _stored(code: CodeType) -> Iterator[str]:
    """Yield the names of variables and attributes that a function's code and the code inside it bind, and of the
    variables whose attributes it binds."""
    last = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in _BINDING:
            yield instruction.argval
            if last is not None and last.opname == "LOAD_GLOBAL":
                yield last.argval
        last = instruction
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _stored(constant)


def _copied(value: Any) -> Any:
    """Return a copy of a container and the containers in it; everything else is shared."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, deque)):
        return [_copied(item) for item in value]
    if isinstance(value, (set, bytearray)):
        return value.copy()
    if isinstance(value, _Bound):
        return _Bound(value.value, _copied(value.content))
    return value


def _refill(held: Any, content: Any) -> None:
    """Make a container hold what it held, in place."""
    if isinstance(held, dict):
        if held != content or list(held) != list(content):
            held.clear()
            held.update(content)
    elif isinstance(held, (list, bytearray)):
        held[:] = content
    elif isinstance(held, deque):
        held.clear()
        held.extend(content)
    elif held != content:
        held.clear()
        held.update(content)
