"""The app that the tests of the command line name."""

from datetime import timedelta

from jobs import App, Handler, Payload, Pool, Priority, Schedule, Task, Tick


class Greeting(Payload):
    name: str
    times: int = 1


GREET = Task(
    kind="greet",
    payload_type=Greeting,
    pool=Pool.SYSTEM,
    max_attempts=2,
    timeout=timedelta(minutes=2),
    priority=Priority.BULK,
)
DIGEST = Task(kind="digest", payload_type=Tick, pool=Pool.SYSTEM)
PARSE = Task(kind="parse", payload_type=Greeting, pool=Pool.INGEST)


async def greet(payload: Greeting) -> None:
    assert payload.name != "nobody", "nobody is there"


async def digest(tick: Tick) -> None:
    del tick


def app() -> App:
    return App(
        handlers=[Handler(GREET, greet), Handler(DIGEST, digest), Handler(PARSE, greet)],
        schedules=[Schedule("daily-digest", DIGEST, timedelta(days=1))],
    )
