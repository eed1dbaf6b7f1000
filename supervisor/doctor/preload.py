"""A real template, started once as a worker starts it: whether what the app preloads can be forked."""

import asyncio
import os

from pools.frames import Ready
from pools.identity import Marks
from pools.options import StartMethod
from pools.spawner import Spawner
from pools.template_hold import TemplateError
from supervisor.doctor.findings import Finding, error, ok


async def start_template(spec: str, method: StartMethod, seconds: float) -> Ready | str:
    """What a template for this app says when it is ready, or why it refuses. It is ended before this returns."""
    spawner = Spawner(spec, os.environ, Marks().template, method)
    try:
        async with asyncio.timeout(seconds):
            await spawner.start()
        assert spawner.ready is not None
        return spawner.ready
    except TemplateError as refusal:
        return str(refusal)
    except TimeoutError:
        return f"the template did not get ready within {seconds:.0f} s"
    finally:
        await spawner.stop()


def fork_safety(method: StartMethod, answer: Ready | str) -> Finding:
    name = "fork safety"
    if isinstance(answer, str):
        return error(
            name,
            answer,
            "No ingest job can start here. What a module does when it is imported belongs inside a handler; for code "
            "that a fork would break there is WORKER_INGEST_START_METHOD=exec.",
        )
    if method is StartMethod.EXEC:
        return ok(name, "not needed: each child loads the app anew (WORKER_INGEST_START_METHOD=exec)")
    return ok(name, f"what the app preloads leaves no thread, socket or process; {answer.rss_mb:,.0f} MB are shared")
