"""Where a child stands: stacks of all threads and tasks, on a crash and when the supervisor asks."""

import faulthandler
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

from jobs.outcome import MAX_FRAMES_CHARS, clip

if TYPE_CHECKING:
    import asyncio

DUMP_SIGNAL = signal.SIGQUIT  # asks for the stacks, as it does of a JVM and of Go
DUMP_END = b"-- end of stacks --\n"
MAX_STACK_FRAMES = 30  # of one task; the outermost are kept

# How faulthandler begins when a fatal signal arrives, and the list of modules with which it ends.
_FATAL = re.compile(r"^(?:Fatal Python error: |Current thread 0x|Thread 0x)", re.MULTILINE)
_FATAL_ERROR = re.compile(r"^Fatal Python error: ", re.MULTILINE)
_MODULES = re.compile(r"\n+Extension modules: .*", re.DOTALL)


def arm_stack_dump() -> None:
    """On a crash and on DUMP_SIGNAL, write all stacks to standard error, also while C code holds the interpreter."""
    pipe = os.dup(2)  # a handler may redirect its standard error
    faulthandler.enable(pipe)

    def dump_tasks(*_: object) -> None:
        # faulthandler sees a waiting loop only as its selector; the coroutines that wait are in its tasks.
        try:
            asyncio = sys.modules["asyncio"]
            loop = asyncio.get_running_loop()
        except (KeyError, AttributeError, RuntimeError):  # not imported, or only half, or no loop runs
            pass
        else:
            for task in asyncio.all_tasks(loop):
                os.write(pipe, f"\n{_stack_of(task)}".encode(errors="replace"))
        os.write(pipe, DUMP_END)

    signal.signal(DUMP_SIGNAL, dump_tasks)
    faulthandler.register(DUMP_SIGNAL, pipe, all_threads=True, chain=True)


def fatal_stack(output_tail: str) -> str:
    """The stacks that faulthandler wrote last, from the end of a crashed child's output; nothing if it wrote none."""
    errors = list(_FATAL_ERROR.finditer(output_tail))
    first = errors[-1] if errors else _FATAL.search(output_tail)
    if first is None:
        return ""
    return clip(_MODULES.sub("\n", output_tail[first.start() :]), MAX_FRAMES_CHARS)


def _stack_of(task: "asyncio.Task[Any]") -> str:
    lines = [f"Task {task.get_name()} (oldest call first):"]
    waiting: Any = task.get_coro()
    while waiting is not None and len(lines) <= MAX_STACK_FRAMES:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            lines.append(f"  waits for {waiting!r}"[:300])
            break
        lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}')
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return "\n".join(lines) + "\n"
