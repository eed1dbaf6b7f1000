"""Every failpoint x {kill, exception, stall} on a real worker, then proof that nothing was lost or mischarged."""

import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from jobs.failpoints import OF_DOCUMENTS, Failpoint
from jobs.migrate import migrate
from supervisor.embedded import EmbeddedServer
from tests.chaos.trial import AT_LOSS, AT_SHUTDOWN, Trial, groups

ACTIONS = ("kill", "raise", "stall")
ALONE = "OOMPH_FAILPOINTS_ALONE"  # =1: each place has a worker of its own for every action; four times as long
AT_ONCE = 8  # most of the time a trial waits
SETTINGS = {"track_commit_timestamp": "on", "max_connections": "400"}
# An exception at these ends the process, with a status that is not 0: never half alive.
FATAL = {Failpoint.SCHEDULES_SYNCED, Failpoint.REGISTERED, Failpoint.RENEWED, *AT_LOSS, *AT_SHUTDOWN}


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[Failpoint, str], Trial]]:
    """All trials, run once, several at a time."""
    alone = os.environ.get(ALONE) == "1"
    if not alone:
        print(f"exceptions and stalls share workers; {ALONE}=1 gives each its own")
    folder = Path("/tmp") / f"oomph-test-{uuid.uuid4().hex[:12]}"
    with EmbeddedServer(folder, durable=False, settings=SETTINGS) as server:
        migrate(server)
        with psycopg.connect(server, autocommit=True) as db:
            db.execute((Path(__file__).parent / "history.sql").read_text())  # into what all are copied from
        planned = [(places, action) for action in ACTIONS for places in groups(action, alone=alone)]
        made = _run(server, tmp_path_factory.mktemp("failpoints"), planned)
        # A host that stands still for seconds costs a worker its lease, or its life, before it has reached all of them.
        missed = [(frozenset({place}), trial.action) for trial in made for place in trial.places - trial.reached]
        made += _run(server, tmp_path_factory.mktemp("missed"), missed)
        yield {(place, trial.action): trial for trial in made for place in trial.places}
    shutil.rmtree(folder)


def _run(server: str, logs: Path, planned: list[tuple[frozenset[Failpoint], str]]) -> list[Trial]:
    made = [Trial(_database(server), logs, places, action) for places, action in planned]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(Trial.run, made))


def _database(server: str) -> str:
    name = f"trial_{uuid.uuid4().hex}"
    with psycopg.connect(make_conninfo(server, dbname="template1"), autocommit=True) as db:
        db.execute(sql.SQL("CREATE DATABASE {} TEMPLATE postgres").format(sql.Identifier(name)))
    return make_conninfo(server, dbname=name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("place", [place for place in Failpoint if place not in OF_DOCUMENTS])
def test_whatever_happens_between_two_durable_steps_nothing_is_lost(
    trials: dict[tuple[Failpoint, str], Trial], place: Failpoint, action: str
) -> None:
    trial = trials[place, action]
    assert place in trial.reached, f"never reached\n{trial.logs()}"
    assert trial.violations == [], "\n".join([*trial.violations, trial.logs()])
    assert trial.zombies == 0
    fatal = action == "raise" and place in FATAL
    # A child or a template is killed in the worker's stead.
    expected = {"kill": {-9, 0}, "raise": {1, 75} if fatal else {0}, "stall": {0}}[action]
    if place is Failpoint.TENURE_LOST and action == "stall":
        expected = {75}  # a loop that is blocked just then cannot stop its jobs, so the process ends itself
    assert trial.status in expected, trial.logs()
