"""Whether a worker is live and whether it is ready, from its signs. Pure.

live     work can move. What is not live never heals by itself: start the process anew.
ready    this worker takes jobs right now. An outage of the database makes a worker unready, never dead: to start
         it anew would not help, and would cost the jobs that it may still finish.
"""

from dataclasses import dataclass

from supervisor.shutdown import State

CANCEL_SECONDS = 10.0  # psycopg's own patience beyond the bound of a call, for the answer to its cancel request
CALLS_IN_TURN = 8  # a claim, its probe and its look, and before them those of the other pools, one after the other
LATE_SECONDS = 5.0  # for a look at the queue to come after its time, on a busy host


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the settings make of it. Seconds."""

    lease: float  # as it is trusted: without its margin
    heartbeat: float
    poll: float
    call_timeout: float

    @property
    def stuck(self) -> float:
        """A claim or a look that takes longer will never end."""
        return CALLS_IN_TURN * (self.call_timeout + CANCEL_SECONDS)

    @property
    def fresh(self) -> float:
        """Less trust than this is left only where two renewals in a row have failed."""
        return self.lease - 2 * self.heartbeat

    @property
    def looked(self) -> float:
        """A queue that was not looked at for so long is not polled any more."""
        return self.poll + self.call_timeout + LATE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What is seen of a worker at one moment. Seconds; None where there is no such thing, or not yet."""

    state: State
    lease_left: float | None
    keeper_alive: bool
    asking_for: float  # the longest that a claim or a look at the queue is on its way already
    looked_ago: float | None
    hears: bool
    template_up: bool | None


def why_dead(signs: Signs, limits: Limits) -> list[str]:
    """Why no work can move here, each in a line; nothing for a live worker."""
    return [
        told
        for is_so, told in (
            # One without trust is replaced together with its lease, once the database answers.
            (bool(signs.lease_left) and not signs.keeper_alive, "the lease keeper has ended"),
            (signs.asking_for > limits.stuck, f"a claim is on its way for {signs.asking_for:.0f} s"),
        )
        if is_so
    ]


def why_unready(signs: Signs, limits: Limits) -> list[str]:
    """Why this worker takes no jobs now, each in a line; nothing for a ready one."""
    if signs.state is not State.RUNNING:
        return [f"it is {signs.state}"]
    if signs.lease_left is None:
        return ["it is starting"]
    polls = signs.looked_ago is not None and signs.looked_ago <= limits.looked
    return why_dead(signs, limits) + [
        told
        for is_so, told in (
            (signs.lease_left <= 0, "its lease is lost"),
            (
                0 < signs.lease_left < limits.fresh,
                f"its lease was not renewed, and is trusted for {signs.lease_left:.1f} s",
            ),
            (not (signs.hears or polls), "it neither hears notifications nor polls the queue"),
            (signs.template_up is False, "no template is up, so no ingest job can start"),
        )
        if is_so
    ]
