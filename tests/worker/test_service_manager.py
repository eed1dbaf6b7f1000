"""A worker under a service manager: the test holds the notify socket, as systemd does."""

import asyncio
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.monitor.probes import Signs
from supervisor.monitor.vitals import Parts, Vitals
from supervisor.notify_socket import NotifySocket
from supervisor.service_manager import SIGNS_PER_WATCHDOG, ServiceManager
from supervisor.settings import Settings
from supervisor.shutdown import State, grace_seconds
from tests.worker.app import AGENT, INGEST
from tests.worker.conftest import Bench

WATCHDOG = 1.0
ALIVE = Signs(
    state=State.RUNNING, lease_left=20, keeper_alive=True, asking_for=0, looked_ago=0, hears=True, template_up=None
)


class Manager:
    """Receives what a service says. `address` is for its NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1))
        self.environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(round(WATCHDOG * 1e6))}

    def hear(self, seconds: float) -> dict[str, str]:
        """The next message. Raises `TimeoutError`."""
        self.socket.settimeout(seconds)
        return dict(line.split("=", 1) for line in self.socket.recv(65536).decode().split("\n"))

    def wait(self, name: str, text: str = "", seconds: float = 20) -> str:
        """What the next assignment of `name` with `text` in it says."""
        until = time.monotonic() + seconds
        while True:
            found = self.hear(max(0.01, until - time.monotonic())).get(name)
            if found is not None and text in found:
                return found

    def forget(self) -> None:
        self.socket.setblocking(False)
        try:
            while True:
                self.socket.recv(65536)
        except BlockingIOError:
            pass


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@oomph-test-{uuid.uuid4().hex}"


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    made = Manager(address)
    yield made
    made.socket.close()


def test_a_manager_hears_of_the_start_of_work_and_of_the_end(manager: Manager, bench: Bench) -> None:
    worker = bench.launch(WORKER_SHUTDOWN_SECONDS="20", **manager.environment)
    assert manager.wait("STATUS").startswith("not ready: it is starting")
    assert manager.wait("READY") == "1"
    assert "ready: worker" in worker.text()
    bench.wait(bench.put(AGENT), "succeeded")
    assert manager.wait("WATCHDOG") == "1"
    for name, told in (("WORKER_SHUTDOWN_SECONDS", "20"), *((name, "not there") for name in manager.environment)):
        job = bench.put(INGEST, "read the environment", text=name)
        bench.wait(job, "succeeded")
        assert bench.job(job, "result ->> 'text'") == (told,), "a child could speak for the worker"

    running = bench.put(INGEST, "wait", 4)
    bench.wait(running, "running")
    assert manager.wait("STATUS", "ready, 1 running")
    worker.signal(signal.SIGTERM)
    heard: dict[str, str] = {}
    while "STOPPING" not in heard:
        heard = manager.hear(5)
    assert heard == {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": str(round(grace_seconds(20) * 1e6))}
    assert manager.wait("STATUS", "draining") == "draining, 1 running"
    assert worker.wait() == 0
    bench.wait(running, "succeeded")


def test_a_worker_whose_loop_is_blocked_gives_no_sign_of_life(manager: Manager, bench: Bench) -> None:
    bench.launch(WORKER_POOLS="agent", **manager.environment)
    manager.wait("READY")
    blocked = 3 * WATCHDOG
    bench.wait(bench.put(AGENT, "block", blocked), "running")
    manager.forget()
    with pytest.raises(TimeoutError):
        manager.wait("WATCHDOG", seconds=WATCHDOG)
    assert manager.wait("WATCHDOG") == "1"


@pytest.mark.parametrize("address", ["/nowhere/notify"])
def test_a_manager_that_is_not_there_disturbs_nobody(address: str, bench: Bench) -> None:
    worker = bench.start(NOTIFY_SOCKET=address, WORKER_POOLS="agent")
    bench.wait(bench.put(AGENT), "succeeded")
    assert worker.stop() == 0
    assert worker.text().count("the service manager does not take what it is told") == 1


class Given(Vitals):
    """Of a worker whose signs the test chooses: a keeper that has ended ends its process before anybody could look."""

    now = ALIVE

    def signs(self) -> Signs:
        return self.now

    @property
    def running(self) -> int:
        return 0


def test_a_worker_in_which_no_work_can_move_gives_no_sign_of_life(manager: Manager) -> None:
    parts: Parts = None  # type: ignore[assignment]  # nothing here looks at them
    vitals = Given(Settings(), parts)
    service = ServiceManager(NotifySocket(manager.address, WATCHDOG), vitals)
    for now, heard in (
        (ALIVE, {"WATCHDOG": "1", "READY": "1", "STATUS": "ready, 0 running"}),
        (ALIVE, {"WATCHDOG": "1"}),
        (replace(ALIVE, keeper_alive=False), None),
        (replace(ALIVE, asking_for=1000), None),
        (replace(ALIVE, lease_left=0), {"WATCHDOG": "1"}),  # an outage: unready, not dead
        (ALIVE, {"WATCHDOG": "1"}),
    ):
        vitals.now = now
        assert asyncio.run(service.report_once()) <= WATCHDOG / SIGNS_PER_WATCHDOG
        told = manager.hear(1)
        if heard is None:
            assert set(told) == {"STATUS"}
            assert told["STATUS"].startswith("not ready: ")
        else:
            assert told.items() >= heard.items()
            assert "READY" not in told or "READY" in heard, "it is said once"
    service.close()


def test_only_the_process_that_is_asked_gives_signs_of_life() -> None:
    for pid, watchdog in (("", 2.0), (str(os.getpid()), 2.0), (str(os.getppid()), None)):
        environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": pid, "OTHER": "stays"}
        taken = NotifySocket.take(environment)
        assert taken is not None
        taken.close()
        assert taken.watchdog == watchdog
        assert environment == {"OTHER": "stays"}
    assert NotifySocket.take({"NOTIFY_SOCKET": "vsock:2:1234"}) is None
    assert NotifySocket.take({}) is None
