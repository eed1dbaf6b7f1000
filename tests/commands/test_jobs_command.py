import json
import re
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.commands.conftest import Connection, Oomph

Insert = Callable[..., int]

CONTRACT = {
    "id", "kind", "pool", "priority", "status", "payload", "organization_id", "attempt", "claim", "max_attempts",
    "timeout", "run_after", "dedupe_key", "dedupe_active", "concurrency_key", "worker_id", "created_at", "started_at",
    "finished_at", "progress", "result", "error", "schedule", "occurrence",
}  # fmt: skip
ATTEMPT_CONTRACT = {
    "job_id", "attempt", "claim", "worker_id", "host", "pid", "started_at", "finished_at", "verdict", "evidence",
    "charged", "is_kill", "signal", "exit_code", "peak_memory_mb", "memory_limit_mb", "cpu_seconds", "error",
    "output_tail",
}  # fmt: skip


def add_attempt(db: Connection, job_id: int, **columns: Any) -> None:
    given = {
        "job_id": job_id, "claim": 1, "attempt": 1, "kind": "greet", "host": "web-1", "pid": 4711,
        "verdict": "oom_killed", "charged": True, "is_kill": True, "signal": "SIGKILL", "peak_memory_mb": 1020.5,
        "memory_limit_mb": 1024, "cpu_seconds": 2.25, "worker_id": uuid.uuid4(),
        "evidence": Jsonb({"why": "the counter moved", "certainty": "certain", "oom_kill_own": "0 -> 1"}),
        "error": Jsonb({"type": "OomKilled", "message": "the kernel killed it", "frames": "File x, line 1\n"}),
        "output_tail": "first line\nsecond \x1b[31mline\n", **columns,
    }  # fmt: skip
    names = ", ".join(given)
    db.execute(
        f"INSERT INTO background_attempts ({names}) VALUES ({', '.join(f'%({name})s' for name in given)})",
        given,
    )


@pytest.mark.usefixtures("without_secrets")
def test_a_list_as_json_has_every_column_of_the_contract(oomph: Oomph, insert: Insert) -> None:
    job_id = insert(payload=Jsonb({"name": "ada"}), organization_id="acme", priority=2)
    rows = oomph("jobs", "list", "--json").json
    assert [row["id"] for row in rows] == [job_id]
    assert rows[0].keys() >= CONTRACT
    assert rows[0]["payload"] == {"name": "ada"}
    assert rows[0]["priority"] == 2
    assert rows[0]["timeout"] == 300
    assert rows[0]["created_at"].endswith("Z")
    assert datetime.fromisoformat(rows[0]["created_at"]).utcoffset() is not None


def test_an_empty_list_is_an_empty_array_and_a_word_for_people(oomph: Oomph) -> None:
    assert oomph("jobs", "list", "--json").json == []
    people = oomph("jobs", "list")
    assert (people.status, people.out, people.err) == (0, "", "no such jobs\n")


def test_filters_combine(oomph: Oomph, insert: Insert) -> None:
    wanted = insert(kind="parse", pool="ingest", status="dead", organization_id="acme")
    insert(kind="parse", pool="ingest", status="dead", organization_id="other")
    insert(kind="parse", pool="ingest", status="queued", organization_id="acme")
    insert(kind="greet", pool="system", status="dead", organization_id="acme")
    options = ("--kind", "parse", "--pool", "ingest", "--status", "dead", "--organization-id", "acme")
    assert [row["id"] for row in oomph("jobs", "list", "--json", *options).json] == [wanted]


def test_jobs_are_found_by_worker_schedule_key_and_time(oomph: Oomph, insert: Insert) -> None:
    worker = uuid.uuid4()
    wanted = insert(
        status="dead", worker_id=worker, schedule="nightly", occurrence="2030-01-01T00:00Z", concurrency_key="c",
        dedupe_key="d", created_at="2030-01-01T10:00Z", finished_at="2030-01-01T11:00Z",
    )  # fmt: skip
    insert(status="dead", created_at="2030-01-01T10:01Z", finished_at="2030-01-01T11:01Z")
    for chosen in (
        ("--worker-id", str(worker)),
        ("--schedule", "nightly"),
        ("--key", "c"),
        ("--key", "d"),
        ("--created-from", "2030-01-01T10:00", "--created-until", "2030-01-01 10:01"),
        ("--finished-from", "2030-01-01T12:00+01:00", "--finished-until", "2030-01-01T11:00:30Z"),
    ):
        assert [row["id"] for row in oomph("jobs", "list", "--json", *chosen).json] == [wanted], chosen
    assert "--created-from" in oomph("jobs", "list", "--created-from", "yesterday").misused()


def test_pages_of_a_key_have_every_job_once_and_in_order(oomph: Oomph, insert: Insert) -> None:
    waiting = insert(status="queued", concurrency_key="c", blocked=True)
    ids = [insert(status="dead", concurrency_key="c") for _ in range(3)]
    first = oomph("jobs", "list", "--json", "--key", "c", "--limit", "2").json
    assert [row["id"] for row in first] == [ids[2], ids[1]]
    rest = oomph("jobs", "list", "--json", "--key", "c", "--before", str(ids[1])).json
    assert [row["id"] for row in rest] == [ids[0], waiting]


def test_pages_follow_each_other_by_id_without_gap_or_overlap(oomph: Oomph, insert: Insert) -> None:
    ids = [insert() for _ in range(5)]
    first = oomph("jobs", "list", "--limit", "2")
    assert f"--before {ids[3]}" in first.err
    pages = [
        oomph("jobs", "list", "--json", "--limit", "2", "--before", str(before)).json for before in (ids[3], ids[1])
    ]
    assert [[row["id"] for row in page] for page in pages] == [[ids[2], ids[1]], [ids[0]]]


def test_a_table_keeps_ids_and_kinds_whole_and_a_row_to_one_line(oomph: Oomph, insert: Insert) -> None:
    kind = "a-kind-with-a-rather-long-name-indeed"
    message = "something long happened\nwith more lines " + "x" * 200
    insert(id=1234567890123, kind=kind, status="dead", error=Jsonb({"type": "ValueError", "message": message}))
    for columns in ("100", "40"):
        lines = oomph("jobs", "list", COLUMNS=columns).out.splitlines()
        assert len(lines) == 2
        assert {"1234567890123", kind, "dead", "0/5"} <= set(lines[1].split())
    assert len(oomph("jobs", "list", COLUMNS="120").out.splitlines()[1]) <= 120
    assert "ValueError: something long happened …" in oomph("jobs", "list").out


def test_a_pipe_gets_no_colours_and_no_control_characters(oomph: Oomph, insert: Insert) -> None:
    insert(status="dead", error=Jsonb({"type": "E", "message": "[red]not markup[/red] \x1b[31mred\x07"}))
    out = oomph("jobs", "list").out
    assert "[red]not markup[/red]" in out
    assert "\x1b" not in out
    assert "\x07" not in out


@pytest.mark.usefixtures("without_secrets")
def test_show_tells_everything_of_a_job_and_its_attempts(oomph: Oomph, insert: Insert, db: Connection) -> None:
    job_id = insert(
        status="dead", attempt=2, claim=2, payload=Jsonb({"name": "ada"}), organization_id="acme", dedupe_key="k1",
        error=Jsonb({"type": "OomKilled", "message": "the kernel killed it", "frames": "File x, line 1\n"}),
    )  # fmt: skip
    add_attempt(db, job_id)
    add_attempt(db, job_id, claim=2, attempt=2, verdict="timed_out", is_kill=False, signal=None, exit_code=3)
    out = oomph("jobs", "show", str(job_id)).out
    for told in (
        f"Job {job_id}: greet, dead", "acme", "k1", '{"name": "ada"}', "OomKilled: the kernel killed it",
        "File x, line 1", "Attempt 2: timed_out, charged", "Attempt 1: oom_killed, charged, counts as a kill",
        "web-1", "4711", "SIGKILL", "1,020 MB at its peak, 1,024 MB allowed", "2.2 s", "why: the counter moved",
        "certainty: certain", "oom_kill_own: 0 -> 1", "first line",
    ):  # fmt: skip
        assert told in out
    assert out.index("Attempt 2") < out.index("Attempt 1")
    assert "\x1b" not in out


def test_show_as_json_is_one_object_with_its_attempts(oomph: Oomph, insert: Insert, db: Connection) -> None:
    job_id = insert(status="dead")
    add_attempt(db, job_id)
    job = oomph("jobs", "show", str(job_id), "--json").json
    assert job.keys() >= CONTRACT | {"attempts"}
    (attempt,) = job["attempts"]
    assert attempt.keys() >= ATTEMPT_CONTRACT
    assert attempt["evidence"]["certainty"] == "certain"
    assert attempt["output_tail"] == "first line\nsecond \x1b[31mline\n"


def test_show_tells_what_was_done_by_hand(oomph: Oomph, insert: Insert) -> None:
    job_id = str(insert(status="dead"))
    assert "Done by hand" not in oomph("jobs", "show", job_id).out
    oomph("jobs", "retry", job_id, "--actor", "ada", "--reason", "the disk is free")
    oomph("jobs", "cancel", "--all", "--status", "queued", "--yes", "--actor", "bo")
    told = oomph("jobs", "show", job_id).out.partition("Done by hand, newest first\n")[2].splitlines()
    assert [line.partition(" UTC  ")[2] for line in told] == ["cancel by bo", "retry by ada: the disk is free"]
    rows = oomph("jobs", "show", job_id, "--json").json["by_hand"]
    assert [(row["actor"], row["action"], row["target"]) for row in rows] == [
        ("bo", "cancel", "1 jobs"),
        ("ada", "retry", f"job {job_id}"),
    ]


def test_show_says_where_the_rest_of_what_was_done_by_hand_is(oomph: Oomph, insert: Insert) -> None:
    job_id = str(insert())
    for _ in range(10):
        oomph("jobs", "cancel", job_id, "--actor", "ada")
        oomph("jobs", "retry", job_id, "--actor", "ada")
    assert f"perhaps more: oomph audit list --job {job_id}" in oomph("jobs", "show", job_id).err
    assert len(oomph("audit", "list", "--json", "--job", job_id).json) == 20


def test_show_says_where_a_running_job_can_be_found(oomph: Oomph, insert: Insert, db: Connection) -> None:
    worker = uuid.uuid4()
    db.execute(
        "INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until)"
        " VALUES (%s, 'web-1', 4711, '1', '{ingest}', '{greet}', now() + interval '1 minute')",
        [worker],
    )
    child = insert(status="running", pool="ingest", attempt=2, worker_id=worker)
    title = f"oomph: greet job {child} attempt 2"
    assert f'on web-1, its process is called "{title}"' in oomph("jobs", "show", str(child)).out
    shown = oomph("jobs", "show", str(child), "--json").json
    assert (shown["host"], shown["worker_pid"], shown["process_title"]) == ("web-1", 4711, title)

    coroutine = insert(status="running", pool="agent", attempt=1, worker_id=worker)
    assert "on web-1, in its worker's own process, pid 4711" in oomph("jobs", "show", str(coroutine)).out
    assert oomph("jobs", "show", str(coroutine), "--json").json["process_title"] is None

    for over in (insert(status="succeeded", pool="ingest", worker_id=worker), insert(status="running", pool="ingest")):
        shown = oomph("jobs", "show", str(over), "--json").json
        assert (shown["host"], shown["worker_pid"], shown["process_title"]) == (None, None, None)


def test_show_says_what_a_queued_job_waits_for(oomph: Oomph, insert: Insert, db: Connection) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('greet', 'system'), ('parse', 'ingest')")
    db.execute(
        "INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until)"
        " VALUES (gen_random_uuid(), 'web-1', 4711, '1', '{system}', '{greet,parse}', now() + interval '1 minute')"
    )
    holder = insert(status="running", concurrency_key="k", worker_id=uuid.uuid4())
    for job_id, told, next_step in (
        (insert(), "a free slot", ""),
        (insert(concurrency_key="k", blocked=True), "the running job of its concurrency key", f": job {holder}"),
        (insert(kind="parse", pool="ingest"), "a worker that serves its pool", "WORKER_POOLS"),
        (insert(kind="odd"), "a worker that knows its kind", "start one whose app has a handler for odd"),
    ):
        out = oomph("jobs", "show", str(job_id)).out
        assert re.search(rf"waits for +{told}.*{next_step}", out), out
        assert oomph("jobs", "show", str(job_id), "--json").json["waits_for"] == told
    assert "waits for" not in oomph("jobs", "show", str(holder)).out
    assert oomph("jobs", "show", str(holder), "--json").json["waits_for"] is None


def test_show_refuses_an_unknown_job(oomph: Oomph) -> None:
    assert "job 77 does not exist" in oomph("jobs", "show", "77").refused()


def test_retry_queues_dead_jobs_again_and_is_audited(oomph: Oomph, insert: Insert, db: Connection) -> None:
    ids = [insert(status="dead", attempt=5), insert(status="cancelled", attempt=1)]
    answer = oomph("jobs", "retry", *map(str, ids), "--actor", "ada", "--reason", "fixed")
    assert answer.out == f"job {ids[0]} is queued again\njob {ids[1]} is queued again\n"
    assert db.execute("SELECT status, attempt FROM background_jobs").fetchall() == [("queued", 0)] * 2
    audit = oomph("audit", "list", "--json").json
    assert [(row["actor"], row["action"], row["target"], row["reason"]) for row in audit] == [
        ("ada", "retry", f"job {job_id}", "fixed") for job_id in reversed(ids)
    ]


def test_a_refused_retry_changes_nothing_at_all(oomph: Oomph, insert: Insert, db: Connection) -> None:
    dead, queued = insert(status="dead"), insert()
    assert f"job {queued} is queued" in oomph("jobs", "retry", str(dead), str(queued), "--actor", "ada").refused()
    assert db.execute("SELECT status FROM background_jobs WHERE id = %s", [dead]).fetchone() == ("dead",)
    assert oomph("audit", "list", "--json").json == []


def test_cancel_ends_queued_jobs_and_asks_for_running_ones(oomph: Oomph, insert: Insert, db: Connection) -> None:
    queued, running = insert(), insert(status="running", worker_id=uuid.uuid4())
    out = oomph("jobs", "cancel", str(queued), str(running), OOMPH_ACTOR="ada").out
    assert f"job {queued} is cancelled" in out
    assert f"job {running} is running; its worker was told to end it" in out
    row = db.execute("SELECT cancel_requested_at IS NOT NULL FROM background_jobs WHERE id = %s", [running]).fetchone()
    assert row == (True,)
    assert f"job {queued} is already cancelled" in oomph("jobs", "cancel", str(queued), "--actor", "ada").refused()


def test_an_action_needs_an_actor(oomph: Oomph, insert: Insert) -> None:
    job_id = str(insert())
    assert "OOMPH_ACTOR" in oomph("jobs", "cancel", job_id).misused()
    assert "an actor is needed" in oomph("jobs", "cancel", job_id, "--actor", " ").refused()


def test_wrong_options_are_wrong_usage(oomph: Oomph) -> None:
    assert "succeeded" in oomph("jobs", "list", "--status", "done").misused()
    assert "agent, ingest, system" in oomph("jobs", "list", "--pool", "gpu").misused()
    assert "--limit" in oomph("jobs", "list", "--limit", "100000").misused()
    assert "ID" in oomph("jobs", "show", "first").misused()


@pytest.mark.usefixtures("without_secrets")
def test_json_survives_any_payload(oomph: Oomph, insert: Insert) -> None:
    payload = {"text": 'ünï ❤ " \\ \n', "deep": [{"a": [1, 2.5, None, True]}]}
    insert(payload=Jsonb(payload))
    assert oomph("jobs", "list", "--json").json[0]["payload"] == json.loads(json.dumps(payload))


def test_a_job_of_a_paused_kind_says_what_it_waits_for(oomph: Oomph, insert: Insert) -> None:
    insert(kind="parse", status="running", worker_id=uuid.uuid4())
    insert(kind="parse", error=Jsonb({"type": "Crashed", "message": "SIGSEGV"}))
    job_id, other = insert(kind="parse"), insert(kind="greet")
    oomph("kinds", "pause", "parse", "--actor", "ada")
    lines = oomph("jobs", "list").out.splitlines()[1:]
    assert [line.endswith("its kind is paused") for line in lines] == [False, True, False, False]
    assert lines[2].endswith("its kind is paused; Crashed: SIGSEGV")
    assert "its kind, which is paused" in oomph("jobs", "show", str(job_id)).out
    assert "is paused" not in oomph("jobs", "show", str(other)).out
    assert [row["kind_paused"] for row in oomph("jobs", "list", "--json").json] == [False, True, True, True]


def test_an_exit_code_of_0_is_shown_only_where_it_says_something(oomph: Oomph, insert: Insert, db: Connection) -> None:
    for verdict, exit_code, shown in (("memory_exceeded", 0, False), ("vanished", 0, True), ("exited", 3, True)):
        job_id = insert(status="dead")
        add_attempt(db, job_id, verdict=verdict, signal=None, exit_code=exit_code)
        out = oomph("jobs", "show", str(job_id)).out
        assert bool(re.search(rf"exit code +{exit_code}\n", out)) == shown


@pytest.mark.parametrize(
    "moment", ["4000-01-01 BC", "infinity", "-infinity", "20000-01-01", "0001-01-01", "9999-12-31"]
)
def test_moments_that_python_cannot_hold_are_bent_to_those_it_can(oomph: Oomph, insert: Insert, moment: str) -> None:
    early = moment[-2:] == "BC" or moment[0] in "-0"
    job_id = insert(run_after=moment, created_at=moment)
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
        (row,) = oomph("jobs", "list", "--json", PGTZ=zone).json
        assert row["run_after"] == row["created_at"] == ("0001-01-02T00:00:00Z" if early else "9999-12-30T00:00:00Z")
        assert ("9999" in oomph("jobs", "show", str(job_id), PGTZ=zone).out) != early
        assert oomph("jobs", "list", PGTZ=zone).status == 0


@pytest.mark.parametrize(
    "json_text",
    ['{"a": ' + "[" * 600 + "]" * 600 + "}", '{"a": ' + "[" * 5_000 + "]" * 5_000 + "}", '{"a": ' + "9" * 5_000 + "}"],
    ids=["deep", "deeper", "many digits"],
)
@pytest.mark.usefixtures("without_secrets")
def test_a_job_is_shown_whatever_its_payload_is(oomph: Oomph, db: Connection, insert: Insert, json_text: str) -> None:
    job_id = insert(status="dead")
    db.execute("UPDATE background_jobs SET payload = %s::text::jsonb WHERE id = %s", [json_text, job_id])
    assert oomph("jobs", "show", str(job_id)).status == 0
    assert oomph("jobs", "show", str(job_id), "--json").json["id"] == job_id
    assert [row["id"] for row in oomph("jobs", "list", "--json").json] == [job_id]


def test_a_number_that_no_job_can_have_is_wrong_usage(oomph: Oomph) -> None:
    for command in (("show",), ("retry", "--actor", "ada"), ("cancel", "--actor", "ada"), ("list", "--before")):
        assert "9223372036854775807" in oomph("jobs", *command, str(2**63)).misused()
