"""What readings of the database mean for a worker. Pure; spans are seconds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from jobs.database import MAX_CONNECTIONS
from jobs.migrate import SchemaError, check_version
from jobs.overview import Overview
from supervisor.commands.output import span
from supervisor.doctor.findings import Finding, error, ok, warning

OLDEST_SERVER = 140_000  # PostgreSQL 14, as server_version_num tells it
WORKER_CONNECTIONS = MAX_CONNECTIONS + 4  # and one each for claims, successes, the lease and LISTEN
CLOCK_SECONDS = 1.0  # what people and logs of two hosts compare is off by more; no lease depends on it
NOTIFY_SECONDS = 0.5  # a job waits so long for its worker to hear of it
SNAPSHOT_SECONDS = 300.0  # a busy queue leaves 100,000 dead rows meanwhile
DEAD_ROWS = 10_000  # fewer cost a look at the queue nothing that anybody would notice
CLAIM_INDEX = "background_jobs_claim"


class ServerFacts(NamedTuple):
    """As `server_facts` selects them. `connections_left` is None where the server does not say."""

    version: int
    version_told: str
    read_only: bool
    has_migrations: bool
    has_jobs: bool
    connections_left: int | None


class Holder(NamedTuple):
    """Who holds the oldest snapshot: a session, a prepared transaction or a replication slot of that `name`.

    `transactions` is how many have begun since. `hidden` counts sessions that we may not look into.
    """

    what: str | None
    pid: int | None
    owner: str | None
    name: str | None
    state: str | None
    seconds: float | None
    transactions: int | None
    hidden: int


class TableHealth(NamedTuple):
    """The spans are since its last vacuum and its last analyse, None for never."""

    name: str
    living: int
    dead: int
    vacuumed: float | None
    analysed: float | None
    has_autovacuum: bool


@dataclass(frozen=True, slots=True)
class ClockReading:
    """How far the server's clock is ahead of ours, and by how much that may be wrong."""

    offset: float
    uncertainty: float


def server_version(facts: ServerFacts) -> Finding:
    if facts.version < OLDEST_SERVER:
        return error("PostgreSQL", facts.version_told, "Oomph needs PostgreSQL 14 or newer: upgrade the server.")
    return ok("PostgreSQL", facts.version_told)


def writable(facts: ServerFacts) -> Finding:
    if facts.read_only:
        return error(
            "writable",
            "no: the server is a standby, or transactions are read-only by default",
            "Name the primary: several hosts in DATABASE_URL with target_session_attrs=read-write find it.",
        )
    return ok("writable", "yes")


def migrations(present: int, needs: int) -> Finding:
    """`present` is the newest applied migration, 0 for none; `needs` what the schema needs of a release."""
    try:
        check_version(present, needs)
    except SchemaError as refusal:
        return error("migrations", str(refusal), "A worker of this release does not start on that schema.")
    return ok("migrations", f"up to date, at version {present}")


def connections(facts: ServerFacts) -> Finding:
    name, left = "connections", facts.connections_left
    if left is None:
        return warning(name, "the server does not say how many are left", "Look at max_connections by hand.")
    found = f"{max(left, 0):,} left; a worker has {WORKER_CONNECTIONS} at most"
    if left < WORKER_CONNECTIONS:
        return error(name, found, "Raise max_connections or the limit of the role or database, or end idle sessions.")
    if left < 2 * WORKER_CONNECTIONS:
        return warning(name, found, "A second worker does not fit, such as the new one of a deploy: make room.")
    return ok(name, found)


def clock(reading: ClockReading) -> Finding:
    where = "ahead of" if reading.offset > 0 else "behind"
    found = (
        f"the server is {span_of(abs(reading.offset))} {where} this host, give or take {span_of(reading.uncertainty)}"
    )
    if abs(reading.offset) > CLOCK_SECONDS + reading.uncertainty:
        return warning(
            "clock",
            found,
            "No lease depends on it, but a run_after that a service reckons is early or late by it, and logs do not "
            "fit together: run NTP on both.",
        )
    return ok("clock", found)


def notify(round_trip: float | None, wait: float, poll: float) -> Finding:
    """`round_trip` None: it did not come within `wait`. `poll` is WORKER_POLL_SECONDS."""
    if round_trip is None:
        return warning(
            "NOTIFY",
            f"a notification did not arrive within {wait:g} s",
            f"Jobs wait for a poll, up to {poll:g} s: a pooler in transaction mode needs WORKER_LISTEN_URL; otherwise "
            "look for a listener that blocks the queue (pg_notification_queue_usage()).",
        )
    found = f"{span_of(round_trip)} from one session to another"
    if round_trip > NOTIFY_SECONDS:
        return warning("NOTIFY", found, "Each job starts that much later: look at the load of the server and network.")
    return ok("NOTIFY", found)


def snapshot(holder: Holder) -> Finding:
    name = "oldest snapshot"
    unseen = f"; {holder.hidden} sessions of other roles cannot be looked into" if holder.hidden else ""
    see_all = "GRANT pg_read_all_stats to this role to see all sessions."
    if holder.what is None:
        if holder.hidden:
            return warning(name, f"none that this role may see{unseen}", see_all)
        return ok(name, "nobody holds one")
    found = _told_holder(holder) + unseen
    if holder.seconds is None or holder.seconds > SNAPSHOT_SECONDS:
        return warning(
            name,
            found,
            "No dead row that is younger can be removed, and whatever walks the queue walks over them: "
            + _end_of(holder),
        )
    return warning(name, found, see_all) if holder.hidden else ok(name, found)


def dead_rows(tables: Sequence[TableHealth]) -> Finding:
    """`tables` in the order of their dead rows, most first."""
    name = "dead rows"
    if not tables:
        return warning(name, "there are no statistics of our tables", "Is track_counts on?")
    unattended = [table.name for table in tables if not table.has_autovacuum]
    if unattended:
        return warning(
            name,
            f"no autovacuum of {', '.join(unattended)}",
            "Switch autovacuum and track_counts on, for these tables too: every job leaves two dead rows.",
        )
    bloated = [table for table in tables if table.dead > max(DEAD_ROWS, table.living)]
    if bloated:
        return warning(
            name,
            "; ".join(map(_told_table, bloated)),
            f"VACUUM (ANALYZE) {', '.join(table.name for table in bloated)}; if that does not help, somebody holds an "
            "old snapshot.",
        )
    worst, rest = tables[0], len(tables) - 1
    return ok(name, f"{_told_table(worst)}; {rest} other tables have no more")


def claim_plan(plan: Any) -> Finding:
    """`plan` is what EXPLAIN (FORMAT JSON) answers."""
    ways = {
        f"{node['Node Type']} {node.get('Index Name', '')}".strip(): node.get("Index Name")
        for node in _nodes(plan[0]["Plan"])
        if node.get("Relation Name") == "background_jobs"
    }
    if set(ways.values()) == {CLAIM_INDEX}:
        return ok("claim plan", f"by {' and '.join(sorted(ways))}")
    return error(
        "claim plan",
        f"by {' and '.join(sorted(ways)) or 'no index'}, not by {CLAIM_INDEX}",
        f"Each claim walks too much: is that index there and valid? REINDEX INDEX CONCURRENTLY {CLAIM_INDEX}, or make "
        "it as `oomph migrate --sql` shows it.",
    )


def workers(seen: Overview) -> Finding:
    """Whether every pool with due jobs has a live worker."""
    found = f"{seen.workers:,} live" + (f", for {', '.join(seen.served)}" if seen.served else "")
    if not any(kind.load.due for kind in seen.kinds):
        return ok("workers", f"{found}; no job is due")
    unserved = "; ".join(
        f"nobody serves {pool}, where {due:,}{' or more' if due >= seen.count_limit else ''} are due"
        for pool, due in seen.unserved().items()
    )
    if not seen.workers:
        return error("workers", f"none lives; {unserved or 'jobs are due'}", "Start one: `oomph worker`.")
    if unserved:
        return warning(
            "workers", f"{found}; {unserved}", "Start one for it, or let one serve it as well (WORKER_POOLS)."
        )
    return ok("workers", found)


def span_of(seconds: float) -> str:
    """`span`, of what may be shorter than a millisecond."""
    return "less than 1 ms" if 0 <= seconds < 0.001 else span(timedelta(seconds=seconds))


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _told_holder(holder: Holder) -> str:
    parts = [
        f"pid {holder.pid}" if holder.pid is not None else "",
        f"application {holder.name!r}" if holder.what == "session" else repr(holder.name),
        f"user {holder.owner}" if holder.owner else "",
        holder.state or "",
        "" if holder.seconds is None else f"for {span(timedelta(seconds=math.floor(holder.seconds)))}",
        f"{holder.transactions:,} transactions have begun since",
    ]
    return f"{holder.what} " + ", ".join(filter(None, parts))


def _end_of(holder: Holder) -> str:
    match holder.what:
        case "session":
            return (
                f"let that transaction end, or SELECT pg_terminate_backend({holder.pid}), and set "
                "idle_in_transaction_session_timeout."
            )
        case "prepared transaction":
            return f"ROLLBACK PREPARED {holder.name!r}, or commit it."
        case _:
            return "let its standby catch up, or SELECT pg_drop_replication_slot(...)."


def _told_table(table: TableHealth) -> str:
    vacuumed = "never vacuumed" if table.vacuumed is None else f"vacuumed {_ago(table.vacuumed)}"
    analysed = "never analysed" if table.analysed is None else f"analysed {_ago(table.analysed)}"
    return f"{table.name}: {table.dead:,} dead, {table.living:,} living, {vacuumed}, {analysed}"


def _ago(seconds: float) -> str:
    return f"{span(timedelta(seconds=math.floor(seconds)))} ago"
