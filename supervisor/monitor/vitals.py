"""The signs of one worker, read off its parts, for whoever asks whether it is live and ready."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.task import Pool
from supervisor.attempts import Attempts
from supervisor.listener import Listener
from supervisor.monitor import probes
from supervisor.monitor.probes import Limits, Signs
from supervisor.settings import Settings
from supervisor.shutdown import State
from supervisor.tenure import Tenure

if TYPE_CHECKING:
    from pools.ingest import IngestPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a worker that are looked at. What changes while it runs is asked for anew."""

    attempts: Attempts
    pools: list[Pool]
    ingest: "IngestPool | None"
    state: Callable[[], State]
    tenure: Callable[[], Tenure | None]
    listener: Listener | None


class Vitals:
    """What `supervisor.monitor.probes` says of a worker with these settings and parts."""

    def __init__(self, settings: Settings, parts: Parts) -> None:
        self.parts = parts
        self._limits = Limits(
            lease=settings.worker_lease_seconds - settings.lease_margin,
            heartbeat=settings.worker_heartbeat_seconds,
            poll=settings.worker_poll_seconds,
            call_timeout=settings.worker_call_timeout_seconds,
        )

    @property
    def running(self) -> int:
        """How many attempts run."""
        return self.parts.attempts.running

    def why_dead(self, signs: Signs) -> list[str]:
        return probes.why_dead(signs, self._limits)

    def why_unready(self, signs: Signs) -> list[str]:
        return probes.why_unready(signs, self._limits)

    def signs(self) -> Signs:
        parts, tenure, listener = self.parts, self.parts.tenure(), self.parts.listener
        now = time.monotonic()
        return Signs(
            state=parts.state(),
            lease_left=None if tenure is None else tenure.keeper.seconds_left,
            keeper_alive=tenure is not None and tenure.keeper.alive,
            asking_for=0.0 if tenure is None else tenure.claims.asking_for(now),
            looked_ago=None if tenure is None or tenure.claims.looked_at is None else now - tenure.claims.looked_at,
            hears=listener is not None and listener.round_trip_seconds is not None,
            template_up=None if parts.ingest is None else parts.ingest.template_up,
        )
