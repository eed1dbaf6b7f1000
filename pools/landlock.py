"""Landlock: what a process may read and write, decided once and inherited by all that it starts (Linux 5.13).

Two uses: with read paths, only those are readable and only the scratch folder is writable; and always, where the
kernel can (Linux 6.12), a job's signals reach nothing outside the job: not the supervisor, the template or another job,
although they run as the same user. Other ways to end or slow those down, by their limits and scheduling, are closed by
`pools.seccomp`; their files in /proc, such as oom_score_adj, only by another user or by read paths.
"""

import ctypes
import os
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

# One number on every architecture. <asm-generic/unistd.h>, <linux/landlock.h>
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_SCOPE_SIGNAL = 1 << 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# How many rights each version of the interface knows; later ones only added other things.
_RIGHTS_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_SCOPES_SINCE = 6

# What an interpreter, its libraries and ordinary programs read wherever they run.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc", "/proc", "/sys/devices/system/cpu")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

_libc = ctypes.CDLL(None, use_errno=True)


@cache
def abi() -> int:
    """The version of the interface that this kernel has; 0 where it is missing or switched off."""
    answer = int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION)))
    return max(answer, 0)


def scopes_signals() -> bool:
    return abi() >= _SCOPES_SINCE


def runtime_paths() -> list[str]:
    """What this interpreter itself must read: its own folders, the import path, the system's libraries."""
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.executable, *sysconfig.get_paths().values(), *sys.path}
    return sorted(path for path in {*own, *_SYSTEM} if path and Path(path).exists())


def restrict(readable: Iterable[str] | None, writable: Iterable[str]) -> None:
    """Enclose this process for good. `readable` None leaves paths alone and only scopes signals.

    Needs `no_new_privs`. Must run while there is one thread. Raises `OSError`, and for a path that is not there.
    """
    version = abi()
    scoped = _SCOPE_SIGNAL if scopes_signals() else 0
    handled = 0 if readable is None else (1 << _RIGHTS_OF_ABI.get(version, 16)) - 1
    if version == 0 or not (handled or scoped):
        return
    # handled_access_fs, handled_access_net, scoped: an older kernel wants the shorter structure.
    attributes = struct.pack("=QQQ", handled, 0, scoped)[: 8 if version < 4 else 16 if version < _SCOPES_SINCE else 24]
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        if readable is not None:
            for path in readable:
                _allow(ruleset, path, handled & _READ)
            for path in (*writable, *filter(os.path.exists, _DEVICES)):
                _allow(ruleset, path, handled)
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, descriptor)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
