"""Watches one thing being done with hostile input: how it ends, how long it takes, how much memory it asks for, and
what it does that reading data never needs. It must never let an error that is not ours pass for a refusal.
"""

from __future__ import annotations

import codecs
import os
import pkgutil
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import engine
import projections
from engine.core.errors import EngineError
from tests.sweeps.damage import within
from tests.sweeps.harness import ROOT

__all__ = ["Seen", "watched"]

TOO_LONG_S: Final = 20
ROOM_BYTES: Final = 192 << 20
ROOM_PER_BYTE: Final = 120
"""Memory that one byte of input may take: an empty list is one byte of CBOR, and 72 bytes as a list in a list."""
MESSAGE_MAX: Final = 20_000

_NEVER: Final = frozenset(
    (
        "import", "exec", "compile", "pickle.find_class", "marshal.loads", "marshal.load", "code.__new__",
        "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "subprocess.Popen", "ctypes.dlopen",
        "ctypes.call_function", "socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request",
        "sqlite3.enable_load_extension", "sqlite3.load_extension", "os.chown", "os.symlink", "os.link",
    )
)  # fmt: skip
_FILES: Final = {
    "open": 0,
    "os.remove": 0,
    "os.rename": 1,
    "os.mkdir": 0,
    "os.rmdir": 0,
    "os.truncate": 0,
    "os.chmod": 0,
}
"""Events that change a file, and which argument names it."""


_OURS: Final = tuple(f"{ROOT / folder}{os.sep}" for folder in ("engine", "projections"))


@dataclass(slots=True)
class Seen:
    """How it ended: the value or the error, and every promise that was broken on the way."""

    value: Any = None
    error: BaseException | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        return self.error is not None

    @property
    def outcome(self) -> str:
        """One word for the statistics."""
        if self.error is None:
            return "taken"
        return getattr(self.error, "code", type(self.error).__name__)


class _Ears:
    """What the interpreter tells of what is done; only while somebody listens."""

    def __init__(self) -> None:
        self.heard: list[str] | None = None
        self.within: Path | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.heard is None:
            return
        if event in _NEVER:
            self.heard.append(f"{event} {arguments!r:.120}")
        elif event in _FILES and (event != "open" or _is_writing(arguments)):
            name = arguments[_FILES[event]]
            below_an_open_folder = event in ("os.remove", "os.rmdir", "os.mkdir") and arguments[-1] != -1
            if isinstance(name, int) or below_an_open_folder or (self.within is not None and self._inside(name)):
                return
            self.heard.append(f"{event} {name!r:.120}")

    def _inside(self, name: Any) -> bool:
        path = os.path.abspath(os.fsdecode(name))  # noqa: PTH100  # pathlib would ask the file system
        return path == os.devnull or path.startswith(str(self.within) + os.sep)


def _is_writing(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


_ears = _Ears()


@cache
def _installed() -> None:
    """Load everything of ours that is loaded when it is needed, so that whatever is imported later was asked for by the
    input; then listen."""
    for package in (engine, projections):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith("engine.testing") and not module.name.endswith("__main__"):
                import_module(module.name)
    for name in ("unicode-escape", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le"):
        codecs.lookup(name)  # what JSON may be written in, and an id shown
    sys.addaudithook(_ears)


@contextmanager
def _listening(folder: Path | None) -> Iterator[list[str]]:
    _installed()
    heard: list[str] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda what: heard.append(f"a dropped {what.exc_value!r:.200}")
    _ears.within, _ears.heard = folder, heard
    try:
        yield heard
    finally:
        _ears.heard = None
        sys.unraisablehook = before


@contextmanager
def _in_room(room: int) -> Iterator[None]:
    """Let the process grow by so much and no more."""
    with open("/proc/self/statm") as file:  # noqa: PTH123  # asked for every case
        now = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def watched(
    act: Callable[[], Any],
    size: int,
    *,
    folder: Path | None = None,
    allowed: tuple[type[BaseException], ...] = (EngineError,),
    room: int | None = None,
) -> Seen:
    """Do something with ``size`` bytes of hostile input; return how it ended. Only ``allowed`` errors may end it, only
    files in ``folder`` may be written, and it may take ``room`` bytes of memory (by default what the input is worth).
    """
    seen = Seen()
    with _listening(folder) as heard:
        try:
            with within(TOO_LONG_S), _in_room(ROOM_BYTES + ROOM_PER_BYTE * size if room is None else room):
                seen.value = act()
        except BaseException as error:
            seen.error = error
    if seen.error is not None:
        seen.problems += _flaws(seen.error, allowed)
        seen.error = seen.error.with_traceback(None)
    seen.problems += [f"reading did {event}" for event in dict.fromkeys(heard)]
    return seen


def _flaws(error: BaseException, allowed: tuple[type[BaseException], ...]) -> list[str]:
    """Return what is wrong with an error as the answer to hostile input."""
    chain = _chain(error)
    if any(isinstance(cause, MemoryError) or "out of memory" in str(cause)[:200] for cause in chain):
        return [f"it asked for more memory than the input is worth: {_where(error)}"]
    if any(isinstance(cause, TimeoutError) and "longer than" in str(cause) for cause in chain):
        return [f"it computed for more than {TOO_LONG_S} s: {_where(error)}"]
    if not isinstance(error, allowed):
        return [f"untyped {type(error).__name__}: {_where(error)}"]
    try:
        text = str(error)
        text.encode()
    except Exception as failed:
        return [f"the message of {type(error).__name__} cannot be shown: {type(failed).__name__}"]
    if len(text) > MESSAGE_MAX:
        return [f"the message of {type(error).__name__} has {len(text)} characters: {text:.100}"]
    return []


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    return chain


def _where(error: BaseException) -> str:
    """Return the innermost place in our own code that an error passed."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    places = [
        frame for frame in frames if f"{os.sep}engine{os.sep}" in frame.filename or "projections" in frame.filename
    ]
    frame = places[-1] if places else frames[-1]
    return f"{error!s:.160} at {Path(frame.filename).name}:{frame.lineno} {frame.name}"
