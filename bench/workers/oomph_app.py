"""The kinds that Oomph's worker runs in the bench."""

import os
import resource
import struct
import time
from pathlib import Path

from bench.marks import PATH, mark
from jobs import App, Handler, Payload, Pool, Task

BIRTH = struct.Struct("<qddq")  # number, CPU seconds since the fork, moment of the fork, page faults since then


class Numbered(Payload):
    number: int


class Sleep(Payload):
    seconds: float


NOOP = Task(kind="bench-noop", payload_type=Numbered, pool=Pool.AGENT)
NOOP_CHILD = Task(kind="bench-noop-child", payload_type=Numbered, pool=Pool.INGEST)
SLEEP = Task(kind="bench-sleep", payload_type=Sleep, pool=Pool.AGENT)
SLEEP_CHILD = Task(kind="bench-sleep-child", payload_type=Sleep, pool=Pool.INGEST)
OTHER = Task(kind="bench-other", payload_type=Numbered, pool=Pool.SYSTEM)  # of a pool that is not served
PAUSED = Task(kind="bench-a-paused", payload_type=Numbered, pool=Pool.AGENT)  # before `bench-noop` in every order


async def noop(payload: Numbered) -> None:
    mark(payload.number)


def noop_child(payload: Numbered) -> None:
    mark(payload.number)
    _note_birth(payload.number)


async def sleep(payload: Sleep) -> None:
    import asyncio  # not above: this file is the template's too, which runs no coroutine and should hold no loop

    await asyncio.sleep(payload.seconds)


def sleep_child(payload: Sleep) -> None:
    time.sleep(payload.seconds)


def births_path(marks: str | Path) -> Path:
    """Where children leave what they cost until their handler started."""
    return Path(f"{marks}.births")


def _note_birth(number: int) -> None:
    cpu, faults = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    forked_at = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since the start of the machine, in whole ticks
    with births_path(os.environ[PATH]).open("ab", buffering=0) as births:
        births.write(BIRTH.pack(number, cpu, forked_at, faults))


def app() -> App:
    handlers = [Handler(NOOP, noop), Handler(SLEEP, sleep), Handler(OTHER, noop), Handler(PAUSED, noop)]
    if "ingest" in os.environ.get("WORKER_POOLS", "ingest"):
        handlers += [Handler(NOOP_CHILD, noop_child), Handler(SLEEP_CHILD, sleep_child)]
    preload = os.environ.get("BENCH_PRELOAD", "")
    return App(handlers, preload=preload.split(",") if preload else ())
