"""Jobs in PostgreSQL, written in the transaction of the service that needs them.

A declaration (`Task`) and `enqueue` are all that a service needs; it never imports the work. The names below are the
whole public interface of declaring, enqueueing and controlling jobs.
"""

from jobs.app import App, Handler, JobContext, Misfire, Overlap, Schedule, Tick
from jobs.context import LeaseLost
from jobs.control import ControlError, cancel, pause, resume, retry
from jobs.enqueue import Job, enqueue, enqueue_many
from jobs.spawn import spawn_after_commit
from jobs.task import Payload, PermanentError, Pool, Priority, Retention, Snooze, Task

__all__ = [
    "App",
    "ControlError",
    "Handler",
    "Job",
    "JobContext",
    "LeaseLost",
    "Misfire",
    "Overlap",
    "Payload",
    "PermanentError",
    "Pool",
    "Priority",
    "Retention",
    "Schedule",
    "Snooze",
    "Task",
    "Tick",
    "cancel",
    "enqueue",
    "enqueue_many",
    "pause",
    "resume",
    "retry",
    "spawn_after_commit",
]
