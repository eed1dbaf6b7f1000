"""Who owns a process, a folder or a cgroup: the supervisor that made it, told from any other one on this host.

Names carry the whole identity. A process carries a mark, a number that all its descendants inherit (`carry_mark`):

    bit 59 | pid of the supervisor (22 bits) | its start time (12) | serial, one per job (18) | checksum (7)

So a supervisor that starts can tell what a dead one left behind from what belongs to one that lives. Every doubt
(another pid namespace, a process that cannot be looked at) counts as alive.
"""

import os
import re
import resource
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pools import process
from pools.procfs import has_capability, parse_hard_limit, parse_stat, slurp

MARK_LIMIT_NAME = "Max resident set"
_OWNED_BIT = 1 << 59
_START_BITS, _SERIAL_BITS, _CHECK_BITS = 12, 18, 7
_LAST_SERIAL = (1 << _SERIAL_BITS) - 1
_CAP_SYS_RESOURCE = 24  # <linux/capability.h>: may raise a hard limit again
_NAME = re.compile(r"oomph-(?P<host>.+)-(?P<boot>[0-9a-f]{8})-(?P<namespace>\d+)-(?P<pid>\d+)-(?P<start>\d+)")


@dataclass(frozen=True, slots=True)
class Owner:
    """One supervisor process; `start` is in clock ticks since boot."""

    host: str
    boot: str
    namespace: int
    pid: int
    start: int

    @classmethod
    def this_process(cls) -> "Owner":
        pid = os.getpid()
        boot = slurp("/proc/sys/kernel/random/boot_id")[:8]
        return cls(
            os.uname().nodename, boot, pid_namespace(pid) or 0, pid, parse_stat(slurp(f"/proc/{pid}/stat")).start
        )

    @classmethod
    def of_name(cls, name: str) -> "Owner | None":
        """Who made the thing of this name; None where it was not one of us."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        host, boot, *numbers = found.groups()
        return cls(host, boot, *map(int, numbers))

    @property
    def name(self) -> str:
        """For a folder or a cgroup of this supervisor."""
        return f"oomph-{self.host}-{self.boot}-{self.namespace}-{self.pid}-{self.start}"

    @property
    def is_gone(self) -> bool:
        """Whether it certainly lives no more. On another host or in another pid namespace that cannot be known."""
        here = Owner.this_process()
        if self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        return self.namespace == here.namespace and _is_gone(self.pid, lambda start: start == self.start)


def pid_namespace(pid: int) -> int | None:
    """The inode of a process's pid namespace; None where we may not know."""
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    except OSError:
        return None


def mark_of(pid: int) -> int | None:
    """The mark that a process carries, dead or alive; None where it has none or is gone."""
    try:
        return parse_hard_limit(slurp(f"/proc/{pid}/limits"), MARK_LIMIT_NAME)
    except (FileNotFoundError, ProcessLookupError):
        return None


def owner_pid(mark: int) -> int:
    """The pid that the supervisor of this mark has, or had."""
    return mark >> (_START_BITS + _SERIAL_BITS + _CHECK_BITS) & 0x3FFFFF


def owner_is_gone(mark: int) -> bool:
    """Whether the mark is one of a supervisor that lives no more, in our own pid namespace."""
    return (
        _OWNED_BIT <= mark < _OWNED_BIT << 1
        and _with_checksum(mark >> _CHECK_BITS) == mark
        and _is_gone(
            owner_pid(mark),
            lambda start: start & 0xFFF == mark >> (_SERIAL_BITS + _CHECK_BITS) & 0xFFF,
        )
    )


class Marks:
    """The marks of one supervisor: one for its template, and a fresh one below it for each job."""

    def __init__(self) -> None:
        owner = Owner.this_process()
        prefix = (1 << 22 | owner.pid) << _START_BITS | owner.start & 0xFFF
        self.own = mark_of(owner.pid)
        self.template = _with_checksum(prefix << _SERIAL_BITS | _LAST_SERIAL)
        self._prefix: int | None = prefix
        self._serial = 0
        self._in_use: set[int] = set()
        _, hard = resource.getrlimit(process.MARK)
        if hard != resource.RLIM_INFINITY and hard <= self.template and not has_capability(_CAP_SYS_RESOURCE):
            # Inside a job of another supervisor a hard limit can only be lowered: marks that tell us no owner.
            self._prefix, self.template = None, min(hard, _OWNED_BIT) - 1

    @property
    def are_owned(self) -> bool:
        """What this supervisor leaves behind can be told from the mark alone."""
        return self._prefix is not None

    @property
    def in_use(self) -> set[int]:
        return set(self._in_use)

    def take(self) -> int:
        """A mark that no running job has, and that none has had for a long time."""
        while True:
            self._serial = self._serial % (_LAST_SERIAL - 1) + 1
            if self._prefix is None:
                mark = self.template - self._serial
            else:
                mark = _with_checksum(self._prefix << _SERIAL_BITS | self._serial)
            if mark not in self._in_use:
                self._in_use.add(mark)
                return mark

    def give_back(self, mark: int) -> None:
        self._in_use.discard(mark)


def _with_checksum(value: int) -> int:
    check = zlib.crc32(value.to_bytes(8, "big")) & ((1 << _CHECK_BITS) - 1)
    return value << _CHECK_BITS | check


def _is_gone(pid: int, same_start: Callable[[int], bool]) -> bool:
    try:
        stat = parse_stat(slurp(f"/proc/{pid}/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return not process.exists(pid)  # with hidepid, /proc does not show what others run
    except OSError:
        return False
    return stat.is_dead or not same_start(stat.start)
