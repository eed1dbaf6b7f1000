"""Clients that are slow, greedy or broken cost the worker next to nothing, and others their answer never."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest

from supervisor.monitor.endpoint import EXCHANGE_SECONDS, MAX_CONNECTIONS, MAX_HEAD_BYTES
from supervisor.testing import wait_for
from tests.worker.app import AGENT
from tests.worker.conftest import Bench
from tests.worker.monitor import Monitor, watched

PATIENCE_SECONDS = 2.0  # of a probe, well below the time that a slow client may take
GROWTH_BYTES = 4 << 20


@pytest.fixture
def seen(bench: Bench) -> Monitor:
    found = watched(bench)[1]
    found.wait_ready(200)
    return found


@contextmanager
def client(seen: Monitor) -> Iterator[socket.socket]:
    host, _, port = seen.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        yield connection


def said(seen: Monitor, request: bytes) -> bytes:
    """The whole answer to these bytes; as much of it as came before a reset."""
    with client(seen) as connection:
        try:
            connection.sendall(request)
        except ConnectionError:
            return b""
        return until_closed(connection)


def until_closed(connection: socket.socket) -> bytes:
    answer = b""
    try:
        while data := connection.recv(65536):
            answer += data
    except ConnectionError:
        pass
    return answer


def is_well(seen: Monitor, bench: Bench) -> None:
    """Probes are answered in time, and jobs run."""
    assert seen.get("/livez", PATIENCE_SECONDS) == (200, "ok\n")
    assert seen.get("/readyz", PATIENCE_SECONDS) == (200, "ok\n")
    bench.wait(bench.put(AGENT), "succeeded", seconds=5)


def test_every_request_has_its_answer(seen: Monitor) -> None:
    for request_line, status in (
        (b"GET /livez HTTP/1.1", b"200 OK"),
        (b"GET /livez?verbose=1 HTTP/1.0", b"200 OK"),
        (b"GET /other HTTP/1.1", b"404 Not Found"),
        (b"GET /../etc/passwd HTTP/1.1", b"404 Not Found"),
        (b"GET /\xff\x00 HTTP/1.1", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed"),
        (b"PRI * HTTP/2.0", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00", b"400 Bad Request"),
        (b"", b"400 Bad Request"),
    ):
        answer = said(seen, request_line + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n"), request_line
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"Content-Length: %d\r\n" % len(body) in head
        assert (b"\r\nAllow: GET" in head) == status.startswith(b"405")


def test_half_requests_make_room_for_whole_ones(seen: Monitor, bench: Bench) -> None:
    with ExitStack() as stack:
        halves = [stack.enter_context(client(seen)) for _ in range(3 * MAX_CONNECTIONS)]
        for half in halves:
            half.sendall(b"GET /livez HT")
        is_well(seen, bench)
        began = time.monotonic()
        assert [until_closed(half) for half in halves] == [b""] * len(halves)
        assert time.monotonic() - began < EXCHANGE_SECONDS + PATIENCE_SECONDS


def test_a_request_that_trickles_in_is_cut_off(seen: Monitor, bench: Bench) -> None:
    with client(seen) as connection:
        began = time.monotonic()

        def is_closed() -> bool:
            try:
                connection.sendall(b"x")
            except ConnectionError:
                return True
            return False

        wait_for(is_closed, "the end of a request without an end", 3 * EXCHANGE_SECONDS)
        assert time.monotonic() - began < EXCHANGE_SECONDS + PATIENCE_SECONDS
    is_well(seen, bench)


def test_a_megabyte_of_headers_is_refused_unread(seen: Monitor, bench: Bench) -> None:
    megabyte = said(seen, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (1 << 20))
    assert megabyte[:13] in (b"HTTP/1.1 431 ", b"")  # a reset may pass the answer
    fitting = b"GET /livez HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD_BYTES - 100) + b"\r\n\r\n"
    assert said(seen, fitting).startswith(b"HTTP/1.1 200 OK\r\n")
    too_long = b"GET /livez HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES
    assert said(seen, too_long)[:13] in (b"HTTP/1.1 431 ", b"")
    is_well(seen, bench)


def test_a_flood_of_connections_disturbs_no_job_and_leaves_no_memory(bench: Bench) -> None:
    worker, seen = watched(bench)
    process = psutil.Process(worker.pid)
    seen.wait_ready(200)
    is_well(seen, bench)
    before = process.memory_info().rss
    for _ in range(10):
        with ExitStack() as stack:
            for _ in range(MAX_CONNECTIONS):  # more would wait in the kernel, and with them whoever opens them
                stack.enter_context(client(seen)).sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            # closed without a look at the answers
        bench.wait(bench.put(AGENT), "succeeded", seconds=5)
    is_well(seen, bench)
    wait_for(lambda: {each.status for each in process.net_connections("tcp")} == {"LISTEN"}, "all connections closed")
    assert process.memory_info().rss - before < GROWTH_BYTES


def test_who_does_not_read_the_answer_is_left(seen: Monitor, bench: Bench) -> None:
    with ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            deaf = stack.enter_context(client(seen))
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        is_well(seen, bench)
