"""Which trace a job belongs to: carried from whoever enqueues it, through its row, to the attempts that run it.

As text: the header `traceparent` of W3C Trace Context, and after a space `tracestate`, where there is one. Nothing
here imports OpenTelemetry into a process that has not done so itself: without it there is no span to carry.
"""

import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context

MAX_TRACE_CONTEXT_CHARS = 700  # 55 of traceparent, and the 512 of tracestate that everybody has to pass on

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_IDS = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-")


def current_trace(within: "Context | None" = None) -> str | None:
    """The span that is current here, or `within` a context, as a job carries it; None where there is none."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers, within)
    parent = headers.get("traceparent")
    told = " ".join(filter(None, [parent, headers.get("tracestate")]))
    return told if len(told) <= MAX_TRACE_CONTEXT_CHARS and parent else parent


def context_of(carried: str | None) -> "Context":
    """The context whose current span is the one that was carried; an empty one where that is nothing valid."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent, _, state = (carried or "").partition(" ")
    return TraceContextTextMapPropagator().extract({"traceparent": parent, "tracestate": state}, Context())


def trace_ids(carried: str | None) -> dict[str, str]:
    """`trace_id` and `span_id` of what is carried, as a log names them; nothing where it is nothing valid."""
    found = _IDS.match(carried or "")
    return {} if found is None else {"trace_id": found[1], "span_id": found[2]}


def environment_asks_for_traces() -> bool:
    """Whether the standard variables name a collector; a provider that the app sets needs none of them."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return exporter == "otlp" or (not exporter and any(os.environ.get(name) for name in _ENDPOINTS))
