"""The log says which job and which attempt, for people and for machines."""

import json
import logging
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.subject import about, subject
from supervisor.logs import JsonLine, OneLine
from supervisor.testing import WorkerProcess, wait_for
from tests.worker.app import AGENT, DEADLY, INGEST, SYSTEM
from tests.worker.conftest import Bench

JOB = SimpleNamespace(id=12, attempt=3, trace_context=None)


def record(message: str, **more: Any) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "oomph.x", "levelname": "ERROR", "msg": message, "created": 0, "msecs": 7, **more}
    )
    assert made.getMessage() == message
    return made


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("it hangs", "it hangs [job 12, attempt 3]"),
        ("job 12: it hangs", "job 12: it hangs [attempt 3]"),
        ("job 12 (a kind) attempt 3 of 5 failed", "job 12 (a kind) attempt 3 of 5 failed"),
        ("job 123 attempt 34", "job 123 attempt 34 [job 12, attempt 3]"),
    ],
)
def test_people_read_each_fact_once(message: str, shown: str) -> None:
    line = OneLine().format(record(message, **about(JOB)))
    assert line == f"1970-01-01T00:00:00.007Z ERROR oomph.x: {shown}"


def test_no_message_steers_a_terminal_or_begins_a_line_of_its_own() -> None:
    line = OneLine().format(record("it said\r\n\x1b]0;mine\x07\x9b2J\x00\u2028\u2029\x85caf\u00e9\t."))
    told = line.partition("oomph.x: ")[2]
    assert told == r"it said\r\n\x1b]0;mine\x07\x9b2J\x00\u2028\u2029\x85café" + "\t."
    assert line.splitlines() == [line]


def test_a_machine_reads_one_object_a_line() -> None:
    try:
        raise ValueError("two\nlines \udc00 \x1b[2J")
    except ValueError:
        failed = record('a "message"\n', exc_info=sys.exc_info(), **about(JOB))
    line = JsonLine().format(failed)
    assert line.isascii()
    assert line.isprintable()
    told = json.loads(line)
    assert told.pop("error").endswith("ValueError: two\nlines \udc00 \x1b[2J")
    assert told == {
        "time": "1970-01-01T00:00:00.007Z",
        "level": "error",
        "logger": "oomph.x",
        "message": 'a "message"\n',
        "job": 12,
        "attempt": 3,
    }


def test_what_concerns_no_job_names_none() -> None:
    assert "job" not in json.loads(JsonLine().format(record("ready")))
    assert OneLine().format(record("ready")).endswith("oomph.x: ready")


def test_the_context_knows_the_job_where_the_call_does_not() -> None:
    reset = subject.set(JOB)
    try:
        assert json.loads(JsonLine().format(record("hello")))["job"] == 12
        other = about(SimpleNamespace(id=5, attempt=1, trace_context=None))
        assert json.loads(JsonLine().format(record("hello", **other)))["job"] == 5
    finally:
        subject.reset(reset)


def test_every_line_of_a_job_carries_it_and_its_attempt(bench: Bench) -> None:
    """Whoever logs: a handler on the loop, in a thread, in a thread of its own making, in a child; and the worker."""
    worker = bench.start(WORKER_LOG_FORMAT="json", WORKER_RETRY_DELAY_SECONDS="0")
    told = {bench.put(task, "log", text=f"words {task.kind}"): task.kind for task in (AGENT, SYSTEM, INGEST)}
    killed = bench.put(DEADLY, "be killed")
    bench.wait(killed, "dead")
    for job_id in told:
        bench.wait(job_id, "succeeded", "dead")
    wait_for(lambda: _lines(worker, lambda line: line.get("job") == killed and line.get("attempt") == 3), "its end")
    for job_id, kind in told.items():
        said = _lines(worker, lambda line, kind=kind: f"words {kind}" in line["message"])  # type: ignore[misc]
        assert said, kind
        assert {line["job"] for line in said} == {job_id}
        attempts = {line["attempt"] for line in said}
        assert attempts == (set(range(1, AGENT.max_attempts + 1)) if kind == AGENT.kind else {1})
    about_jobs = _lines(worker, lambda line: line["message"].startswith("job "))
    assert len(about_jobs) > 10
    assert [line for line in about_jobs if not {"job", "attempt"} <= line.keys()] == []
    assert all(line["message"].startswith(f"job {line['job']}") for line in about_jobs)


def _lines(worker: WorkerProcess, which: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    # The last line may be half written.
    return [told for line in worker.text().splitlines()[:-1] if which(told := json.loads(line))]
