"""Capabilities: what root may do beyond what belongs to it, of which a job keeps what concerns files.

A job of a worker that is root could otherwise make files that root itself cannot remove, load a module, set the clock
or raise a limit again. Being root it still owns root's files; `WORKER_INGEST_USER` is what takes those away.
"""

import ctypes
import os
import struct
import sys

# <linux/capability.h>
SYS_ADMIN, SYS_RESOURCE = 21, 24  # may mount; may raise a hard limit again
_VERSION_3 = 0x20080522
# CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID: the documents that a root worker reads may belong to anybody.
_OF_FILES = 0b11111
_THIS_PROCESS = struct.pack("=Ii", _VERSION_3, 0)

# Looked up here, once in the template, and not in every child.
_libc = ctypes.CDLL(None, use_errno=True)
_capget, _capset = _libc.capget, _libc.capset
_sets = ctypes.create_string_buffer(24)  # effective, permitted, inheritable; then those with numbers from 32 on


def has_capability(number: int) -> bool:
    """Whether this process has the capability of this number, below 32, in force."""
    return bool(_in_force() >> number & 1)


def keep_those_of_files() -> None:
    """Give up all others, for this process and whatever it starts.

    Needs `no_new_privs`: what root executes could otherwise have them again from the bounding set, which is left as
    it is. Must run while there is one thread. Raises `OSError`.
    """
    kept = _in_force() & _OF_FILES
    # None is inheritable, and so none is ambient either.
    _check(_capset(_THIS_PROCESS, struct.pack("=6I", kept, kept, 0, 0, 0, 0)))


def _in_force() -> int:
    _check(_capget(_THIS_PROCESS, _sets))
    return int.from_bytes(_sets.raw[:4], sys.byteorder)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capabilities: {os.strerror(number)}")
