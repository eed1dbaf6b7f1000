"""Handlers that make spans of their own, as instrumented libraries do: on the loop, in a thread, in a child."""

import asyncio
import logging
import os

from opentelemetry import trace

from jobs import App, Handler, Payload, Pool, Task

log = logging.getLogger("app")
tracer = trace.get_tracer("the app")


class Step(Payload):
    """`end`: how the handler ends."""

    end: str = "well"


AGENT = Task(kind="traced-agent", payload_type=Step, pool=Pool.AGENT)
SYSTEM = Task(kind="traced-system", payload_type=Step, pool=Pool.SYSTEM, max_attempts=2)
INGEST = Task(kind="traced-ingest", payload_type=Step, pool=Pool.INGEST, max_attempts=1)


async def on_the_loop(payload: Step) -> None:
    with tracer.start_as_current_span("inside agent"):
        await asyncio.sleep(0)
        log.info("words of the agent")


def in_a_thread(payload: Step) -> None:
    with tracer.start_as_current_span("inside system"):
        if payload.end == "badly":
            raise ValueError("it went badly")


def in_a_child(payload: Step) -> None:
    with tracer.start_as_current_span("inside ingest"):
        print("words of the child", flush=True)
    if payload.end == "killed":
        os.kill(os.getpid(), 9)


def app() -> App:
    return App([Handler(AGENT, on_the_loop), Handler(SYSTEM, in_a_thread), Handler(INGEST, in_a_child)])


def with_its_own_provider() -> App:
    """As an app that has chosen its own SDK, which writes each span to the standard output."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
    trace.set_tracer_provider(provider)
    return app()
