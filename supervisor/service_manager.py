"""What a worker tells the service manager that has started it, such as systemd with `Type=notify`.

READY=1     once, when the worker takes jobs: what /readyz says
WATCHDOG=1  again and again while work can move: what /livez says. It is sent by the loop that runs the handlers, so
            one that is blocked sends none
STATUS=     one line for `systemctl status`, when it changes
STOPPING=1  as soon as the worker ends, with the time that its end may take, whatever the unit says about that
"""

import logging

from supervisor.monitor.vitals import Vitals
from supervisor.notify_socket import NotifySocket
from supervisor.shutdown import State

STARTING_SECONDS = 0.2  # between two reports until the worker is ready: others may wait for that
REPORT_SECONDS = 2.0
SIGNS_PER_WATCHDOG = 3  # two may come late before the manager takes the worker for dead

log = logging.getLogger("oomph.worker")


class ServiceManager:
    """Reports on one worker for the life of its process."""

    def __init__(self, notify: NotifySocket, vitals: Vitals) -> None:
        self._notify = notify
        self._vitals = vitals
        self._is_ready = False
        self._is_dead = False
        self._status = ""
        self._pause = min(REPORT_SECONDS, (notify.watchdog or REPORT_SECONDS) / SIGNS_PER_WATCHDOG)

    async def report_once(self) -> float:
        """Report what is so now; returns the seconds until the next time."""
        signs = self._vitals.signs()
        unready = self._vitals.why_unready(signs)
        fields = self._sign_of_life(self._vitals.why_dead(signs))
        if not self._is_ready and not unready:
            fields["READY"] = "1"
        status = self._told(signs.state, unready)
        if status != self._status:
            fields["STATUS"] = status
        if fields and self._notify.tell(**fields):
            self._is_ready = self._is_ready or "READY" in fields
            self._status = status
        return self._pause if self._is_ready else min(self._pause, STARTING_SECONDS)

    def stopping(self, seconds: float) -> None:
        """The worker ends, within `seconds`: the manager must not kill it before, and may after."""
        self._notify.tell(STOPPING="1", EXTEND_TIMEOUT_USEC=str(round(seconds * 1e6)))

    def close(self) -> None:
        self._notify.close()

    def _sign_of_life(self, why_dead: list[str]) -> dict[str, str]:
        if bool(why_dead) is not self._is_dead:
            self._is_dead = bool(why_dead)
            log.error("work moves again" if not why_dead else f"work cannot move: {'; '.join(why_dead)}")
        return {} if why_dead or self._notify.watchdog is None else {"WATCHDOG": "1"}

    def _told(self, state: State, unready: list[str]) -> str:
        running = f"{self._vitals.running} running"
        if state is not State.RUNNING:
            return f"{state}, {running}"
        return f"not ready: {'; '.join(unready)}, {running}" if unready else f"ready, {running}"
