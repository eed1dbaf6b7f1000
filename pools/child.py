"""The life of one child: from the fork to its last frame, as named steps.

With its setup it is enclosed, and dies with the supervisor; it makes ready and waits at its gate. With the job its gate
opens, it is capped, and runs one handler. End of file before that means that it was born for a supervisor that has gone
or has changed its mind, and it exits. It leaves by `os._exit`, so nothing that the template registered runs twice; what
a handler registers with `atexit` does not run either.

A handler may open its own connections: it runs after the gate, in a process that shares none.

`sys.exit(n)` in a handler is what it says, the end of the process without a result: verdict `exited`, or `vanished`
for 0. Any other exception, also KeyboardInterrupt and CancelledError, is a failure of the handler.
"""

import gc
import inspect
import logging
import os
import random
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from pydantic import ValidationError
from setproctitle import setproctitle

from jobs.app import App, Handler
from jobs.context import BoundContext, result_json
from jobs.failpoints import Failpoint, failpoint
from jobs.outcome import MAX_MESSAGE_CHARS, clip
from jobs.redaction import PLAIN, Redactor, redactor
from jobs.subject import process_title
from jobs.task import PermanentError, Snooze
from jobs.tracing import environment_asks_for_traces
from pools import memory, process, rehearsal
from pools.enclosure import enclose, limit_cpu
from pools.errors import describe, invalid_payload
from pools.frames import AtGate, Failure, JobFrame, Setup, Snoozing, Starting, Success, Unborn, pack, receive
from pools.progress import ProgressSender
from pools.stacks import arm_stack_dump
from pools.symptoms import memory_sign

TOKEN_VARIABLE = "OOMPH_JOB_TOKEN"  # noqa: S105  (it names the job a process belongs to; it opens nothing)
_IGNORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
_STARTING = pack(Starting())
_NOTHING_TO_DO = JobFrame(
    id=0,
    claim=0,
    kind=rehearsal.KIND,
    payload="{}",
    attempt=0,
    organization_id=None,
    deadline=datetime.max.replace(tzinfo=UTC),
    memory_mb=0,
    cpu_seconds=0,
    trace_context=None,
).model_dump_json()
MT19937_WORDS = 624  # of the Mersenne Twister's state; as a position, all are used up
THREAD_STACK_BYTES = 2 << 20  # of the usual 8 MiB, all of which would count against the limit, touched or not


def token_text(mark: int) -> str:
    """The mark as it stands in the environment of whatever the job executes."""
    return f"{mark:016x}"


def warm_up() -> None:
    """Once the app is loaded, in a template before its first fork: what every child would otherwise do for itself."""
    _handled_signals()
    if not logging.root.handlers:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    if environment_asks_for_traces():
        with suppress(ImportError):  # of which the worker has told
            from pools import tracing

            tracing.preload()


def live(app: App, job_fd: int, output_fd: int, mark: int, kept: Collection[int]) -> NoReturn:
    """Be the child, from right after the fork; never returns."""
    code = 1
    try:
        detach(job_fd, output_fd, mark, kept)
        with socket.socket(fileno=job_fd) as connection:
            code = serve(connection, lambda: app)
    except BaseException:  # noqa: BLE001  (nothing may unwind into the template's frames)
        traceback.print_exc()
    finally:
        os._exit(code)


def detach(job_fd: int, output_fd: int, mark: int, kept: Collection[int]) -> None:
    """Share nothing with the template any more."""
    _own_session(mark)
    _default_signals()
    _own_descriptors(job_fd, output_fd, kept)


def serve(connection: socket.socket, load: Callable[[], App], *, announce: bool = False) -> int:
    """Enclose this process, load the app, wait at the gate, run the job. Returns the exit status.

    Where loading takes time, `announce` tells the supervisor when the gate is reached.
    """
    setup = receive(connection, Setup)
    if setup is None:
        return 0
    try:
        enclose(setup)
        app = load()
        _make_ready()
        sender = ProgressSender(connection)
        _rehearse(sender)
    except Exception as error:  # noqa: BLE001  (whatever it is, the job never ran and must not pay)
        return _unborn(connection, error)
    if announce:
        connection.sendall(pack(AtGate()))
    job = receive(connection, JobFrame)
    return 0 if job is None else _run(app, job, connection, sender)


def _own_session(mark: int) -> None:
    os.setsid()
    process.carry_mark(mark)
    os.environ[TOKEN_VARIABLE] = token_text(mark)


def _default_signals() -> None:
    # As in every Python process: a closed connection or a file over its limit is an OSError and not a death.
    # subprocess undoes it for what it starts.
    for number in _handled_signals():
        signal.signal(number, signal.SIG_DFL)
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@cache
def _handled_signals() -> list[signal.Signals]:
    """The signals that this program or a preloaded module does something about."""
    changeable = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, *_IGNORED_SIGNALS}
    return [number for number in changeable if signal.getsignal(number) not in (signal.SIG_DFL, None)]


def _own_descriptors(job_fd: int, output_fd: int, kept: Collection[int]) -> None:
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    process.close_descriptors_except([job_fd, *kept])


def _make_ready() -> None:
    """Before the gate, where no job waits for it: all that is the same for every job."""
    gc.enable()
    threading.stack_size(THREAD_STACK_BYTES)
    random.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        _reseed(numpy_random)
    arm_stack_dump()


def _rehearse(sender: ProgressSender) -> None:
    """Go the way of a job that does nothing, so that the template's pages that it writes to are copied by now."""
    job = JobFrame.model_validate_json(_NOTHING_TO_DO)
    setproctitle("oomph: child at its gate")
    memory.data_bytes()
    pack(_call(rehearsal.HANDLER, job, sender, PLAIN))


def _run(app: App, job: JobFrame, connection: socket.socket, sender: ProgressSender) -> int:
    try:
        handler = rehearsal.HANDLER if job.kind == rehearsal.KIND else app.handlers[job.kind]
        secrets = redactor(job.payload, handler.secret_paths)
        cap = memory.cap_this_process(job.memory_mb)
        limit_cpu(job.cpu_seconds)
        setproctitle(process_title(job.kind, job.id, job.attempt))
        _join_trace(job)
        reserve = memory.reserve()
        connection.sendall(_STARTING)
    except Exception as error:  # noqa: BLE001  (whatever it is, the job never ran and must not pay)
        return _unborn(connection, error)
    owner = os.getpid()
    try:
        last = pack(_call(handler, job, sender, secrets))
    except SystemExit as asked:
        return _exit_code(asked)
    except Snooze as snooze:
        last = pack(Snoozing(seconds=snooze.delay.total_seconds()))
    except BaseException as error:  # noqa: BLE001  (all of them are the handler's)
        # The limit may be the very thing that was hit: give memory back before anything is formatted.
        reserve.close()
        is_near_limit = cap.is_near()
        cap.lift()
        last = _pack_failure(error, handler, is_near_limit, secrets)
    if os.getpid() != owner:
        return 1  # a copy that the handler forked and let return: its word is not the job's
    failpoint(Failpoint.RETURNED)
    sender.finish()
    connection.sendall(last)
    failpoint(Failpoint.TOLD)
    _send_spans(job)
    _flush()
    return 0


def _unborn(connection: socket.socket, error: Exception) -> int:
    connection.sendall(pack(Unborn(why=clip(f"setting up the child: {error!r}", MAX_MESSAGE_CHARS))))
    return 1


def _join_trace(job: JobFrame) -> None:
    if job.trace_context is not None:
        from pools import tracing

        tracing.join(job.trace_context)


def _send_spans(job: JobFrame) -> None:
    if job.trace_context is not None:
        from pools import tracing

        try:
            tracing.flush(tracing.CHILD_FLUSH_SECONDS)
        except Exception:  # noqa: BLE001  (a thread may be too much for a job at its limit; its result is told)
            traceback.print_exc()


def _reseed(numpy_random: ModuleType) -> None:
    """numpy, unlike `random`, does not notice a fork.

    Random words are a state of its generator like any other, and cost half of what `seed` does.
    """
    words = sys.modules["numpy"].frombuffer(os.urandom(4 * MT19937_WORDS), dtype="uint32")
    numpy_random.set_state(("MT19937", words, MT19937_WORDS))


def _call(handler: Handler[Any], job: JobFrame, sender: ProgressSender, secrets: Redactor) -> Success | Failure:
    try:
        payload = handler.task.payload_type.model_validate_json(job.payload)
    except ValidationError as error:
        invalid = invalid_payload(error)
        return Failure(type=invalid.type, message=invalid.message, permanent=True)
    context = BoundContext(job.id, job.claim, job.attempt, job.organization_id, job.deadline, sender.publish, secrets)
    arguments = (payload, context) if handler.takes_context else (payload,)

    async def call() -> Any:
        value = handler.function(*arguments)
        return await value if inspect.isawaitable(value) else value

    value: Any
    if handler.is_async:
        import asyncio

        value = asyncio.run(call())
    else:
        value = handler.function(*arguments)
    if context.completed_in:
        return Success(completed_in=True)
    try:
        return Success(result=result_json(value, secrets))
    except MemoryError:
        raise
    except (TypeError, ValueError) as error:
        return Failure(type="InvalidResult", message=clip(secrets.text(str(error)), MAX_MESSAGE_CHARS), permanent=True)


def _pack_failure(error: BaseException, handler: Handler[Any], is_near_limit: bool, secrets: Redactor) -> bytes:
    try:
        sign = memory_sign(error, is_near_limit=is_near_limit)
        told = describe(error.with_traceback(_below_this_file(error.__traceback__)), secrets)
        return pack(
            Failure(
                type=told.type,
                message=told.message,
                frames=told.frames,
                permanent=isinstance(error, (PermanentError, *handler.task.permanent_errors)),
                memory=sign.text if sign else "",
                lost_helper=bool(sign and sign.lost_helper),
            )
        )
    except MemoryError:
        return _NO_MEMORY_LEFT
    except BaseException as broken:  # noqa: BLE001  (an error that cannot be described is still the handler's failure)
        return pack(Failure(type="IndescribableError", message=f"describing it raised {type(broken).__name__}"))


_NO_MEMORY_LEFT = pack(Failure(type="MemoryError", message="none was left to describe where", memory="out of memory"))


def _below_this_file(frames: TracebackType | None) -> TracebackType | None:
    """The reader looks for the handler, not for what called it."""
    start = below = frames
    while below is not None:
        if below.tb_frame.f_code.co_filename == __file__ and below.tb_next is not None:
            start = below.tb_next
        below = below.tb_next
    return start


def _exit_code(asked: SystemExit) -> int:
    print(f"the handler called sys.exit({asked.code!r})", file=sys.stderr)
    traceback.print_exception(asked)
    _flush()
    if asked.code is None:
        return 0
    return asked.code & 0xFF if isinstance(asked.code, int) else 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception as error:  # noqa: BLE001  (a handler may have closed or replaced it)
            os.write(2, f"output was lost: {error!r}\n".encode())
    logging.shutdown()
