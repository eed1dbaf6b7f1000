"""The first child of a worker: no job, only proof that children can be born, enclosed and loaded here."""

from datetime import timedelta

from jobs.app import Handler
from jobs.store import ClaimedJob
from jobs.task import Payload, Pool, Task
from pools.execution import Execution

KIND = "oomph:rehearsal"
TIMEOUT = timedelta(seconds=30)


class Nothing(Payload):
    """A rehearsal carries nothing."""


def _do_nothing(payload: Nothing) -> None:
    del payload


HANDLER = Handler(Task(kind=KIND, payload_type=Nothing, pool=Pool.INGEST, timeout=TIMEOUT), _do_nothing)


def rehearsal() -> Execution:
    """An attempt that succeeds unless no job could."""
    job = ClaimedJob(
        id=0,
        claim=0,
        kind=KIND,
        pool=Pool.INGEST,
        payload="{}",
        attempt=1,
        max_attempts=1,
        timeout=TIMEOUT,
        organization_id=None,
    )
    return Execution(job, HANDLER, lambda *_: None)
