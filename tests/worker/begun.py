"""Whether a job that is claimed has also begun: a claim is committed before its worker knows of it."""

import re
from collections.abc import Iterable

from supervisor.testing.processes import WorkerProcess


def has_begun(workers: Iterable[WorkerProcess], job_id: int, claim: int) -> bool:
    """By what the handlers of `tests.worker.app` log on the loop and in threads, and by the title of a child."""
    told = re.compile(rf"job {job_id} has begun, claim {claim}\b")
    return any(
        told.search(worker.text()) is not None
        or (worker.process.poll() is None and worker.child_of(job_id) is not None)
        for worker in workers
    )
