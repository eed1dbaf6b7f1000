"""What a notice is of, by its event: the page that shows it, or the command. Pure.

Names of kinds are what anybody chose: in an address they are quoted, and in a command too, for a shell.
"""

import shlex
from dataclasses import dataclass

from jobs.task import MAX_KIND_LENGTH
from supervisor.installation import Installation
from supervisor.notices.outbox import Notice

PAUSE_EVENTS = frozenset({"paused-kind", "dead-probe"})  # event:kind:generation:job
UNDECLARED_EVENT = "undeclared-kind"  # event:kind:day
JOB_EVENT = "dead-job"  # event:job:when
MAX_ID_DIGITS = 19  # of a bigint


@dataclass(frozen=True, slots=True)
class OfKind:
    """A kind: paused, or without a worker that declares it."""

    kind: str
    is_paused: bool = True


@dataclass(frozen=True, slots=True)
class OfJob:
    """A job that is dead."""

    job_id: int


def subject_of(event: str) -> OfKind | OfJob | None:
    """None for what is neither a kind's nor a job's, or was written by hand."""
    name, _, rest = event.partition(":")
    is_paused = name in PAUSE_EVENTS
    if is_paused or name == UNDECLARED_EVENT:
        after_kind = 2 if is_paused else 1
        kind = rest.rsplit(":", after_kind)[0]
        is_told = rest.count(":") >= after_kind and 0 < len(kind) <= MAX_KIND_LENGTH
        return OfKind(kind, is_paused) if is_told else None
    number = rest.partition(":")[0]
    if name == JOB_EVENT and number.isascii() and number.isdigit() and len(number) <= MAX_ID_DIGITS:
        return OfJob(int(number))
    return None


def url_of(notice: Notice, installation: Installation) -> str:
    """The page of its kind or job, or else the list of notices; empty without a page."""
    match subject_of(notice.event):
        case OfKind(kind):
            return installation.kind_url(kind)
        case OfJob(job_id):
            return installation.job_url(job_id)
        case None:
            return installation.notices_url


def what_to_do(notice: Notice, installation: Installation) -> str:
    """One line: the page of its kind or job, or without a page the command; empty where it is of neither."""
    match subject_of(notice.event):
        case None:
            return ""
        case _ if installation.page_url:
            return url_of(notice, installation)
        case OfKind(kind, is_paused):
            return _how_to_resume(kind) if is_paused else ""  # its text names the commands
        case OfJob(job_id):
            return f"`oomph jobs show {job_id}` tells more."


def _how_to_resume(kind: str) -> str:
    if not kind.isprintable() or kind.startswith("-"):
        return "`oomph kinds list` shows it."  # a command with such a name would be read as another one
    return f"`oomph kinds resume {shlex.quote(kind)} --actor NAME` lets it run again; with --probe, one job goes first."
