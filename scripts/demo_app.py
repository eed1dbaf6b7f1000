"""The kinds that `scripts/demo` runs: the real ingestion, agents, short system work, a schedule, and a memory eater."""

import asyncio
from datetime import timedelta

from pydantic import BaseModel

from jobs import App, Handler, JobContext, Payload, Pool, Priority, Schedule, Task, Tick
from jobs.documents import app as documents


class Question(Payload):
    text: str


class Answer(BaseModel):
    words: int


class Nothing(Payload):
    pass


ASK_AGENT = Task(kind="ask-agent", payload_type=Question, pool=Pool.AGENT, priority=Priority.INTERACTIVE)
COUNT_WORDS = Task(kind="count-words", payload_type=Question, pool=Pool.SYSTEM)
TAKE_PULSE = Task(kind="take-pulse", payload_type=Tick, pool=Pool.SYSTEM)
EAT_MEMORY = Task(kind="eat-memory", payload_type=Nothing, pool=Pool.INGEST, max_attempts=2)


async def ask_agent(question: Question, job: JobContext) -> Answer:
    """Waits as an agent does, on something else; hundreds of these share one process."""
    for step in range(4):
        job.progress(step / 4, "thinking")
        await asyncio.sleep(0.25)
    return Answer(words=len(question.text.split()))


def count_words(question: Question) -> Answer:
    """A plain function: it runs in a thread."""
    return Answer(words=len(question.text.split()))


async def take_pulse(tick: Tick) -> None:
    """Fired by the schedule, once a second."""


def eat_memory(_: Nothing) -> None:
    """Grows until the limit stops it."""
    eaten = []
    while True:
        eaten.append(bytearray(8 << 20))


def app() -> App:
    """The demo's app: the documents' handlers and the ones above."""
    ingestion = documents.app()
    return App(
        handlers=[
            *ingestion.handlers.values(),
            Handler(ASK_AGENT, ask_agent),
            Handler(COUNT_WORDS, count_words),
            Handler(TAKE_PULSE, take_pulse),
            Handler(EAT_MEMORY, eat_memory),
        ],
        schedules=[*ingestion.schedules.values(), Schedule("pulse", TAKE_PULSE, timedelta(seconds=1))],
        preload=ingestion.preload,
    )
