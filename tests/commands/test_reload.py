"""`oomph worker --reload`: real files, a real worker, real signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from supervisor.testing import wait_for
from supervisor.testing.processes import FAST, is_alive

APP = """
import time
from pathlib import Path
from jobs import App, Handler, Payload, Pool, Task

class Nothing(Payload):
    pass

def work(payload):
    Path("{mark}").touch()
    time.sleep({seconds})

WORK = Task(kind="{kind}", payload_type=Nothing, pool=Pool.SYSTEM)

def app():
    return App(handlers=[Handler(WORK, work)])
"""


class Developer:
    """Edits `mine.py` and looks at the log of `oomph worker --reload --app mine:app`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.db = psycopg.connect(url, autocommit=True)
        self._url = url

    def write(self, kind: str, text: str = APP, seconds: float = 0, name: str = "mine.py") -> None:
        ready = self.folder / "edited"
        ready.write_text(text.replace("{kind}", kind).replace("{mark}", kind).replace("{seconds}", str(seconds)))
        ready.rename(self.folder / name)

    def start(self, *arguments: str) -> None:
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).with_name("oomph")), "worker", "--reload", "--app", "mine:app", *arguments],
                cwd=self.folder,
                env={**os.environ, **FAST, "DATABASE_URL": self._url, "WORKER_POOLS": "system"},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )

    def wait_log(self, text: str, times: int = 1) -> None:
        wait_for(lambda: self.log.read_text().count(text) >= times, f"{text} {times} times", 30)

    def put(self, kind: str) -> None:
        self.db.execute("INSERT INTO background_jobs (kind, pool, payload) VALUES (%s, 'system', '{}')", [kind])

    def status(self, kind: str) -> str:
        rows = self.db.execute("SELECT status FROM background_jobs WHERE kind = %s", [kind]).fetchall()
        return str(rows[0][0])

    def wait_done(self, kind: str) -> None:
        wait_for(lambda: self.status(kind) == "succeeded", f"the end of {kind}", 20)

    def worker(self) -> psutil.Process:
        (worker,) = psutil.Process(self.process.pid).children()
        return worker


@pytest.fixture
def developer(tmp_path: Path, url: str) -> Iterator[Developer]:
    made = Developer(tmp_path, url)
    yield made
    made.process.kill()
    made.process.wait()
    made.db.close()


def test_an_edit_lets_jobs_finish_and_starts_the_worker_anew(developer: Developer) -> None:
    developer.write("before", seconds=1)
    developer.start()
    developer.wait_log("ready: worker")
    developer.put("before")
    wait_for((developer.folder / "before").exists, "a job that runs")
    developer.write("after")
    developer.wait_log("ready: worker", 2)
    assert developer.status("before") == "succeeded"
    developer.put("after")
    developer.wait_done("after")

    worker = developer.worker()
    developer.write("broken", "def app(:\n")
    developer.wait_log("mine.py:1: invalid syntax")
    developer.write("unused", "x = 1\n", name="notes.txt")
    assert developer.worker() == worker, "it works on, with what could be read last"

    developer.write("failing", "raise RuntimeError('no')\n")
    developer.wait_log("the worker has ended with status 1: the next change starts another")
    developer.write("mended")
    developer.wait_log("ready: worker", 3)
    developer.put("mended")
    developer.wait_done("mended")

    developer.process.send_signal(signal.SIGINT)
    assert developer.process.wait(20) == 0


def test_no_worker_goes_on_behind_the_back_of_a_killed_reloader(developer: Developer) -> None:
    developer.write("work")
    developer.start()
    developer.wait_log("ready: worker")
    worker = developer.worker()
    developer.process.kill()
    wait_for(lambda: not is_alive(worker.pid), "the end of its worker")


def test_a_second_interrupt_does_not_wait_for_jobs_and_a_drained_queue_ends_it(developer: Developer) -> None:
    developer.write("long", seconds=600)
    developer.start()
    developer.wait_log("ready: worker")
    developer.put("long")
    wait_for((developer.folder / "long").exists, "a job that runs")
    developer.process.send_signal(signal.SIGINT)
    developer.wait_log("draining: 1 running")
    developer.process.send_signal(signal.SIGINT)
    assert developer.process.wait(20) == 0
    assert developer.status("long") == "queued"

    developer.db.execute("DELETE FROM background_jobs")
    developer.start("--drain")
    assert developer.process.wait(20) == 0
