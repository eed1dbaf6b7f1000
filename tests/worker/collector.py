"""A collector of traces: a real receiver of OTLP over HTTP, in the process of the test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from supervisor.testing import wait_for


@dataclass(frozen=True)
class Seen:
    """One span as it arrived; ids in hexadecimal. `status` is 2 for an error."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    links: list[tuple[str, str]]
    status: int
    message: str
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    service: str


class Collector:
    """With `hangs` it takes what is sent and answers nothing until the test is over."""

    def __init__(self, *, hangs: bool = False) -> None:
        self._lock = threading.Lock()
        self._spans: list[Seen] = []
        self._over = threading.Event()
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hangs:
                    collector._over.wait(60)
                    return
                collector.take(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def settings(self) -> dict[str, str]:
        """The standard variables that send spans here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        found = [
            Seen(
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.kind,
                [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                span.status.code,
                span.status.message,
                _plain(span.attributes),
                [(event.name, _plain(event.attributes)) for event in span.events],
                _plain(resource.resource.attributes)["service.name"],
            )
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._lock:
            self._spans += found

    def named(self, name: str) -> list[Seen]:
        with self._lock:
            return [span for span in self._spans if span.name == name]

    def wait(self, name: str, number: int = 1) -> list[Seen]:
        """Wait for so many spans of this name, in the order in which they arrived."""

        def look() -> list[Seen] | None:
            found = self.named(name)
            return found if len(found) >= number else None

        return wait_for(look, f"{number} spans {name!r}")

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def collecting(*, hangs: bool = False) -> Iterator[Collector]:
    collector = Collector(hangs=hangs)
    try:
        yield collector
    finally:
        collector.close()


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
