"""A filter of system calls, for what neither a limit, a user nor Landlock keeps from a job (Linux 3.17).

A process may set the limits, the priority and the scheduling of any other one of its user: an RLIMIT_CPU of 1 s is as
good as a SIGKILL, and looks like the victim's own fault. A job may do so to itself only, and the limit that carries its
mark (`process.MARK`) nobody in it may change. What would stay after it, or be memory that no reading shows, it cannot
make: System V shared memory, semaphores and queues, POSIX queues, and mounts, also in a user namespace of its own.

The filter sees numbers, never what a pointer points to, and not who asks. So "itself" is what asks for pid 0.
"""

import ctypes
import errno
import os
import resource
import struct
from dataclasses import dataclass

# <linux/seccomp.h>, <linux/bpf_common.h>
_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2
_SPEC_ALLOW = 1 << 2  # older kernels otherwise slow a filtered process down, against attacks that this is no part of
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _JUMP_EQUAL, _JUMP_FROM, _RETURN, _TO_X, _OR_X = 0x20, 0x15, 0x35, 0x06, 0x07, 0x4C
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000  # the same calls of x86-64 under other numbers
_STEP = struct.Struct("=HBBI")  # struct sock_filter

_PRIO_USER, _IOPRIO_WHO_USER = 2, 3  # all processes of a user, and 0 is one's own


@dataclass(frozen=True, slots=True)
class _Test:
    """One look at an argument: what follows where it has the value and where not, None being the next test."""

    argument: int
    value: int
    equal: bool | None
    other: bool | None
    is_pointer: bool = False  # of 64 bits; the kernel itself looks at only 32 of a pid


@dataclass(frozen=True, slots=True)
class _Rule:
    """When a call is allowed, and what it returns otherwise: an error, or 0 for having done nothing."""

    tests: tuple[_Test, ...]
    otherwise: int


_IS_SELF = _Test(0, 0, equal=True, other=False)
_WHOSE = _Test(1, 0, equal=True, other=False)
_NEVER: tuple[_Test, ...] = ()
_RULES = {
    "prlimit64": _Rule(
        (
            _Test(2, 0, equal=True, other=None, is_pointer=True),  # no new limit: it only asks
            _Test(0, 0, equal=None, other=False),
            _Test(1, resource.RLIMIT_RSS, equal=False, other=True),
        ),
        errno.EPERM,
    ),
    "setrlimit": _Rule((_Test(0, resource.RLIMIT_RSS, equal=False, other=True),), errno.EPERM),
    "setpriority": _Rule((_Test(0, _PRIO_USER, equal=False, other=None), _WHOSE), errno.EPERM),
    "ioprio_set": _Rule((_Test(0, _IOPRIO_WHO_USER, equal=False, other=None), _WHOSE), errno.EPERM),
    "sched_setattr": _Rule((_IS_SELF,), errno.EPERM),
    # The C library does these to a thread that it makes, by number: an error there means that no thread is made.
    "sched_setaffinity": _Rule((_IS_SELF,), 0),
    "sched_setscheduler": _Rule((_IS_SELF,), 0),
    "sched_setparam": _Rule((_IS_SELF,), 0),
    # As a kernel without them answers, so that programs do with something else.
    "shmget": _Rule(_NEVER, errno.ENOSYS),
    "semget": _Rule(_NEVER, errno.ENOSYS),
    "msgget": _Rule(_NEVER, errno.ENOSYS),
    "mq_open": _Rule(_NEVER, errno.ENOSYS),
    "mount": _Rule(_NEVER, errno.EPERM),
    "fsopen": _Rule(_NEVER, errno.EPERM),
}


@dataclass(frozen=True, slots=True)
class _Architecture:
    """How the kernel calls it (<linux/audit.h>), and the numbers of its calls (<asm/unistd.h>)."""

    audit: int
    seccomp: int
    numbers: dict[str, int]
    has_x32: bool = False


_ARCHITECTURES = {
    "x86_64": _Architecture(
        0xC000003E,
        317,
        {
            "shmget": 29,
            "semget": 64,
            "msgget": 68,
            "setpriority": 141,
            "sched_setparam": 142,
            "sched_setscheduler": 144,
            "setrlimit": 160,
            "mount": 165,
            "sched_setaffinity": 203,
            "mq_open": 240,
            "ioprio_set": 251,
            "prlimit64": 302,
            "sched_setattr": 314,
            "fsopen": 430,
        },
        has_x32=True,
    ),
    "aarch64": _Architecture(
        0xC00000B7,
        277,
        {
            "ioprio_set": 30,
            "mount": 40,
            "sched_setparam": 118,
            "sched_setscheduler": 119,
            "sched_setaffinity": 122,
            "setpriority": 140,
            "setrlimit": 164,
            "mq_open": 180,
            "msgget": 186,
            "semget": 190,
            "shmget": 194,
            "prlimit64": 261,
            "sched_setattr": 274,
            "fsopen": 430,
        },
    ),
}


def program(machine: str) -> bytes | None:
    """The filter for a machine (`uname -m`), as the kernel wants it; None for one that is not known here.

    A call of another architecture, as 32-bit programs make them, ends the process: its numbers mean other things.
    """
    known = _ARCHITECTURES.get(machine)
    if known is None:
        return None
    steps = [_step(_LOAD, _ARCHITECTURE_AT), _step(_JUMP_EQUAL, known.audit, 1, 0), _step(_RETURN, _KILL_PROCESS)]
    steps.append(_step(_LOAD, _NUMBER_AT))
    if known.has_x32:
        steps += [_step(_JUMP_FROM, _X32_BIT, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    for name, rule in _RULES.items():
        block = _block(rule)
        steps += [_step(_JUMP_EQUAL, known.numbers[name], 0, len(block)), *block]
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _block(rule: _Rule) -> list[bytes]:
    """The steps of one rule, which end with an answer. Made from the end, as jumps only go forward."""
    block = [_step(_RETURN, _ERRNO | rule.otherwise)]
    if not rule.tests:
        return block
    block.insert(0, _step(_RETURN, _ALLOW))
    after = 0  # steps between a jump and the two answers
    for test in reversed(rule.tests):
        targets = {None: 0, True: after, False: after + 1}
        low = _ARGUMENTS_AT + 8 * test.argument  # both architectures are little-endian
        loads = [_step(_LOAD, low)]
        if test.is_pointer:
            loads += [_step(_TO_X, 0), _step(_LOAD, low + 4), _step(_OR_X, 0)]
        steps = [*loads, _step(_JUMP_EQUAL, test.value, targets[test.equal], targets[test.other])]
        block[:0] = steps
        after += len(steps)
    return block


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _STEP.pack(code, if_true, if_false, value)


_libc = ctypes.CDLL(None, use_errno=True)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _seccomp(operation: int, flags: int, argument: ctypes.c_uint32 | _FilterProgram) -> bool:
    number = ctypes.c_long(_ARCHITECTURES[_MACHINE].seccomp)
    return bool(_libc.syscall(number, ctypes.c_uint(operation), ctypes.c_uint(flags), ctypes.byref(argument)) == 0)


def _made_here() -> _FilterProgram | None:
    """The filter, where this kernel has filters that answer with an error, and we know its architecture."""
    steps = program(_MACHINE)
    if steps is None or not _seccomp(_GET_ACTION_AVAIL, 0, ctypes.c_uint32(_ERRNO)):
        return None
    return _FilterProgram(len(steps) // _STEP.size, steps)


_MACHINE = os.uname().machine
_FILTER = _made_here()  # when this is imported, which is once in the template: a child only installs it


def is_available() -> bool:
    return _FILTER is not None


def install() -> None:
    """Filter the calls of this process and of all that it starts, for good; nothing where that is not available.

    Needs `no_new_privs`. Must run while there is one thread. Raises `OSError`.
    """
    if _FILTER is not None and not _seccomp(_SET_MODE_FILTER, _SPEC_ALLOW, _FILTER):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
