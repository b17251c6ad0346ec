"""A tracer of system calls in plain Python (ctypes and the kernel's ptrace): stops a forked child at the calls that
matter to it, and lets it go on, fail, be cut short or be killed there. It must never need a compiler or a tool that a
new machine lacks.

A seccomp filter in the child makes the kernel stop at the watched calls only; all others run at full speed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Call", "Forbidden", "Traced", "why_forbidden"]

# The same calls under the numbers of the two architectures; 64-bit ARM has only the newer ones.
_NUMBERS: Final[dict[str, dict[str, int]]] = {
    "x86_64": {
        "read": 0, "write": 1, "close": 3, "mmap": 9, "pread64": 17, "pwrite64": 18, "writev": 20, "fcntl": 72,
        "fsync": 74, "fdatasync": 75, "truncate": 76, "ftruncate": 77, "rename": 82, "mkdir": 83, "unlink": 87,
        "chmod": 90, "openat": 257, "unlinkat": 263, "renameat": 264, "fallocate": 285, "pwritev": 296,
        "renameat2": 316,
    },
    "aarch64": {
        "read": 63, "write": 64, "close": 57, "mmap": 222, "pread64": 67, "pwrite64": 68, "writev": 66, "fcntl": 25,
        "fsync": 82, "fdatasync": 83, "truncate": 45, "ftruncate": 46, "fchmodat": 53, "openat": 56, "unlinkat": 35,
        "renameat": 38, "fallocate": 47, "pwritev": 70, "renameat2": 276,
    },
}  # fmt: skip
# Where the registers lie in the block that PTRACE_GETREGSET hands out, counted in 64-bit words.
_REGISTERS: Final = {"x86_64": (27, 10, 12, 15), "aarch64": (34, 0, 2, None)}  # words, result, third argument, number

_TRACEME, _CONT, _SYSCALL, _SETOPTIONS, _GETREGSET, _SETREGSET, _SYSCALL_INFO = 0, 7, 24, 0x4200, 0x4204, 0x4205, 0x420E
_OPTIONS: Final = 0x1 | 0x80 | 0x00100000  # mark system-call stops, stop at seccomp's, kill with the tracer
_SECCOMP_EVENT: Final = 7
_SYSTEM_CALL_STOP: Final = signal.SIGTRAP | 0x80 if sys.platform == "linux" else 0
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_RET_TRACE, _RET_ALLOW = 0x7FF00000, 0x7FFF0000
_FIRST_ARGUMENT_IS_FD: Final = frozenset(
    ("read", "write", "close", "pread64", "pwrite64", "writev", "pwritev", "fcntl", "fsync", "fdatasync", "ftruncate",
     "fallocate")
)  # fmt: skip
_PATH_ARGUMENT: Final = {"openat": 1, "unlink": 0, "unlinkat": 1, "rename": 0, "renameat": 1, "renameat2": 1,
                         "truncate": 0, "chmod": 0, "fchmodat": 1, "mkdir": 0}  # fmt: skip
_TARGET_ARGUMENT: Final = {"rename": 1, "renameat": 3, "renameat2": 3}


class Forbidden(Exception):
    """This machine does not let a process trace its own child, and why."""


class _SyscallInfo(ctypes.Structure):
    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("ip", ctypes.c_uint64),
        ("sp", ctypes.c_uint64),
        ("values", ctypes.c_uint64 * 8),  # entry: number and arguments; exit: result
    )


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@dataclass(slots=True)
class Call:
    """A watched system call, stopped before it happens: its name, its arguments and the file it concerns."""

    name: str
    arguments: tuple[int, ...]
    path: str
    target: str = ""
    """For a rename, what the file will be called."""
    data: bytes = field(default=b"", repr=False)
    """For a write, its bytes, when the tracer was asked to read them."""


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
    return libc


class Traced:
    """A forked child that runs ``work`` and stops at every watched call on a file under ``folder``.

    Use it as a context manager: whatever happens, the child does not outlive the block. ``work`` runs in the child and
    must not return to the parent's code; its exit code is 0, or 99 after an exception that it let through.
    """

    def __init__(
        self, work: Callable[[], None], watch: Iterable[str], folder: str, *, also: int = -1, with_data: bool = False
    ) -> None:
        self._numbers = _NUMBERS.get(platform.machine())
        if sys.platform != "linux" or self._numbers is None:
            raise Forbidden(f"no tracer for {sys.platform} on {platform.machine()}")
        self._names = {self._numbers[name]: name for name in watch if name in self._numbers}
        self._folder = folder
        self._also = also
        self._with_data = with_data
        self._libc = _libc()
        self.status: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._be_traced(work)

    def _be_traced(self, work: Callable[[], None]) -> None:
        code = 98
        try:
            if self._libc.ptrace(_TRACEME, 0, None, None) == 0 and self._filter():
                os.kill(os.getpid(), signal.SIGSTOP)
                code = 99
                work()
                code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _filter(self) -> bool:
        steps = [(0x20, 0, 0, 0)]  # load the number of the call
        for index, number in enumerate(self._names):
            steps.append((0x15, len(self._names) - index, 0, number))  # on a match, jump to the last step
        steps += [(0x06, 0, 0, _RET_ALLOW), (0x06, 0, 0, _RET_TRACE)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
        program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
        prctl = self._libc.prctl
        return (
            prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            and prctl(_PR_SET_SECCOMP, _FILTER, ctypes.addressof(program), 0, 0) == 0
        )

    def __enter__(self) -> Traced:
        if not self._wait() or os.WSTOPSIG(self.status or 0) != signal.SIGSTOP:
            raise Forbidden(f"the kernel refused to trace a child (exit {os.waitstatus_to_exitcode(self.status or 0)})")
        self._ptrace(_SETOPTIONS, None, _OPTIONS)
        self._memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.kill()
        os.close(self._memory)

    @property
    def running(self) -> bool:
        """Whether the child is still there."""
        return self.status is None or os.WIFSTOPPED(self.status)

    def next_call(self) -> Call | None:
        """Let the child run to the next watched call, and stop before it happens; None when the child has ended."""
        number = 0
        while True:
            self._ptrace(_CONT, None, number)
            if not self._wait():
                return None
            number = os.WSTOPSIG(self.status or 0)
            if (self.status or 0) >> 16 == _SECCOMP_EVENT:
                number = 0
                call = self._call()
                if call is not None:
                    return call
            elif number in (signal.SIGTRAP, _SYSTEM_CALL_STOP):
                number = 0

    def finish(self) -> int:
        """Let the stopped call happen; return its result, a negative errno when it failed."""
        self._ptrace(_SYSCALL, None, 0)
        while self._wait() and os.WSTOPSIG(self.status or 0) != _SYSTEM_CALL_STOP:
            self._ptrace(_SYSCALL, None, os.WSTOPSIG(self.status or 0))
        if not self.running:
            return 0
        return ctypes.c_int64(self._info().values[0]).value

    def fail(self, errno: int) -> None:
        """Let the stopped call fail with ``errno``, without happening."""
        _, result, _, number = _REGISTERS[platform.machine()]
        if number is None:
            self._set(0x404, struct.pack("=i", -1))  # NT_ARM_SYSTEM_CALL
        else:
            self._poke(number, -1)
        self.finish()
        self._poke(result, -errno)

    def shorten(self, size: int) -> None:
        """Let the stopped write take ``size`` bytes only."""
        self._poke(_REGISTERS[platform.machine()][2], size)
        self.finish()

    def kill(self) -> None:
        """End the child with SIGKILL, where it is."""
        os.kill(self.pid, signal.SIGKILL)
        while self._wait():
            self._ptrace(_CONT, None, 0)

    def read(self, address: int, size: int) -> bytes:
        """Return bytes of the stopped child's memory."""
        return os.pread(self._memory, size, address)

    # -- below: the kernel ------------------------------------------------------------------------------------------

    def _call(self) -> Call | None:
        info = self._info()
        name = self._names[info.values[0]]
        arguments = tuple(info.values[1:7])
        if name in _FIRST_ARGUMENT_IS_FD:
            path = self._path_of(ctypes.c_int(arguments[0]).value)
        elif name == "mmap":
            path = self._path_of(ctypes.c_int(arguments[4]).value)
        else:
            path = self._text(arguments[_PATH_ARGUMENT[name]])
        if not path.startswith(self._folder):
            return None
        target = self._text(arguments[_TARGET_ARGUMENT[name]]) if name in _TARGET_ARGUMENT else ""
        data = b""
        if self._with_data and name in ("write", "pwrite64"):
            data = os.pread(self._memory, arguments[2], arguments[1])
        return Call(name, arguments, path, target, data)

    def _path_of(self, fd: int) -> str:
        if fd == self._also:
            return self._folder
        try:
            return str(Path(f"/proc/{self.pid}/fd/{fd}").readlink())
        except OSError:
            return ""

    def _text(self, address: int) -> str:
        raw = b""
        while b"\0" not in raw:
            size = 256 - (address + len(raw)) % 256  # never across a page that may not be there
            raw += os.pread(self._memory, size, address + len(raw))
        return os.fsdecode(raw.partition(b"\0")[0])

    def _info(self) -> _SyscallInfo:
        info = _SyscallInfo()
        self._ptrace(_SYSCALL_INFO, ctypes.sizeof(info), ctypes.addressof(info))
        return info

    def _poke(self, register: int, value: int) -> None:
        words = _REGISTERS[platform.machine()][0]
        block = (ctypes.c_uint64 * words)()
        vector = _IoVec(ctypes.addressof(block), ctypes.sizeof(block))
        self._ptrace(_GETREGSET, 1, ctypes.addressof(vector))
        block[register] = value & (2**64 - 1)
        self._ptrace(_SETREGSET, 1, ctypes.addressof(vector))

    def _set(self, kind: int, data: bytes) -> None:
        block = ctypes.create_string_buffer(data, len(data))
        vector = _IoVec(ctypes.addressof(block), len(data))
        self._ptrace(_SETREGSET, kind, ctypes.addressof(vector))

    def _ptrace(self, request: int, address: int | None, data: int | None) -> None:
        if self._libc.ptrace(request, self.pid, address, data) < 0:
            number = ctypes.get_errno()
            if number == 3:  # the child was killed from outside; the next wait says so
                return
            raise OSError(number, f"ptrace {request:#x}: {os.strerror(number)}")

    def _wait(self) -> bool:
        """Wait for the child to stop; False when it has ended instead."""
        _, self.status = os.waitpid(self.pid, 0)
        return os.WIFSTOPPED(self.status)


def why_forbidden() -> str | None:
    """Return why this machine cannot trace, or None when it can; found out by doing it once."""
    try:
        with Traced(lambda: None, ("openat",), "/nowhere/") as traced:
            while traced.next_call() is not None:
                traced.finish()
    except (Forbidden, OSError) as error:
        return str(error)
    return None
