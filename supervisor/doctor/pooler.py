"""Whether a session of ours is one session of the server, or a pooler lends it another one for each transaction.

    A  asks which process serves it, and idles          a pooler in transaction mode has that process free again
    B  begins a transaction, and asks the same          and most likely gives it to B; or, where it does not,
    A  asks again                                       gives another one to A

What belongs to a session is lost there: LISTEN, prepared statements, settings, advisory locks.
"""

from dataclasses import dataclass

import psycopg

from supervisor.doctor.findings import Finding, ok, warning
from supervisor.settings import Settings

ROUNDS = 3  # for a pooler that lends its sessions in turn
NAME = "pooler"

Connection = psycopg.AsyncConnection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class PoolerReading:
    """Process ids: the one that A was greeted with when it connected, and those that have served A and B."""

    greeted: int
    first: frozenset[int]
    second: frozenset[int]

    @property
    def is_pooled(self) -> bool:
        """A session has had several processes, or two have had the same one."""
        return len(self.first) > 1 or len(self.second) > 1 or bool(self.first & self.second)

    @property
    def is_direct(self) -> bool:
        return not self.is_pooled and self.first == {self.greeted}


async def read_pooler(first: Connection, second: Connection) -> PoolerReading:
    """Ask over two connections in autocommit mode. Raises psycopg's errors; the caller bounds it."""
    ours, theirs = {await _pid(first)}, set[int]()
    for _ in range(ROUNDS):
        async with second.transaction():
            theirs.add(await _pid(second))
            if ours & theirs:
                break  # and A might wait for a process until B is done
            ours.add(await _pid(first))
        if len(ours) > 1 or len(theirs) > 1:
            break
    return PoolerReading(first.info.backend_pid, frozenset(ours), frozenset(theirs))


def pooler(reading: PoolerReading, settings: Settings) -> Finding:
    if reading.is_direct:
        return ok(NAME, "none: a session is one of the server's")
    if not reading.is_pooled:
        return ok(NAME, "one that keeps a session (session mode)")
    found = "one in transaction mode: each transaction may have another session of the server"
    if settings.worker_listen == "off":
        return ok(NAME, f"{found}; WORKER_LISTEN=off, so the queue is polled")
    if settings.worker_listen_url:
        return ok(NAME, f"{found}; LISTEN has WORKER_LISTEN_URL")
    return warning(
        NAME,
        found,
        "LISTEN does not survive that: set WORKER_LISTEN_URL to a direct connection, or WORKER_LISTEN=off to poll "
        "only.",
    )


async def _pid(connection: Connection) -> int:
    cursor = await connection.execute("SELECT pg_backend_pid()")
    row = await cursor.fetchone()
    assert row is not None
    return int(str(row[0]))
