"""What a checker must not let pass: each line that ends with `# wrong`, and no other."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from jobs import App, Handler, Job, JobContext, Payload, Pool, Schedule, Task, enqueue, enqueue_many


class Resize(Payload):
    width: int


class Rotate(Payload):
    degrees: int


RESIZE = Task(kind="resize", payload_type=Resize, pool=Pool.INGEST)
UNKNOWN = Task(kind="resize", payload_type=Resize, pool="ingest")  # wrong
UNBOUNDED = Task(kind="resize", payload_type=Resize, pool=Pool.INGEST, timeout=60)  # wrong


def resize(payload: Resize) -> None: ...
def rotate(payload: Rotate, job: JobContext) -> None: ...
def lost(payload: Resize) -> int:
    return payload.width


Handler(RESIZE, rotate)  # wrong
Handler(RESIZE, lost)  # wrong
App(handlers=[RESIZE])  # wrong
Schedule("sweep", RESIZE, timedelta(hours=1))  # wrong


def upload(db: Any, many: Iterable[Rotate]) -> None:
    enqueue(db, RESIZE, Rotate(degrees=90))  # wrong
    enqueue(db, RESIZE, Resize(width=90), dedupe="key")  # wrong
    enqueue_many(db, RESIZE, many)  # wrong
    enqueue_many(db, RESIZE, [Job(payload=Rotate(degrees=90))])  # wrong
