"""Run by workers of two releases: each job answers which code ran it. Imports what both have."""

import asyncio

import jobs
from jobs import App, Handler, JobContext, Payload, Pool, Task


class Number(Payload):
    number: int


class Where(Payload):
    code: str


NUMBER = Task(kind="number", payload_type=Number, pool=Pool.AGENT)


async def number(payload: Number, job: JobContext) -> Where:
    """Every seventh fails once; every eleventh takes its time."""
    if payload.number % 7 == 0 and job.attempt == 1:
        raise ValueError("once")
    if payload.number % 11 == 0:
        await asyncio.sleep(0.05)
    return Where(code=str(jobs.__file__))


app = App([Handler(NUMBER, number)])
