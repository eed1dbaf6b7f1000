"""What the workers of `scripts/shards` run: jobs that do nothing, so that what is measured is their administration."""

from jobs import App, Handler, Payload, Pool, Task


class Number(Payload):
    number: int


NUMBER = Task(kind="number", payload_type=Number, pool=Pool.AGENT)


async def number(payload: Number) -> None: ...


app = App([Handler(NUMBER, number)])
