"""From whoever enqueues to the handler's own spans: one trace, as a collector receives it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanContext

from jobs import Pool, Task
from supervisor.testing import Kit, WorkerProcess, wait_for
from tests.worker.collector import Collector, Seen, collecting
from tests.worker.traced_app import AGENT, INGEST, SYSTEM, Step

APP = "tests.worker.traced_app:app"
CONSUMER = 5
ERROR = 2
TRACER = TracerProvider(shutdown_on_exit=False).get_tracer("a service")


@pytest.fixture
def kit(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "")
    with ExitStack() as stack:
        yield Kit(url, tmp_path, stack)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as opened:
        yield opened


def put(kit: Kit, task: Task[Step], end: str = "well") -> tuple[int, tuple[str, str]]:
    """Enqueue within a span; the job's id, and the ids of trace and span."""
    with TRACER.start_as_current_span("request") as span:
        return kit.enqueue(task, Step(end=end)), ids(span.get_span_context())


def ids(told: SpanContext) -> tuple[str, str]:
    return f"{told.trace_id:032x}", f"{told.span_id:016x}"


def lines(worker: WorkerProcess, which: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    return [told for line in worker.text().rpartition("\n")[0].splitlines() if which(told := json.loads(line))]


def test_one_trace_goes_through_every_pool(kit: Kit, collector: Collector) -> None:
    worker = kit.start(APP, WORKER_LOG_FORMAT="json", **collector.settings)
    for task in (AGENT, SYSTEM, INGEST):
        job_id, enqueued = put(kit, task)
        (attempt,) = collector.wait(f"process {task.kind}")
        (inside,) = collector.wait(f"inside {task.pool}")
        assert (attempt.trace_id, attempt.parent_id) == enqueued
        assert attempt.links == [enqueued]
        assert attempt.kind == CONSUMER
        assert attempt.service == inside.service == "oomph-worker"
        assert {**attempt.attributes, "oomph.peak_memory_mb": 0} == {
            "messaging.system": "oomph",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": task.kind,
            "messaging.message.id": str(job_id),
            "oomph.pool": task.pool,
            "oomph.attempt": 1,
            "oomph.max_attempts": task.max_attempts,
            "oomph.verdict": "succeeded",
            "oomph.peak_memory_mb": 0,
        }
        assert ("oomph.peak_memory_mb" in attempt.attributes) == (task.pool == Pool.INGEST)
        assert (attempt.status, attempt.events) == (0, [])
        assert (inside.trace_id, inside.parent_id) == (attempt.trace_id, attempt.span_id)
    logged_in(worker, "words of the agent", collector.wait("inside agent")[0])
    logged_in(worker, "words of the child", collector.wait("process traced-ingest")[0])
    assert "trace_id" not in lines(worker, lambda line: line["message"].startswith("ready"))[0]


def logged_in(worker: WorkerProcess, words: str, span: Seen) -> None:
    (line,) = wait_for(lambda: lines(worker, lambda line: words in line["message"]), f"{words!r} in the log")
    assert (line["trace_id"], line["span_id"]) == (span.trace_id, span.span_id)
    assert {"job", "attempt"} <= line.keys()


def test_every_attempt_is_a_span_with_its_verdict_and_error(kit: Kit, collector: Collector) -> None:
    kit.start(APP, **collector.settings)
    _, enqueued = put(kit, SYSTEM, "badly")
    attempts = collector.wait(f"process {SYSTEM.kind}", 2)
    assert [span.attributes["oomph.attempt"] for span in attempts] == [1, 2]
    for span in attempts:
        assert (span.trace_id, span.parent_id) == enqueued
        assert (span.status, span.message) == (ERROR, "failed: it went badly")
        assert span.attributes["error.type"] == "ValueError"
        ((name, told),) = span.events
        assert name == "exception"
        assert told["exception.message"] == "it went badly"
        assert "in_a_thread" in told["exception.stacktrace"]
    put(kit, INGEST, "killed")
    (killed,) = collector.wait(f"process {INGEST.kind}")
    assert killed.attributes["oomph.verdict"] == "killed"
    assert killed.status == ERROR
    assert killed.message.startswith("killed: killed by SIGKILL")


def test_a_job_without_a_valid_trace_begins_one(kit: Kit, collector: Collector) -> None:
    kit.start(APP, WORKER_POOLS="agent", **collector.settings)
    for number, text in enumerate((None, "\x1b[2J nonsense " * 20, "00-zz-zz-01"), start=1):
        kit.db.execute(
            "INSERT INTO background_jobs (kind, pool, trace_context) VALUES (%s, 'agent', %s)", [AGENT.kind, text]
        )
        span = collector.wait(f"process {AGENT.kind}", number)[-1]
        assert (span.parent_id, span.links) == ("", [])


def test_an_executed_child_is_traced_too_and_a_service_has_its_own_name(kit: Kit, collector: Collector) -> None:
    kit.start(APP, WORKER_INGEST_START_METHOD="exec", OTEL_SERVICE_NAME="scans", **collector.settings)
    put(kit, INGEST)
    (attempt,) = collector.wait(f"process {INGEST.kind}")
    (inside,) = collector.wait("inside ingest")
    assert inside.parent_id == attempt.span_id
    assert inside.service == attempt.service == "scans"


def test_a_provider_that_the_app_has_set_is_used(kit: Kit) -> None:
    worker = kit.start("tests.worker.traced_app:with_its_own_provider")
    for task in (AGENT, INGEST):
        _, (trace_id, _) = put(kit, task)
        worker.wait_log(rf'"name": "process {task.kind}"[^}}]+"trace_id": "0x{trace_id}"')
        worker.wait_log(rf'"name": "inside {task.pool}"')


def test_the_last_spans_are_sent_when_the_worker_ends(kit: Kit, collector: Collector) -> None:
    worker = kit.start(APP, WORKER_POOLS="agent", **{**collector.settings, "OTEL_BSP_SCHEDULE_DELAY": "3600000"})
    job_id, _ = put(kit, AGENT)
    kit.wait_for(job_id, "succeeded")
    assert collector.named(f"process {AGENT.kind}") == []
    assert worker.stop() == 0
    collector.wait(f"process {AGENT.kind}")


def test_a_collector_that_hangs_holds_up_neither_job_nor_end(kit: Kit) -> None:
    with collecting(hangs=True) as collector:
        worker = kit.start(APP, **collector.settings)
        began = time.monotonic()
        job_id, _ = put(kit, INGEST)
        kit.wait_for(job_id, "succeeded")
        assert time.monotonic() - began < 5
        began = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - began < 8
        assert "the last spans are lost" in worker.text()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "the protocol grpc is not spoken here"),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "few"}, "the OTEL_. variables are refused: .*few"),
        ({"OTEL_TRACES_EXPORTER": "none"}, None),
        ({"OTEL_SDK_DISABLED": "true"}, None),
    ],
)
def test_what_cannot_be_traced_is_told_and_runs(
    kit: Kit, collector: Collector, settings: dict[str, str], told: str | None
) -> None:
    worker = kit.start(APP, WORKER_POOLS="agent", **{**collector.settings, **settings})
    job_id, _ = put(kit, AGENT)
    kit.wait_for(job_id, "succeeded")
    if told is not None:
        worker.wait_log(told)
    assert worker.stop() == 0
    assert ("no traces" in worker.text()) == (told is not None)
    assert collector.named(f"process {AGENT.kind}") == []


def test_without_the_extra_a_worker_says_what_to_install(kit: Kit, collector: Collector, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "opentelemetry"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('as if not installed', name='opentelemetry')\n")
    worker = kit.start("tests.worker.lean_app:app", PYTHONPATH=str(hidden.parent), **collector.settings)
    from tests.worker.lean_app import IN_CHILD, Nothing

    job_id = kit.enqueue(IN_CHILD, Nothing())
    kit.wait_for(job_id, "succeeded")
    assert worker.text().count("no traces: OTEL_* asks for them, but opentelemetry is missing; pip install") == 1
