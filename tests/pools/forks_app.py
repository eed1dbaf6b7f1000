"""An app whose jobs look at the fork that they come from."""

import ctypes
import json
import os
import random
import subprocess
import threading
from typing import Any

from jobs import App, Handler, JobContext
from tests.pools.handlers_app import SYNC, Recipe, Report

_hooks: list[str] = []
os.register_at_fork(
    before=lambda: _hooks.append("before"),
    after_in_parent=lambda: _hooks.append("parent"),
    after_in_child=lambda: _hooks.append("child"),
)


def look(payload: Recipe, job: JobContext) -> Report:
    libc = ctypes.CDLL(None)
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    libc.syscall(274, 0, ctypes.byref(head), ctypes.byref(size))  # get_robust_list
    ran: list[int] = []
    thread = threading.Thread(target=lambda: ran.append(threading.get_native_id()))
    thread.start()
    thread.join()
    facts: dict[str, Any] = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        # glibc's own note of the thread id, where this thread is told from others: an error-checking lock needs it.
        "thread": threading.get_native_id(),
        "in main": threading.current_thread() is threading.main_thread(),
        "noted": _noted_thread_id(libc),
        "robust": bool(head.value),
        "hooks": _hooks[-1],
        "threads ran": len(ran),
        "program": subprocess.run(["echo", "ran"], capture_output=True, text=True, check=True).stdout,
        "forked": os.waitpid(_forked(), 0)[1],
        "random": random.random(),
    }
    return Report(text=json.dumps(facts))


def _noted_thread_id(libc: ctypes.CDLL) -> int:
    """The owner that a locked error-checking mutex notes: `int lock; unsigned count; int owner` in glibc."""
    kind, mutex = ctypes.create_string_buffer(8), ctypes.create_string_buffer(64)
    libc.pthread_mutexattr_init(kind)
    libc.pthread_mutexattr_settype(kind, 2)  # PTHREAD_MUTEX_ERRORCHECK
    libc.pthread_mutex_init(mutex, kind)
    libc.pthread_mutex_lock(mutex)
    return int.from_bytes(mutex.raw[8:12], "little")


def _forked() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return pid


app = App([Handler(SYNC, look)])
