"""How a template makes a child that is the supervisor's.

At best with one fork: clone(2) with CLONE_PARENT makes a child of our own parent, which `os.fork` cannot be asked for.
What glibc's fork does besides the system call is done here too, as far as a process of one thread needs it:

    the thread id      that glibc keeps is written by the kernel, as there (CLONE_CHILD_SETTID)
    robust mutexes     are registered again: a child that is killed while it holds one must not stop the others for ever
    the interpreter    is told before and after, as its C API asks of whoever clones a process by himself
    at-fork handlers   (pthread_atfork) of loaded libraries cannot be run: where one has any, this is not used
    locks of glibc     need nothing: nobody else could hold them

Otherwise with two: a middle process forks the child and ends before the pid is reported, so by then the kernel has
given the child to the supervisor (a subreaper: `process.adopt_orphans`). That copies and takes down the page tables
once more, a third to a half of what a birth costs.
"""

import ctypes
import errno
import mmap
import os
import platform
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from pools.procfs import slurp

Born = Callable[[], NoReturn]

_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000  # <linux/sched.h>
_PR_GET_TID_ADDRESS = 40  # <linux/prctl.h>
# clone, get_robust_list and set_robust_list, from each architecture's <asm/unistd.h>.
_CALLS = {"x86_64": (56, 274, 273), "aarch64": (220, 100, 99), "riscv64": (220, 100, 99)}
_REGISTERS_HANDLERS = b"\0__register_atfork\0"  # what pthread_atfork calls, as a library's table of symbols names it
# glibc only defines it, and OpenBLAS's handler ends threads, of which there are none.
_HARMLESS = ("libc.so", "openblas")
_REFUSED = (errno.EINVAL, errno.EPERM, errno.ENOSYS)  # by a sandbox that knows no CLONE_PARENT

_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock: there is nobody to give it to


class Forker:
    """Makes children of this process's parent. For a process of one thread that has all its libraries loaded.

    `why_twice` is empty where one fork suffices.
    """

    def __init__(self) -> None:
        self.why_twice = ""
        try:
            self._clone = _SiblingClone()
        except OSError as error:
            self.why_twice = str(error)

    def __call__(self, born: Born) -> int:
        """The pid of a child that runs `born`. Raises `OSError`."""
        if not self.why_twice:
            try:
                return self._once(born)
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise
                self.why_twice = f"clone with CLONE_PARENT is refused: {error.strerror}"
        return _twice(born)

    def _once(self, born: Born) -> int:
        pid = self._clone()
        if pid == 0:
            born()
        return pid


class _SiblingClone:
    def __init__(self) -> None:
        """Raises `OSError`, saying what is missing, where this cannot be done, or not safely."""
        if platform.libc_ver()[0] != "glibc":
            raise OSError("the C library is not glibc")
        if (calls := _CALLS.get(platform.machine())) is None:
            raise OSError(f"the system calls of {platform.machine()} are not known")
        if library := next(_with_handlers(), None):
            raise OSError(f"{library} has at-fork handlers")
        self._number, get_robust_list, self._set_robust_list = calls
        self._thread_id = ctypes.c_void_p()
        self._robust, self._robust_size = ctypes.c_void_p(), ctypes.c_size_t()
        _checked(_libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(self._thread_id), None, None, None))
        _checked(_libc.syscall(get_robust_list, 0, ctypes.byref(self._robust), ctypes.byref(self._robust_size)))

    def __call__(self) -> int:
        """As `os.fork`: 0 in the child, its pid here."""
        flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID | signal.SIGCHLD
        python = ctypes.pythonapi
        python.PyOS_BeforeFork()
        # Architectures differ in which of the last two is the thread id; the other one is not looked at.
        pid = _libc.syscall(self._number, ctypes.c_ulong(flags), None, None, self._thread_id, self._thread_id)
        if pid == 0:
            _libc.syscall(self._set_robust_list, self._robust, self._robust_size)
            python.PyOS_AfterFork_Child()
            return 0
        number = ctypes.get_errno()
        python.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(number, os.strerror(number))
        return int(pid)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _with_handlers() -> Iterator[str]:
    """The names of what is loaded, the program itself included, and registers at-fork handlers which may matter."""
    for library in sorted(_loaded(slurp("/proc/self/maps"))):
        if not any(name in library.name for name in _HARMLESS) and _mentions(library, _REGISTERS_HANDLERS):
            yield library.name


def _loaded(maps_text: str) -> set[Path]:
    """Files with code: a library may have any name, and a program may hold its libraries in itself."""
    found = set()
    for line in maps_text.splitlines():
        _, access, _, _, _, *named = line.split(maxsplit=5)
        path = named[0] if named else ""
        if path.startswith("/") and not path.startswith("/memfd:") and ("x" in access or ".so" in path):
            found.add(Path(path))
    return found


def _mentions(path: Path, text: bytes) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        return content.find(text) >= 0


def _twice(born: Born) -> int:
    read_end, write_end = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            pid = os.fork()
            if pid == 0:
                born()
            os.write(write_end, b"%d" % pid)
        except OSError as error:
            os.write(write_end, b"-%d" % (error.errno or 0))
        finally:
            os._exit(0)
    os.close(write_end)
    try:
        os.waitpid(middle, 0)  # only now is the child the supervisor's
        pid = int(os.read(read_end, 32) or b"-0")
    finally:
        os.close(read_end)
    if pid <= 0:
        raise OSError(-pid, os.strerror(-pid) if pid else "the middle process died")
    return pid
