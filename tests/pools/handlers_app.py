"""An app whose jobs end in every way a job can end. `recipe` names the way; `text` is its argument."""

# ruff: noqa: PTH101, PTH102, PTH109, PTH116, PTH123, PTH211, SIM115

import asyncio
import ctypes
import errno
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, field_validator

from jobs import App, Handler, JobContext, Payload, PermanentError, Pool, Snooze, Task

MIB = 1 << 20


class Recipe(Payload):
    recipe: str
    text: str = ""

    @field_validator("text")
    @classmethod
    def _not_poisoned(cls, text: str) -> str:
        if text.startswith("poison"):
            raise ValueError(f"{text} is not to be eaten")
        return text


class Report(BaseModel):
    text: str


def ok(text: str, job: JobContext) -> None:
    pass


def result(text: str, job: JobContext) -> Report:
    return Report(text=text)


def moment(text: str, job: JobContext) -> Report:
    return Report(text=str(time.monotonic()))


def context(text: str, job: JobContext) -> Report:
    return Report(text=f"{job.job_id} {job.attempt} {job.organization_id} {job.deadline.tzinfo}")


def surroundings(text: str, job: JobContext) -> Report:
    """What the child was given: its descriptors, limits, session, signals."""
    facts = {
        "descriptors": sorted(
            os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in os.listdir("/proc/self/fd")[:-1]
        ),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "leads": os.getsid(0) == os.getpid() == os.getpgid(0),
        "threads": len(os.listdir("/proc/self/task")),
        "oom_score_adj": int(Path("/proc/self/oom_score_adj").read_text()),
        "title": Path("/proc/self/cmdline").read_text().rstrip("\0"),
        "stdin": os.readlink("/proc/self/fd/0"),
        "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    }
    return Report(text=repr(facts))


def raises(text: str, job: JobContext) -> None:
    raise ValueError(f"no such thing: {text}")


def permanent(text: str, job: JobContext) -> None:
    raise PermanentError("never again")


def declared_permanent(text: str, job: JobContext) -> None:
    raise KeyError("declared in the task")


def interrupts(text: str, job: JobContext) -> None:
    raise KeyboardInterrupt


def snooze(text: str, job: JobContext) -> None:
    raise Snooze(timedelta(minutes=7))


def eat_bytes(text: str, job: JobContext) -> None:
    held = []
    while True:
        held.append(bytearray(MIB))


def eat_small_objects(text: str, job: JobContext) -> None:
    held: list[Any] = []
    while True:
        held.append({str(len(held)): [len(held)]})


def eat_to_the_brim(text: str, job: JobContext) -> None:
    """Leaves no room at all, neither in the system nor in the allocator's own lists."""
    held: Any = None
    for size in (MIB, 1 << 16, 1 << 14, *range(1 << 12, 0, -16)):
        try:
            while True:
                held = (held, bytes(size))
        except MemoryError:
            if size == 16:
                raise


def forks_and_returns(text: str, job: JobContext) -> Report:
    if (pid := os.fork()) == 0:
        if text == "raise":
            raise ValueError("in the copy")
        return Report(text="the copy's")
    os.waitpid(pid, 0)
    return Report(text="the job's")


def eat_numpy(text: str, job: JobContext) -> None:
    import numpy

    held = []
    while True:
        held.append(numpy.ones((256, 1024)))


def eat_hidden_in_a_cause(text: str, job: JobContext) -> None:
    try:
        bytearray(10_000 * MIB)
    except MemoryError as error:
        raise RuntimeError("the parser gave up") from error


def eat_threads(text: str, job: JobContext) -> None:
    forever = threading.Event()
    while True:
        threading.Thread(target=forever.wait, daemon=True).start()


def helper_aborts(text: str, job: JobContext) -> None:
    subprocess.run(["sh", "-c", "kill -ABRT $$"], check=True)


def helper_is_killed(text: str, job: JobContext) -> None:
    subprocess.run(["sh", "-c", "kill -KILL $$"], check=True)


def helper_eats(text: str, job: JobContext) -> None:
    code = "held = []\nwhile True: held.append(b'x' * (1 << 20))"
    subprocess.run([sys.executable, "-c", code], check=True)


def four_helpers(text: str, job: JobContext) -> None:
    """Each is far below the limit, all together are over it."""
    code = f"held = b'x' * {int(text) * MIB}; import time; time.sleep(60)"
    for helper in [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]:
        helper.wait()


def abort(text: str, job: JobContext) -> None:
    os.abort()


def abort_at_the_limit(text: str, job: JobContext) -> None:
    held = []
    try:
        while True:
            held.append(bytearray(MIB))
    except MemoryError:
        os.abort()


def segfault(text: str, job: JobContext) -> None:
    ctypes.string_at(0)


def signal_itself(text: str, job: JobContext) -> None:
    os.kill(os.getpid(), getattr(signal, text))


def hard_exit(text: str, job: JobContext) -> None:
    os._exit(int(text))


def soft_exit(text: str, job: JobContext) -> None:
    sys.exit(int(text))


def prints(text: str, job: JobContext) -> None:
    print(text)
    print(f"{text} to stderr", file=sys.stderr)


def floods(text: str, job: JobContext) -> None:
    line = b"a line of a flood\n" * 1000
    for _ in range(int(text)):
        os.write(1, line)


def logs(text: str, job: JobContext) -> None:
    logging.getLogger("app.parse").warning(text)


def prints_without_end(text: str, job: JobContext) -> None:
    os.write(1, b"x" * 50_000 + b"\xff\x00\x1b[31mred")


def daemon(text: str, job: JobContext) -> Report:
    """Leaves a process behind in a session of its own that holds the pipe; `text` says what else it does."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if text == "end the first thread":
                threading.Thread(target=_tell_as_zombie, args=(write_end,)).start()
                ctypes.CDLL(None).syscall(93 if os.uname().machine == "aarch64" else 60, 0)  # exit, of this thread only
            os.write(write_end, str(os.getpid()).encode())
            if text == "ignore SIGTERM":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if text == "close everything":
                os.closerange(0, 1000)
            if text == "exec with nothing":
                os.execve("/bin/sleep", ["sleep", "600"], {})
            while True:
                time.sleep(60)
        os._exit(0)
    os.wait()
    return Report(text=os.read(read_end, 32).decode())


def _tell_as_zombie(told_fd: int) -> None:
    """Tell the pid once the kernel calls this process a zombie, and run on."""
    while ") Z " not in Path("/proc/self/stat").read_text():
        time.sleep(0.001)
    os.write(told_fd, str(os.getpid()).encode())
    time.sleep(600)


def daemon_after_a_while(text: str, job: JobContext) -> Report:
    time.sleep(0.3)
    return daemon("exec with nothing", job)


def moment_later(text: str, job: JobContext) -> None:
    time.sleep(0.2)


def daemon_and_wait(text: str, job: JobContext) -> None:
    pid = daemon("exec with nothing", job).text
    Path(text).write_text(pid)
    time.sleep(600)


def token(text: str, job: JobContext) -> Report:
    found = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout.count("OOMPH_JOB_TOKEN=")
    return Report(text=str(found))


def daemon_that_ends(text: str, job: JobContext) -> Report:
    if (pid := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.waitpid(pid, 0)
    return Report(text="")


def leaves_a_stray(text: str, job: JobContext) -> Report:
    """Leaves a process in a group of its own, once somebody has taken its mark, which it could not do itself.

    `text` is the file that tells its pid, and after a colon whether it has a session of its own too.
    """
    path, _, session = text.partition(":")
    read_end, write_end = os.pipe()
    if (pid := os.fork()) == 0:
        if os.fork() == 0:
            os.setsid() if session else os.setpgid(0, 0)
            os.write(write_end, str(os.getpid()).encode())
            while True:
                time.sleep(60)
        os._exit(0)
    os.waitpid(pid, 0)
    stray = int(os.read(read_end, 32))
    own = resource.getrlimit(resource.RLIMIT_RSS)
    Path(path).write_text(str(stray))
    while resource.prlimit(stray, resource.RLIMIT_RSS) == own:
        time.sleep(0.01)
    return Report(text=str(stray))


def orphan_that_ends_and_wait(text: str, job: JobContext) -> None:
    if (pid := os.fork()) == 0:
        if (orphan := os.fork()) == 0:
            time.sleep(0.05)
        else:
            Path(text).write_text(str(orphan))
        os._exit(0)
    os.waitpid(pid, 0)
    time.sleep(600)


def sleeps(text: str, job: JobContext) -> None:
    time.sleep(600)


def sleeps_in_c(text: str, job: JobContext) -> None:
    """Holds the interpreter, so that no Python code can run."""
    libc = ctypes.PyDLL(None)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        libc.sleep(600)


def ignores_everything(text: str, job: JobContext) -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    Path(text).write_text("ready")
    time.sleep(600)


def says_ready(text: str, job: JobContext) -> None:
    helper = subprocess.Popen(["sleep", "600"])
    Path(text).write_text(f"{os.getpid()} {helper.pid}")
    time.sleep(600)


def helpers_that_wait(text: str, job: JobContext) -> None:
    path, count = text.split()
    for _ in range(int(count)):
        subprocess.Popen(["sleep", "600"])
    Path(path).write_text("ready")
    time.sleep(600)


def waits_for(text: str, job: JobContext) -> None:
    ready, done = map(Path, text.split())
    ready.touch()
    while not done.exists():
        time.sleep(0.01)


def _job_socket() -> int:
    return next(
        fd
        for fd in range(3, 100)
        if Path(f"/proc/self/fd/{fd}").exists() and os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    )


def frame_garbage(text: str, job: JobContext) -> None:
    os.write(_job_socket(), bytes.fromhex(text))


def frame_flood(text: str, job: JobContext) -> None:
    """Valid progress, far more than the honest sender would send."""
    body = b'{"frame":"progress","fraction":0.5,"note":"flood"}'
    piece = (len(body).to_bytes(4, "big") + body) * 500
    end = time.monotonic() + float(text)
    while time.monotonic() < end:
        os.write(_job_socket(), piece)


def result_then_kill(text: str, job: JobContext) -> None:
    body = b'{"frame":"success","result":"7"}'
    os.write(_job_socket(), len(body).to_bytes(4, "big") + body)
    os.kill(os.getpid(), signal.SIGKILL)


def result_then_stop(text: str, job: JobContext) -> None:
    body = b'{"frame":"success","result":"7"}'
    os.write(_job_socket(), len(body).to_bytes(4, "big") + body)
    Path(text).write_text("ready")
    time.sleep(600)


def result_after(text: str, job: JobContext) -> None:
    job.progress(0.5)
    while not Path(text).exists():
        time.sleep(0.01)
    result_then_kill(text, job)


def closes_everything(text: str, job: JobContext) -> None:
    os.closerange(0, 1000)
    time.sleep(600)


def huge_result(text: str, job: JobContext) -> Report:
    return Report(text='"' * int(text))


def wrong_result(text: str, job: JobContext) -> Any:
    return {"not": "a model"}


def surrogate_result(text: str, job: JobContext) -> Report:
    return Report.model_construct(text="\udce4")


def progress(text: str, job: JobContext) -> None:
    for step in range(1000):
        job.progress(step / 1000, f"step {step}")
    job.progress(1.0, "the last")


def many_leftovers(text: str, job: JobContext) -> None:
    for _ in range(20):
        subprocess.Popen(["sleep", "600"], start_new_session=True)


def swallows_memory_error(text: str, job: JobContext) -> Report:
    held = []
    try:
        while True:
            held.append(bytearray(MIB))
    except MemoryError:
        held.clear()
    return Report(text="all is well")


def no_thread(text: str, job: JobContext) -> None:
    raise RuntimeError("can't start new thread")


def many_threads_stand(text: str, job: JobContext) -> None:
    def first_place() -> None:
        threading.Event().wait()

    def second_place() -> None:
        time.sleep(600)

    for function in (first_place, second_place):
        threading.Thread(target=function, daemon=True).start()
    time.sleep(600)


def threads_at_once(text: str, job: JobContext) -> Report:
    """Threads that all live; with stacks of 8 MiB each they would not fit."""
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(int(text))]
    for thread in threads:
        thread.start()
    stop.set()
    for thread in threads:
        thread.join()
    return Report(text="all ran")


def thread_exits(text: str, job: JobContext) -> Report:
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()
    return Report(text="the process goes on")


def overflows_stack(text: str, job: JobContext) -> None:
    """Native code without a limit to its recursion: a comparison function that sorts."""
    compare_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    libc = ctypes.CDLL(None)
    sys.setrecursionlimit(1 << 30)

    @compare_type
    def compare(_: int, __: int) -> int:
        libc.qsort((ctypes.c_char * 2)(), 2, 1, compare)
        return 0

    libc.qsort((ctypes.c_char * 2)(), 2, 1, compare)


def memfd(text: str, job: JobContext) -> None:
    """Shared memory that no process has mapped."""
    fd = os.memfd_create("hidden")
    for _ in range(int(text)):
        os.write(fd, b"x" * MIB)
    time.sleep(600)


def memfd_of_a_thread(text: str, job: JobContext) -> None:
    """Shared memory that only one thread has open: it shares its descriptors with no other."""

    def hold() -> None:
        assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
        memfd(text, job)

    threading.Thread(target=hold).start()
    time.sleep(600)


def threads_that_outlive_the_main_one(text: str, job: JobContext) -> None:
    """Each process is below the limit, all are over it, and none has a main thread that the kernel tells of."""

    def hold() -> None:
        held = b"x" * (int(text) * MIB)
        time.sleep(600)
        del held

    for _ in range(4):
        if os.fork() == 0:
            threading.Thread(target=hold).start()
            ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)  # exit(2), of this thread alone
    time.sleep(600)


def page_tables(text: str, job: JobContext) -> None:
    """Reads of one and the same page of zeros, so far apart that each needs a table of the kernel's."""
    import mmap

    held = mmap.mmap(-1, int(text) << 30, mmap.MAP_PRIVATE, mmap.PROT_READ)
    held.madvise(mmap.MADV_NOHUGEPAGE)
    for position in range(0, len(held), 2 * MIB):
        assert held[position] == 0
    time.sleep(600)


def shared_mapping(text: str, job: JobContext) -> None:
    import mmap

    held = mmap.mmap(-1, int(text) * MIB)
    for _ in range(int(text)):
        held.write(b"x" * MIB)
    time.sleep(600)


def shared_mapping_after(text: str, job: JobContext) -> None:
    path, mb = text.split()
    while not Path(path).exists():
        time.sleep(0.01)
    shared_mapping(mb, job)


def forked_readers(text: str, job: JobContext) -> Report:
    """Four forks that share what their parent has: little memory, that a sum of RSS counts five times."""
    held = b"x" * (40 * MIB)
    pids = []
    for _ in range(4):
        if (pid := os.fork()) == 0:
            time.sleep(float(text))
            os._exit(len(held) & 1)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return Report(text="ok")


def fork_bomb(text: str, job: JobContext) -> None:
    Path(text).touch()
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)


def many_helpers(text: str, job: JobContext) -> None:
    for _ in range(int(text)):
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
    time.sleep(600)


def orphans(text: str, job: JobContext) -> None:
    """Processes whose parent goes away before they end."""
    for _ in range(int(text)):
        if (pid := os.fork()) == 0:
            if os.fork() == 0:
                os.setsid()
            os._exit(0)
        os.waitpid(pid, 0)


def hops(text: str, job: JobContext) -> None:
    """Leaves a process that does nothing but fork and end; for a while only, should nobody end it."""
    if os.fork() == 0:
        hop = (
            "import os, time\nend = time.time() + 9\nwhile time.time() < end:\n os.setsid()\n if os.fork(): os._exit(0)"
        )
        os.execv(sys.executable, [sys.executable, "-ISc", hop])
    time.sleep(0.3)


def threads_that_wait(text: str, job: JobContext) -> None:
    threading.stack_size(1 << 16)
    for _ in range(int(text)):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    time.sleep(600)


def surroundings_of_a_program(text: str, job: JobContext) -> Report:
    """Everything that an executed program is given."""
    import tempfile

    with open(tempfile.mkstemp()[1], "w") as file:
        file.write("x")
    facts = {
        "cwd": os.getcwd(),
        "tempdir": tempfile.gettempdir(),
        "tmp": [os.environ[name] for name in ("TMPDIR", "TMP", "TEMP")],
        "mode": oct(os.stat(".").st_mode & 0o777),
        "ids": [os.getuid(), os.geteuid(), os.getgid(), sorted(os.getgroups())],
        "home": os.environ.get("HOME"),
        "new_privileges": "NoNewPrivs:\t1" in Path("/proc/self/status").read_text(),
        "limits": {
            name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
            for name in ("NOFILE", "FSIZE", "NPROC", "CPU", "CORE")
        },
    }
    return Report(text=repr(facts))


def hostile_scratch(text: str, job: JobContext) -> Report:
    """A tree that is deep, closed, and full of links that lead out."""
    scratch = os.getcwd()
    for _ in range(3_000):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
    os.chdir(scratch)
    os.mkdir("closed")
    Path("closed/file").write_text("x")
    os.symlink(text, "closed/out")
    os.symlink(text, "out")
    os.chmod("closed", 0)
    os.mkfifo("fifo")
    return Report(text=scratch)


def fills_scratch(text: str, job: JobContext) -> None:
    for number in range(int(text)):
        Path(f"part-{number}").write_bytes(b"x" * MIB)
    time.sleep(600)


def fills_deep_folder(text: str, job: JobContext) -> None:
    """Files that no path leads to: it would be longer than a path may be."""
    for _ in range(25):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    fills_scratch(text, job)


def fills_deleted_file(text: str, job: JobContext) -> None:
    """Files that no name leads to, and only their descriptors hold."""
    import tempfile

    held = [tempfile.TemporaryFile() for _ in range(int(text))]
    for file in held:
        file.write(b"x" * MIB)
        file.flush()
    time.sleep(600)


def writes_file(text: str, job: JobContext) -> None:
    with Path("big").open("wb") as file:
        file.writelines(b"x" * MIB for _ in range(int(text)))


def opens_files(text: str, job: JobContext) -> None:
    held = []
    while True:
        held.append(open("/dev/null"))


def reads(text: str, job: JobContext) -> Report:
    return Report(text=Path(text).read_text())


def writes(text: str, job: JobContext) -> None:
    Path(text).write_text("x")


def signals(text: str, job: JobContext) -> None:
    os.kill(int(text), signal.SIGTERM)


def tries(text: str, job: JobContext) -> Report:
    """Each line is an expression; what each came to, or the name of its error."""

    def call(number: int, *arguments: object) -> str:
        """A system call by number."""
        libc = ctypes.CDLL(None, use_errno=True)
        result = libc.syscall(ctypes.c_long(number), *arguments)
        return errno.errorcode[ctypes.get_errno()] if result == -1 else str(result)

    known = {"os": os, "resource": resource, "call": call, "ctypes": ctypes, "Path": Path, "run": run_program}
    outcomes = []
    for line in text.splitlines():
        try:
            outcomes.append(str(eval(line, known)))
        except Exception as error:  # noqa: BLE001
            outcomes.append(type(error).__name__)
    return Report(text=repr(outcomes))


def run_program(*arguments: str) -> str:
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout


def calls_as_a_32_bit_program(text: str, job: JobContext) -> None:
    """getpid by int 0x80."""
    import mmap

    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(bytes.fromhex("b814000000cd80c3"))
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()


def pins_a_new_thread(text: str, job: JobContext) -> Report:
    """As OpenMP does: the C library sets the affinity of the thread that it makes, by its number."""
    libc = ctypes.CDLL(None)
    attributes, cpus = ctypes.create_string_buffer(128), (ctypes.c_ulong * 16)(1)
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setaffinity_np(attributes, ctypes.c_size_t(ctypes.sizeof(cpus)), cpus)
    thread = ctypes.c_ulong()
    run = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: None)
    status = libc.pthread_create(ctypes.byref(thread), attributes, run, None)
    if status == 0:
        libc.pthread_join(thread, None)
    return Report(text=str(status))


def fills_shm(text: str, job: JobContext) -> Report:
    """So many MiB in files that are written and closed; with a second number, so many of its own too, for a while."""
    files, own = map(int, text.split())
    for number in range(files):
        Path(f"/dev/shm/oomph-test-{os.getpid()}-{number}").write_bytes(b"x" * MIB)
    held = bytearray(b"x") * (own * MIB)
    time.sleep(10 if held else 0)
    return Report(text=str(os.getpid()))


def shares_a_lock(text: str, job: JobContext) -> Report:
    """With a process of its own, through /dev/shm."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    with lock:
        process = context.Process(target=lock.acquire, args=(False,))
        process.start()
        process.join()
    return Report(text=str(process.exitcode))


def kills_its_helper(text: str, job: JobContext) -> Report:
    helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    helper.kill()
    return Report(text=str(helper.wait()))


RECIPES: dict[str, Callable[[str, JobContext], Any]] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}


def cook(payload: Recipe, job: JobContext) -> Any:
    return RECIPES[payload.recipe](payload.text, job)


async def simmer(payload: Recipe, job: JobContext) -> Report | None:
    if payload.recipe == "waits":
        await _deep_wait()
    if payload.recipe == "raises":
        raise ValueError(payload.text)
    if payload.recipe == "cancels":
        raise asyncio.CancelledError
    await asyncio.sleep(0)
    return Report(text=payload.text)


async def _deep_wait() -> None:
    await asyncio.sleep(600)


SYNC = Task(
    kind="cook", payload_type=Recipe, pool=Pool.INGEST, permanent_errors=(KeyError,), timeout=timedelta(seconds=60)
)
ASYNC = Task(kind="simmer", payload_type=Recipe, pool=Pool.INGEST)
SMALL = Task(kind="nibble", payload_type=Recipe, pool=Pool.INGEST, memory_mb=20)
LARGE = Task(kind="feast", payload_type=Recipe, pool=Pool.INGEST, memory_mb=200)

app = App(
    [Handler(SYNC, cook), Handler(ASYNC, simmer), Handler(SMALL, cook), Handler(LARGE, cook)],
    preload=["email.message", "tempfile", "mmap"],
)
