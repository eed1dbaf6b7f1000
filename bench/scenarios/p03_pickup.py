"""P3: how soon an idle worker starts a job, for a queue in use and for one that is rarely used."""

from functools import partial

from bench.figures import Row, at_most, lowest
from bench.pickup import pickup
from bench.pictures import distributions
from bench.session import Session, figure, of_system, take_turns
from bench.systems.bare import BareListener
from bench.systems.base import System
from bench.systems.oomph import Oomph
from bench.systems.pgqueuer import Pgqueuer
from bench.systems.procrastinate import Procrastinate

CADENCES = {"20 ms": (300, 60, 0.02), "1 s": (15, 4, 1.0)}  # jobs, jobs of a quick run, seconds between them
SHARES = ("p50_ms", "p99_ms")


def run(session: Session) -> None:
    ours, bare = Oomph(), BareListener()
    peers: list[System] = [Procrastinate(concurrency=10), Pgqueuer(driver="asyncpg")] if session.peers else []
    systems = [ours, bare, *peers]
    for cadence, (jobs, quick_jobs, gap) in CADENCES.items():
        count = session.small(jobs, quick_jobs)
        seen: dict[str, list[float]] = {system.name: [] for system in systems}

        subjects = [
            of_system(system, partial(_measure, session, system, count, gap, seen[system.name]), session)
            for system in systems
        ]
        taken = take_turns(session, subjects)
        for share in SHARES:
            what = f"pickup every {cadence}, {share.replace('_', ' ')}"
            mine = figure(taken, ours.name, share)
            session.tell(Row("P3", what, mine, figure(taken, bare.name, share), at_most(2)))
            for peer in peers:
                session.tell(Row("P3", what, mine, lowest([figure(taken, peer.name, share)]), at_most(1)))
        distributions(
            session.picture(f"every-{cadence.replace(' ', '')}"),
            f"P3: pickup latency, a job every {cadence}",
            "ms",
            seen,
        )


def _measure(session: Session, system: System, count: int, gap: float, seen: list[float]) -> dict[str, object]:
    found = pickup(session.ground, system, count, gap)
    seen += found.milliseconds
    return {**found.figures(), "gap_seconds": gap, "milliseconds": found.milliseconds}
