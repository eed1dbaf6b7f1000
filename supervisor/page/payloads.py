"""The one place where a payload becomes something that people see.

Its secret fields are hidden where rows are read, by `jobs.finding`: what is secret never comes here.
"""

from jobs.finding import JobRow
from supervisor.page.visible import as_json


def payload_text(job: JobRow) -> str:
    """What a job was given, as JSON."""
    return as_json(job.payload)


def result_text(job: JobRow) -> str:
    """What its handler returned, as JSON; empty where it returned nothing."""
    return "" if job.result is None else as_json(job.result)
