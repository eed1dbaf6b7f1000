"""The socket by which a service manager hears of its service: the protocol of sd_notify(3), without its library."""

import logging
import os
import socket
from collections.abc import MutableMapping
from typing import Self

log = logging.getLogger("oomph.worker")


class NotifySocket:
    """Sends to one manager. `watchdog` is how many seconds it waits for a sign of life; None: it does not ask."""

    def __init__(self, address: str, watchdog: float | None) -> None:
        self.watchdog = watchdog
        self._address = address.replace("@", "\0", 1) if address.startswith("@") else address  # "@" spells "abstract"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._is_deaf = False

    @classmethod
    def take(cls, environment: MutableMapping[str, str]) -> Self | None:
        """The socket that `environment` names, if any; taken out of it, so that no child speaks for this process."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        if not address:
            return None
        if address[0] not in "@/":
            log.warning("NOTIFY_SOCKET=%s is no Unix socket: the service manager is told nothing", address)
            return None
        is_asked = microseconds.isdigit() and int(microseconds) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(microseconds) / 1e6 if is_asked else None)

    def tell(self, **fields: str) -> bool:
        """Send these assignments as one message, without waiting. Returns whether it was taken."""
        message = "\n".join(f"{name}={' '.join(value.split())}" for name, value in fields.items())
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._is_deaf:
                log.warning("the service manager does not take what it is told: %s", error)
            self._is_deaf = True
            return False
        self._is_deaf = False
        return True

    def close(self) -> None:
        self._socket.close()
