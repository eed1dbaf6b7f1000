"""P3: how soon an idle worker starts a job, for a queue in use and for one that is rarely used."""

from collections.abc import Mapping, Sequence
from functools import partial

from bench.figures import Row, at_most, lowest
from bench.pickup import PickedUp, pickup, pickup_beside
from bench.pictures import distributions
from bench.session import Session, Taken, figure, of_system, take_turns
from bench.systems.bare import BareListener
from bench.systems.base import System
from bench.systems.oomph import Oomph
from bench.systems.pgqueuer import Pgqueuer
from bench.systems.procrastinate import Procrastinate

SHARES = ("p50_ms", "p99_ms")
IN_USE, RARELY = "20 ms", "1 s"
SECONDS = {IN_USE: 0.02, RARELY: 1.0}  # between two jobs
JOBS, QUICK_JOBS = {IN_USE: 300, RARELY: 60}, {IN_USE: 60, RARELY: 4}

Seen = dict[str, list[float]]  # by system, of all runs


def run(session: Session) -> None:
    ours, bare = Oomph(), BareListener()
    peers: list[System] = [Procrastinate(concurrency=10), Pgqueuer(driver="asyncpg")] if session.peers else []
    systems = [ours, bare, *peers]
    for cadence, measure in {IN_USE: _one_after_the_other, RARELY: _beside_each_other}.items():
        seen: Seen = {system.name: [] for system in systems}
        taken = measure(session, systems, cadence, seen)
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


def _one_after_the_other(session: Session, systems: Sequence[System], cadence: str, seen: Seen) -> Taken:
    count, gap = session.small(JOBS[cadence], QUICK_JOBS[cadence]), SECONDS[cadence]

    def measure(system: System) -> Mapping[str, object]:
        found = pickup(session.ground, system, count, gap)
        seen[system.name] += found.milliseconds
        return _figures(found, gap)

    return take_turns(session, [of_system(system, partial(measure, system), session) for system in systems])


def _beside_each_other(session: Session, systems: Sequence[System], cadence: str, seen: Seen) -> Taken:
    """A minute a run is few jobs, and a slow moment of the machine among them would be one system's bad luck."""
    count, gap = session.small(JOBS[cadence], QUICK_JOBS[cadence]), SECONDS[cadence]
    taken: Taken = {system.name: [] for system in systems}
    for run in range(1, session.runs + 1):
        session.check_time()
        reached = pickup_beside(session.ground, systems[:: 1 if run % 2 else -1], count, gap)
        for system in systems:
            found = reached[system.name]
            seen[system.name] += found.milliseconds
            figures = _figures(found, gap)
            taken[system.name].append(figures)
            session.record(system.name, system.settings, run, figures)
        session.say(f"run {run}: " + ", ".join(f"{name} {found}" for name, found in reached.items()))
    return taken


def _figures(found: PickedUp, gap: float) -> Mapping[str, object]:
    return {**found.figures(), "gap_seconds": gap, "milliseconds": found.milliseconds}
