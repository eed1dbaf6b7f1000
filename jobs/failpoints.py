"""Named places between two durable steps, where a test makes a process die, raise, stall or stop.

`WORKER_FAILPOINTS="claimed:kill,renewed:stall=5:2"` arms places, each for one visit or for as many as its last number
says, counted by each process for itself. `tests/test_failpoints.py` walks all of them. Unset, `failpoint` is an empty
function: a visit costs some tens of nanoseconds, and each place is visited once a job or less.

Lowest layer: every package and every process of a worker may use it, so it imports nothing of ours.
"""

import os
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from typing import NoReturn

VARIABLE = "WORKER_FAILPOINTS"
STALL_SECONDS = 5.0
EXIT_STATUS = 70  # EX_SOFTWARE of sysexits.h


class Failpoint(StrEnum):
    """Every place there is, in the order of a job's life: what is done -> what is not done yet."""

    SCHEDULES_SYNCED = "schedules-synced"  # the schedules are written -> the worker registers
    REGISTERED = "registered"  # the worker is known -> its lease is kept
    CLAIMED = "claimed"  # a claim is committed -> its jobs are started
    PROBE_CLAIMED = "probe-claimed"  # the claim of a probe is committed -> it is started
    SPAWNED = "spawned"  # (template) a child is forked -> its pid is told
    BORN = "born"  # a child is ours -> its gate is opened
    GATE_OPENED = "gate-opened"  # the child has its job -> its end is waited for
    RETURNED = "returned"  # (child) the handler has returned -> its result is sent
    TOLD = "told"  # (child) the result is sent -> the child exits
    INTENDED = "intended"  # why a child must end is recorded -> it is killed
    EXITED = "exited"  # a child is dead -> what it said last is read
    TREE_KILLED = "tree-killed"  # nothing of the job is alive -> the child is reaped
    REAPED = "reaped"  # the child is reaped -> its verdict is made
    REPORTED = "reported"  # a report is made -> the writer has it
    OUTCOME_TAKEN = "outcome-taken"  # the writer took reports -> they are sent
    SUCCESSES_COMMITTED = "successes-committed"  # successes are committed -> the worker knows
    STREAK_COUNTED = "streak-counted"  # a kind's streak has moved -> it is committed with the outcome
    OUTCOME_WRITTEN = "outcome-written"  # another outcome is executed -> it is committed
    OUTCOME_COMMITTED = "outcome-committed"  # another outcome is committed -> the worker knows
    PROGRESS_WRITTEN = "progress-written"  # progress is committed -> attempts that turn out to be lost are told to end
    CANCEL_READ = "cancel-read"  # an operator's cancel is read -> the attempt is told
    RENEWED = "renewed"  # the lease is renewed -> the worker trusts it
    LEASE_LOST = "lease-lost"  # the keeper sees that the lease is lost -> the worker is told
    TENURE_LOST = "tenure-lost"  # the attempts of a lost lease are told to end -> a new id is taken
    LOSS_MARKED = "loss-marked"  # a worker is marked as lost -> its jobs are settled
    RESCUE_WRITTEN = "rescue-written"  # jobs of a lost worker are settled -> that is committed
    RESCUE_COMMITTED = "rescue-committed"  # a batch of them is committed -> the next one is looked for
    UNKNOWN_FOUND = "unknown-found"  # claims whose answer was lost are found -> they are given back
    OCCURRENCE_FIRED = "occurrence-fired"  # an occurrence is in the queue -> its schedule is advanced
    TICK_COMMITTED = "tick-committed"  # occurrences are committed -> the pools are woken for them
    DRAINED = "drained"  # a shutdown has waited long enough -> what still runs is given back
    RELEASED = "released"  # everything is given back -> the worker's row is taken away
    DEREGISTERED = "deregistered"  # the worker's row is gone -> its process ends
    # Of the kind `ingest-document`, in its child:
    DOCUMENT_PARSING = "document-parsing"  # the status is PARSING -> the original is fetched and parsed
    DOCUMENT_CHUNKING = "document-chunking"  # the status is CHUNKING -> its pages are cut
    DOCUMENT_ASSETS = "document-assets"  # its assets are stored -> so is its snapshot
    DOCUMENT_SNAPSHOT = "document-snapshot"  # its snapshot is stored -> the status is EMBEDDING
    DOCUMENT_EMBEDDING = "document-embedding"  # the status is EMBEDDING -> its chunks are embedded
    DOCUMENT_INDEXING = "document-indexing"  # the status is INDEXING -> the new index is written
    DOCUMENT_WRITTEN = "document-written"  # the new index is written -> it is committed, with the job's success
    DOCUMENT_READY = "document-ready"  # that is committed -> the handler returns


# A worker meets these only where it ingests documents.
OF_DOCUMENTS = frozenset(place for place in Failpoint if place.startswith("document-"))


class FailpointReached(RuntimeError):
    """What an armed place raises: it stands for any fault of ours that nobody foresaw."""


class FailpointError(ValueError):
    """WORKER_FAILPOINTS cannot be understood; the message says what would be."""


def kill(_: float) -> NoReturn:
    """SIGKILL to this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process survives no SIGKILL")


def leave(status: float) -> NoReturn:
    """End this process at once, with no clean-up."""
    os._exit(int(status))


def fail(_: float) -> NoReturn:
    """Raise `FailpointReached`."""
    raise FailpointReached("a test asked for this exception")


def stop(_: float) -> None:
    """SIGSTOP to this process: somebody must continue it."""
    os.kill(os.getpid(), signal.SIGSTOP)


# By name: what is done, and the value it is done with unless another is given.
ACTIONS: dict[str, tuple[Callable[[float], None], float]] = {
    "kill": (kill, 0),
    "exit": (leave, EXIT_STATUS),
    "raise": (fail, 0),
    "stall": (time.sleep, STALL_SECONDS),
    "stop": (stop, 0),
}


class Armed:
    """What happens at one place, and for how many visits more."""

    def __init__(self, action: str, value: float, times: int) -> None:
        self._name = action
        self._act = ACTIONS[action][0]
        self._value = value
        self.times = times

    def visit(self, place: Failpoint) -> None:
        if self.times <= 0:
            return
        self.times -= 1
        # Not by `logging`: its lock and its buffers are part of what a kill may hit.
        os.write(2, f"failpoint {place}: {self._name} in process {os.getpid()}\n".encode())
        self._act(self._value)


def parse(text: str) -> dict[Failpoint, Armed]:
    """Read `name:action[=value][:times]`, separated by commas. Raises `FailpointError`."""
    armed: dict[Failpoint, Armed] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, rest = part.partition(":")
        action, _, times = rest.partition(":")
        action, _, value = action.partition("=")
        if name not in set(Failpoint):
            raise FailpointError(f"{VARIABLE}={part}: there is no place {name!r}; there are {', '.join(Failpoint)}")
        if action not in ACTIONS:
            raise FailpointError(f"{VARIABLE}={part}: the action must be one of {', '.join(ACTIONS)}, not {action!r}")
        try:
            armed[Failpoint(name)] = Armed(action, float(value or ACTIONS[action][1]), int(times or 1))
        except ValueError:
            raise FailpointError(f"{VARIABLE}={part}: value and times are numbers, as in renewed:stall=5:2") from None
    return armed


def check() -> None:
    """Raise `FailpointError` if the environment arms what cannot be understood."""
    parse(os.environ.get(VARIABLE, ""))


def _armed_by_environment() -> Callable[[Failpoint], None]:
    try:
        armed = parse(os.environ.get(VARIABLE, ""))
    except FailpointError:
        armed = {}  # an import is no place to refuse a setting: `check` does it at the start
    if not armed:

        def nothing(place: Failpoint) -> None: ...

        return nothing

    def visit(place: Failpoint) -> None:
        if (found := armed.get(place)) is not None:
            found.visit(place)

    return visit


failpoint = _armed_by_environment()
