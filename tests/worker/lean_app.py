"""An app that imports nothing but `jobs`; its kinds tell what their process has loaded."""

import sys

from pydantic import BaseModel

from jobs import App, Handler, Payload, Pool, Task


class Nothing(Payload):
    pass


class Loaded(BaseModel):
    modules: list[str]


IN_WORKER = Task(kind="look-in-worker", payload_type=Nothing, pool=Pool.AGENT)
IN_CHILD = Task(kind="look-in-child", payload_type=Nothing, pool=Pool.INGEST)


async def look_in_worker(payload: Nothing) -> Loaded:
    return Loaded(modules=sorted(sys.modules))


def look_in_child(payload: Nothing) -> Loaded:
    return Loaded(modules=sorted(sys.modules))


app = App(handlers=[Handler(IN_WORKER, look_in_worker), Handler(IN_CHILD, look_in_child)])
