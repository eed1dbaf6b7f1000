"""Which processes of jobs were alive, and how long: found among the children of supervisors, then followed."""

import re
import time
from contextlib import suppress
from dataclasses import replace

import psutil

from tests.chaos.history import Sighting

TITLE = re.compile(r"^oomph: \S+ job (\d+) attempt")
TEMPLATE_TITLE = "oomph: template"


class Processes:
    """`sightings` holds every child, helper and zombie that was seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], Sighting] = {}  # by pid and start; zombies by pid and minus that
        self._alive: set[tuple[int, float]] = set()

    @property
    def sightings(self) -> list[Sighting]:
        return list(self._seen.values())

    def look(self, supervisor: int) -> int | None:
        """See the children of a supervisor. Returns the pid of its template."""
        template = None
        for child in children_of(supervisor):
            with suppress(psutil.NoSuchProcess):
                if child.status() == psutil.STATUS_ZOMBIE:
                    self.see(child, "zombie", supervisor)
                    continue
                title = " ".join(child.cmdline())
                if title.startswith(TEMPLATE_TITLE):
                    template = child.pid
                elif found := TITLE.match(title):
                    self.see(child, "child", supervisor, int(found[1]))
        return template

    def look_again(self) -> None:
        """See the children that are still alive, also those whose supervisor is not: they are nobody's any more."""
        for pid, created in list(self._alive):
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE:
                    self._seen[pid, created] = replace(self._seen[pid, created], last=time.time())
                    continue
            self._alive.discard((pid, created))

    def see(
        self, process: psutil.Process, what: str, owner: int, job: int | None = None, claim: int | None = None
    ) -> None:
        """It is there now."""
        now = time.time()
        key = (process.pid, process.create_time()) if what != "zombie" else (process.pid, -process.create_time())
        if what == "child":
            self._alive.add(key)
        seen = self._seen.get(key)
        if seen is None:
            self._seen[key] = Sighting(process.pid, what, owner, now, now, job, claim)
        else:
            self._seen[key] = replace(seen, last=now)


def children_of(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []
