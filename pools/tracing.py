"""Where spans go: to the provider that the app has set, or to the collector that the standard OTEL_* variables name.

The supervisor and each child of its own have one: a child is a process like any other, and its handler's spans are
sent from there, after its result. Only for a worker that is traced; no other process imports this.
"""

import logging
import os
import threading

from opentelemetry import context, trace

from jobs.tracing import context_of, environment_asks_for_traces

log = logging.getLogger("oomph.tracing")

SERVICE_NAME = "oomph-worker"  # where OTEL_SERVICE_NAME names none
# A collector that does not answer may cost a child this long, once its result is told and if there is a span to send.
CHILD_FLUSH_SECONDS = 1.0

_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def provider() -> trace.TracerProvider | None:
    """The provider of this process: the app's; else one of ours, made now, where the environment asks for it.

    None, with a warning, where its variables are refused: traces are worth less than the jobs. Raises `ImportError`
    where the extra `otel` is missing.
    """
    found = trace.get_tracer_provider()
    if not isinstance(found, trace.ProxyTracerProvider):
        return found
    if not environment_asks_for_traces():
        return None
    try:
        made = _of_environment()
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001  (each variable has its own way to be refused)
        log.warning("no traces: the OTEL_* variables are refused: %s", error)
        return None
    trace.set_tracer_provider(made)
    return made


def preload() -> None:
    """Import what each child would otherwise import for itself. Starts no thread, opens nothing; may be missing."""
    import opentelemetry.exporter.otlp.proto.http.trace_exporter
    import opentelemetry.sdk.trace.export  # noqa: F401


def join(carried: str) -> None:
    """What this process does from now on belongs to the span that is carried. Raises `ImportError` as `provider`."""
    provider()
    context.attach(context_of(carried))


def flush(seconds: float) -> bool:
    """Send what is ready, `seconds` at most: the exporter's own patience is ten, and more. Returns whether it was."""
    send = getattr(trace.get_tracer_provider(), "force_flush", None)
    if send is None:
        return True
    sender = threading.Thread(target=send, name="oomph-last-spans", daemon=True)
    sender.start()
    sender.join(seconds)
    return not sender.is_alive()


def _of_environment() -> trace.TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    protocol = next(filter(None, map(os.environ.get, _PROTOCOLS)), "http/protobuf")
    if protocol != "http/protobuf":
        raise ValueError(f"the protocol {protocol} is not spoken here; http/protobuf is, usually on port 4318")
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": SERVICE_NAME}
    # Sampler, limits, endpoint and headers are read from the environment by the SDK itself. It would wait at the
    # interpreter's end, without a bound of ours: see `flush`.
    made = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return made
