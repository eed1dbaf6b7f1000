"""Jobs of organisations, of which one kind has a bound; each tells how many of its organisation's ran beside it."""

import asyncio
from collections import Counter

from jobs import App, Handler, Payload, Pool, Task

running: Counter[str] = Counter()


class Work(Payload):
    organization: str


class Beside(Payload):
    number: int


BOUNDED = Task(kind="bounded", payload_type=Work, pool=Pool.AGENT, max_per_organization=2)


async def bounded(payload: Work) -> Beside:
    running[payload.organization] += 1
    number = running[payload.organization]
    await asyncio.sleep(0.01)
    running[payload.organization] -= 1
    return Beside(number=number)


app = App([Handler(BOUNDED, bounded)])
