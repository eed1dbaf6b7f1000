"""The pure parts: parsers of /proc, frames, output, signs of exhausted memory."""

import errno
import logging
import subprocess
import threading
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.outcome import Died
from jobs.task import PermanentError
from pools.evidence import ChildEvidence
from pools.frames import MAX_FRAME_BYTES, Failure, FrameReader, Progress, Starting, Success, Unborn, pack
from pools.output import Output
from pools.procfs import memory_cgroup_folder, parse_counter, parse_hard_limit, parse_sizes, parse_stat
from pools.symptoms import memory_sign
from pools.threads import Threads
from pools.verdict import classify


def test_a_process_name_may_hold_anything() -> None:
    stat = parse_stat("12 (a) Z (b) c) S 7 11 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 8888 1 2")
    assert (stat.pid, stat.state, stat.parent, stat.session, stat.start) == (12, "S", 7, 9, 8888)
    assert not stat.is_dead


def test_a_process_is_dead_once_its_last_thread_is() -> None:
    line = "12 (a) Z 7 11 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {} 0 8888 1 2"
    assert parse_stat(line.format(1)).is_dead
    assert not parse_stat(line.format(2)).is_dead


def test_sizes_and_counters_are_found_or_absent() -> None:
    assert parse_sizes("Name:\tx\nVmData:\t  123 kB\nThreads:\t1\n") == {"VmData": 123}
    assert parse_counter("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", "oom_kill") == 4
    assert parse_counter("oom 1\noom_kill_x 2\n", "oom_kill") is None
    text = "Limit  Soft Limit  Hard Limit\nMax resident set   12   34   bytes\nMax data size   unlimited  unlimited\n"
    assert parse_hard_limit(text, "Max resident set") == 34
    assert parse_hard_limit(text, "Max data size") is None


V1 = "36 32 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("cgroup", "mounts", "found"),
    [
        ("4:memory:/a/b\n0::/\n", V1, (1, "/sys/fs/cgroup/memory/a/b")),
        ("0::/system.slice/oomph.service\n", V2, (2, "/sys/fs/cgroup/system.slice/oomph.service")),
        ("0::/\n", V2, (2, "/sys/fs/cgroup")),
        ("4:memory:/docker/x/y\n", V1.replace(" / /sys", " /docker/x /sys"), (1, "/sys/fs/cgroup/memory/y")),
        ("4:memory:/a\n", V2, None),
        ("", V2, None),
    ],
)
def test_the_memory_cgroup_is_found_in_both_versions(cgroup: str, mounts: str, found: tuple[int, str] | None) -> None:
    expected = None if found is None else (found[0], PurePosixPath(found[1]))
    assert memory_cgroup_folder(cgroup, mounts) == expected


@settings(deadline=None)
@given(st.lists(st.integers(1, 40)))
def test_frames_are_found_in_whatever_pieces_they_arrive(cuts: list[int]) -> None:
    stream = (
        pack(Progress(fraction=0.25, note="a")) + pack(Progress(fraction=0.5, note="b")) + pack(Success(result="1"))
    )
    reader, newest = FrameReader(), []
    for cut in [*cuts, len(stream)]:
        piece, stream = stream[:cut], stream[cut:]
        newest += [progress for progress in [reader.feed(piece)] if progress is not None]
    assert newest[-1].note == "b"
    assert reader.last == Success(result="1")
    assert reader.broken is None


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_can_harm_the_reader(data: bytes) -> None:
    reader = FrameReader()
    reader.feed(data)
    reader.feed(data)
    assert reader.last is None


def test_a_frame_announced_too_long_is_not_waited_for() -> None:
    reader = FrameReader()
    reader.feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    assert reader.broken is not None
    reader.feed(pack(Success()))
    assert reader.last is None


def test_nothing_after_the_last_frame_counts() -> None:
    reader = FrameReader()
    reader.feed(pack(Success(result="1")) + pack(Success(result="2")) + b"\xff" * 100)
    assert reader.last == Success(result="1")
    assert reader.broken is None


def test_a_child_can_only_be_unborn_before_its_handler_starts() -> None:
    early, late = FrameReader(), FrameReader()
    early.feed(pack(Unborn(why="no scratch folder")))
    assert early.last == Unborn(why="no scratch folder")
    late.feed(pack(Starting()) + pack(Unborn(why="forged")) + pack(Success()))
    assert late.last is None
    assert late.broken is not None


def test_a_frame_over_the_limit_is_not_packed() -> None:
    with pytest.raises(ValueError, match="over the limit"):
        pack(Progress.model_construct(frame="progress", fraction=0.0, note="x" * MAX_FRAME_BYTES))


async def test_output_keeps_a_tail_and_forwards_whole_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    output = Output("job 1 attempt 1")
    output.take(b"first\nsec")
    output.take(b"ond\nlast")
    output.finish()
    assert [r.getMessage() for r in caplog.records] == [f"job 1 attempt 1: {x}" for x in ("first", "second", "last")]
    output.take(b"x" * 100_000)
    assert len(output.tail) == 64 << 10


async def test_a_line_of_the_jobs_own_log_keeps_its_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    output = Output("job 1 attempt 1")
    for line in (
        b"WARNING app.parse: page 3 is empty", b"ERROR app: no", b"CRITICAL root: gone", b"INFO app: fine", b"plain",
        b"DEBUG app: never left out of a log at INFO", b"ERROR", b"ERROR : x", b"  ERROR app: x", b"ERROR a b: x",
        b"CRITICAL " + b"x" * 200 + b": y",
    ):  # fmt: skip
        output.take(line + b"\n")
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "CRITICAL", *["INFO"] * 8]
    assert caplog.records[0].getMessage() == "job 1 attempt 1: WARNING app.parse: page 3 is empty"


class ArrowMemoryError(MemoryError):
    pass


def _caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (MemoryError(), True),
        (ArrowMemoryError(), True),
        (_caused(ValueError(), _caused(KeyError(), MemoryError())), True),
        (ExceptionGroup("x", [ValueError(), MemoryError()]), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("std::bad_alloc"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (subprocess.CalledProcessError(-6, "x"), True),
        (subprocess.CalledProcessError(134, "x"), True),
        (subprocess.CalledProcessError(-9, "x"), True),
        (subprocess.CalledProcessError(1, "x"), False),
        (OSError(errno.ENOENT, "no"), False),
        (ValueError("can't start new thread"), False),
        (PermanentError("out of memory"), False),
    ],
)
def test_signs_of_exhausted_memory(error: BaseException, found: bool) -> None:
    assert (memory_sign(error, is_near_limit=True) is not None) is found


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "MemoryError: out of memory; peak 212 MB of 512 MB"),
        (MemoryError("Out of memory."), "MemoryError: Out of memory. (peak 212 MB of 512 MB)"),
        (RuntimeError("std::bad_alloc"), "RuntimeError: std::bad_alloc (out of memory; peak 212 MB of 512 MB)"),
        (
            RuntimeError("can't start new thread"),
            "RuntimeError: can't start new thread (out of memory; peak 212 MB of 512 MB)",
        ),
        (
            _caused(ValueError("page 3"), MemoryError()),
            "ValueError: page 3 (out of memory: MemoryError; peak 212 MB of 512 MB)",
        ),
        (
            _caused(ValueError("page 3"), RuntimeError("std::bad_alloc")),
            "ValueError: page 3 (out of memory: RuntimeError: std::bad_alloc; peak 212 MB of 512 MB)",
        ),
        (
            subprocess.CalledProcessError(134, "ocr"),
            (
                "CalledProcessError: Command 'ocr' returned non-zero exit status 134. "
                "(a helper process aborted (134); peak 212 MB of 512 MB)"
            ),
        ),
    ],
)
def test_exhausted_memory_is_told_once(error: BaseException, told: str) -> None:
    sign = memory_sign(error, is_near_limit=True)
    assert sign is not None
    frame = Failure(type=type(error).__name__, message=str(error), memory=sign.text, lost_helper=sign.lost_helper)
    outcome = classify(ChildEvidence(frame=frame, status=0, peak_mb=212, limit_mb=512)).outcome
    assert isinstance(outcome, Died)
    assert f"{outcome.error.type}: {outcome.error.message}" == told


def test_a_cycle_of_exceptions_has_an_end() -> None:
    first, second = ValueError(), KeyError()
    first.__context__, second.__context__ = second, first
    assert memory_sign(first, is_near_limit=True) is None


def test_threads_are_there_before_they_are_needed() -> None:
    """A job that holds every pid that is left must not keep the one from starting that would end it."""
    threads = Threads("early", 2)
    started = [thread for thread in threading.enumerate() if thread.name.startswith("oomph-early")]
    assert len(started) == 2
    threads.stop()
    for thread in started:
        thread.join(5)
        assert not thread.is_alive()
