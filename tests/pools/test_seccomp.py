"""The filter of system calls as a program: what it answers, on machines that are not at hand too."""

import errno
import resource
import struct

import pytest

from pools import seccomp


@pytest.mark.parametrize(
    ("call", "arguments", "answer"),
    [
        ("prlimit64", (0, resource.RLIMIT_NOFILE, 1 << 40), 0),
        ("prlimit64", (77, resource.RLIMIT_RSS, 0), 0),
        ("prlimit64", (77, resource.RLIMIT_NOFILE, 1 << 40), errno.EPERM),
        ("prlimit64", (1 << 32, resource.RLIMIT_RSS, 1), errno.EPERM),
        ("setrlimit", (resource.RLIMIT_RSS, 1), errno.EPERM),
        ("setrlimit", (resource.RLIMIT_CPU, 1), 0),
        ("setpriority", (0, 0, 5), 0),
        ("setpriority", (0, 77, 5), errno.EPERM),
        ("setpriority", (2, 0, 5), errno.EPERM),
        ("ioprio_set", (3, 0, 5), errno.EPERM),
        ("sched_setattr", (77,), errno.EPERM),
        ("mount", (), errno.EPERM),
        ("shmget", (), errno.ENOSYS),
    ],
)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_answers_the_same_on_every_machine(
    machine: str, call: str, arguments: tuple[int, ...], answer: int
) -> None:
    known = seccomp._ARCHITECTURES[machine]
    data = struct.pack("=iIQ6Q", known.numbers[call], known.audit, 0, *arguments, *[0] * (6 - len(arguments)))
    assert _run(seccomp.program(machine) or b"", data) == (0x00050000 | answer if answer else 0x7FFF0000)
    assert _run(seccomp.program(machine) or b"", struct.pack("=iIQ6Q", 0, 0x40000003, *[0] * 7)) == 0x80000000


def _run(program: bytes, data: bytes) -> int:
    """What a filter answers, as the kernel reads it."""
    steps = list(struct.iter_unpack("=HBBI", program))
    at = a = x = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (a,) = struct.unpack_from("=I", data, value)
            case 0x15:
                at += if_true if a == value else if_false
            case 0x35:
                at += if_true if a >= value else if_false
            case 0x07:
                x = a
            case 0x4C:
                a |= x
            case _:
                return int(value)


def test_an_unknown_machine_has_no_filter() -> None:
    assert seccomp.program("riscv64") is None
