"""The states of a worker's end, as a table. Pure."""

from enum import StrEnum

EXIT_SECONDS = 70.0  # what may follow a drain at worst: the bounds of all steps of the end, which a test adds up


class State(StrEnum):
    """RUNNING claims and runs. DRAINING claims nothing and lets jobs finish. TERMINATING gives the rest back."""

    RUNNING = "running"
    DRAINING = "draining"
    TERMINATING = "terminating"


class Event(StrEnum):
    SIGNAL = "signal"  # SIGTERM or SIGINT
    DRAINED = "drained"  # nothing runs any more
    TIMEOUT = "timeout"  # WORKER_SHUTDOWN_SECONDS are over
    FAILURE = "failure"  # a component cannot go on


_NEXT = {
    (State.RUNNING, Event.SIGNAL): State.DRAINING,
    (State.RUNNING, Event.FAILURE): State.TERMINATING,
    (State.DRAINING, Event.SIGNAL): State.TERMINATING,
    (State.DRAINING, Event.DRAINED): State.TERMINATING,
    (State.DRAINING, Event.TIMEOUT): State.TERMINATING,
    (State.DRAINING, Event.FAILURE): State.TERMINATING,
}


def next_state(state: State, event: Event) -> State:
    """The state after `event`; one that means nothing here changes nothing."""
    return _NEXT.get((state, event), state)


def grace_seconds(drain: float) -> float:
    """What a service manager must leave between SIGTERM and SIGKILL where WORKER_SHUTDOWN_SECONDS is `drain`."""
    return drain + EXIT_SECONDS
