"""P4: one fresh, capped process for every job, with heavy modules already imported in it."""

import os
from functools import partial

from bench.births import births, forked, fresh
from bench.figures import Figure, Row, at_most, faster
from bench.pictures import bars
from bench.session import Session, Subject, figure, of_system, take_turns
from bench.systems.base import System
from bench.systems.on_redis import Rq
from bench.systems.oomph import Oomph

MODULES = "numpy,pandas,kreuzberg"
JOBS, QUICK_JOBS = 200, 40
FRESH_JOBS, QUICK_FRESH_JOBS = 20, 5
MEMORY_MB = "512"
MS = "ms_per_job"
FRESH = "fresh interpreter"


def run(session: Session) -> None:
    count = session.small(JOBS, QUICK_JOBS)
    few = session.small(FRESH_JOBS, QUICK_FRESH_JOBS)
    cores = len(os.sched_getaffinity(0))
    rq = None
    if session.peers:
        if reason := session.ground.start_redis():
            session.say(f"rq is left out: {reason}")
        else:
            rq = Rq(preload=MODULES)
    subjects = [Subject(FRESH, lambda: fresh(session.ground, few, MODULES).figures(), {"modules": MODULES})]
    for at_once in sorted({1, cores}):
        ours = _oomph(at_once)
        subjects += [
            of_system(ours, partial(_births, session, ours, count, 1), session),
            Subject(
                _bare(at_once),
                partial(_forked, session, count, at_once),
                {"modules": MODULES, "at_once": str(at_once)},
            ),
        ]
        if rq is not None:
            session.versions.update(rq.versions())
            subjects.append(
                Subject(
                    _rq(at_once),
                    partial(_births, session, rq, count, at_once),
                    {**rq.settings, "workers": str(at_once)},
                )
            )
    taken = take_turns(session, subjects)
    figures = {subject.name: figure(taken, subject.name, MS) for subject in subjects}
    for at_once in sorted({1, cores}):
        mine, what = figures[_oomph(at_once).name], f"a process per job, {at_once} at once, ms/job"
        # Judged one at a time: with as many at once as there are cores, ours share them with template and database.
        alone = at_once == 1
        session.tell(Row("P4", what, mine, figures[_bare(at_once)], at_most(2.5) if alone else None))
        if rq is not None:
            session.tell(Row("P4", what, mine, figures[_rq(at_once)], faster(1.5) if alone else None))
        session.tell(Row("P4", what, mine, figures[FRESH], faster(30)))
    name = _oomph(1).name
    for part in taken[name][0]["parts"]:  # type: ignore[attr-defined]
        values = [run["parts"][part] for run in taken[name]]  # type: ignore[index]
        session.tell(Row("P4", f"birth, 1 at once: {part}", Figure(name, values)))
    bars(session.picture("births"), f"P4: a process per job, {MODULES} preloaded", "ms a job", list(figures.values()))


def _births(session: Session, system: System, count: int, workers: int) -> dict[str, object]:
    return births(session.ground, system, count, workers=workers).figures()


def _forked(session: Session, count: int, at_once: int) -> dict[str, object]:
    return forked(session.ground, count, MODULES, at_once).figures()


def _oomph(at_once: int) -> Oomph:
    return Oomph(
        f"oomph ingest c={at_once}",
        pools="ingest",
        preload=MODULES,
        ingest_concurrency=str(at_once),
        ingest_memory_mb=MEMORY_MB,
    )


def _bare(at_once: int) -> str:
    return f"bare fork, {at_once} at once"


def _rq(at_once: int) -> str:
    return f"rq, {at_once} worker{'s' if at_once > 1 else ''}"
