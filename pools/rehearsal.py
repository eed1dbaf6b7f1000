"""The first child of a worker: no job, only proof that children can be born, enclosed and loaded here."""

from datetime import timedelta

from jobs.app import Handler
from jobs.task import Payload, Pool, Task

KIND = "oomph:rehearsal"
TIMEOUT = timedelta(seconds=30)


class Nothing(Payload):
    """A rehearsal carries nothing."""


def _do_nothing(payload: Nothing) -> None:
    del payload


HANDLER = Handler(Task(kind=KIND, payload_type=Nothing, pool=Pool.INGEST, timeout=TIMEOUT), _do_nothing)
