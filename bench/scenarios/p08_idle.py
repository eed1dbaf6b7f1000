"""P8: what a worker costs while there is nothing to do."""

from functools import partial

from bench.figures import Row, at_most
from bench.idle import idle
from bench.pictures import bars
from bench.session import Session, figure, of_system, take_turns
from bench.systems.base import System
from bench.systems.on_redis import Celery
from bench.systems.oomph import Oomph
from bench.systems.pgqueuer import Pgqueuer

SECONDS, QUICK_SECONDS = 20, 4
PSS = "pss_mb"
COSTS = {"cpu_seconds_per_hour": "CPU s an hour", "statements_per_minute": "statements a minute"}


def _idle(session: Session, system: System, seconds: float) -> dict[str, object]:
    return idle(session.ground, system, seconds).figures()


def run(session: Session) -> None:
    whole = Oomph("oomph, all pools", pools="agent,ingest,system")
    loops = Oomph("oomph, without ingest", pools="agent,system")
    systems: list[System] = [whole, loops]
    celery, pgqueuer = Celery(), Pgqueuer(driver="asyncpg")
    if session.peers:
        systems.append(pgqueuer)
        if reason := session.ground.start_redis():
            session.say(f"celery is left out: {reason}")
        else:
            systems.append(celery)
    seconds = session.small(SECONDS, QUICK_SECONDS)
    taken = take_turns(session, [of_system(s, partial(_idle, session, s, seconds), session) for s in systems])
    memory = {system.name: figure(taken, system.name, PSS) for system in systems}
    for ours, peer in ((whole, celery), (loops, pgqueuer)):
        if peer.name in memory:
            session.tell(Row("P8", "idle, PSS MiB", memory[ours.name], memory[peer.name], at_most(1)))
        else:
            session.tell(Row("P8", "idle, PSS MiB", memory[ours.name]))
    for cost, what in COSTS.items():
        for ours in (whole, loops):
            peer_figure = figure(taken, pgqueuer.name, cost) if pgqueuer.name in taken else None
            session.tell(Row("P8", f"idle, {what}", figure(taken, ours.name, cost), peer_figure))
    bars(session.picture("memory"), "P8: an idle worker", "PSS, MiB", list(memory.values()))
