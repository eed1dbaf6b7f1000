"""A span of each attempt, as the conventions of OpenTelemetry for messaging name it: `process KIND`, a consumer's.

It continues the trace of whoever enqueued the job, and is linked to that span too, for readers that look for links.
The handler's own spans are below it, in a child as well. Without the extra `otel`, or without anywhere to send spans
to, nothing of this is imported.
"""

import logging
from importlib.metadata import version

from opentelemetry import context, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from jobs.claim import ClaimedJob
from jobs.outcome import AttemptReport, Died, Failed
from jobs.tracing import context_of, current_trace
from pools import tracing

log = logging.getLogger("oomph.tracing")

LAST_SECONDS = 3.0  # for the spans that are left when the worker ends


class AttemptSpan:
    """The span of one attempt. Implements `pools.execution.Span`."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.context = trace.set_span_in_context(span, context.Context())

    def enter(self) -> None:
        """Make it the current span of this task or thread, which is the attempt's own."""
        context.attach(self.context)

    def end(self, report: AttemptReport) -> None:
        """End it with the verdict; an error of the job is one of the span."""
        try:
            self._end(report)
        except Exception:
            log.exception("a span could not be ended")  # by a processor of the app's; its job goes on

    def _end(self, report: AttemptReport) -> None:
        span, outcome, process = self._span, report.outcome, report.process
        span.set_attribute("oomph.verdict", str(outcome.verdict))
        if process.peak_memory_mb is not None:
            span.set_attribute("oomph.peak_memory_mb", process.peak_memory_mb)
        if isinstance(outcome, Failed | Died):
            error = outcome.error
            told = {"exception.type": error.type, "exception.message": error.message}
            span.add_event("exception", told | ({"exception.stacktrace": error.frames} if error.frames else {}))
            span.set_attribute("error.type", error.type)
            span.set_status(Status(StatusCode.ERROR, f"{outcome.verdict}: {error.message}"))
        span.end()


class Tracing:
    """Spans of one worker process; `provider` says where they go."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer("oomph", version("oomph"))

    def begin(self, job: ClaimedJob) -> tuple[ClaimedJob, AttemptSpan | None]:
        """Begin the span of an attempt; the job as it then is, with the span as its trace."""
        try:
            return self._begin(job)
        except Exception:
            log.exception("job %s is not traced", job.id)  # whatever a processor or sampler of the app's raises
            return job._replace(trace_context=None), None

    def _begin(self, job: ClaimedJob) -> tuple[ClaimedJob, AttemptSpan]:
        enqueuer = context_of(job.trace_context)
        origin = trace.get_current_span(enqueuer).get_span_context()
        span = self._tracer.start_span(
            f"process {job.kind}",
            enqueuer,
            SpanKind.CONSUMER,
            {
                "messaging.system": "oomph",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": job.kind,
                "messaging.message.id": str(job.id),
                "oomph.pool": job.pool,
                "oomph.attempt": job.attempt,
                "oomph.max_attempts": job.max_attempts,
            },
            [Link(origin)] if origin.is_valid else None,
        )
        begun = AttemptSpan(span)
        return job._replace(trace_context=current_trace(begun.context)), begun

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        if not tracing.flush(LAST_SECONDS):
            log.warning("the last spans are lost: whoever collects them does not answer")
