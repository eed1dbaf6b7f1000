import re
from collections.abc import Callable

from psycopg.types.json import Jsonb

from tests.commands.conftest import Connection, Oomph

Insert = Callable[..., int]

WORKER = """
INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until, lost_at)
VALUES (gen_random_uuid(), %s, 4711, '0.1.0', '{agent,ingest,system}', '{greet,parse}',
        clock_timestamp() + %s::interval, %s::timestamptz)
RETURNING id::text
"""


def one(db: Connection, query: str) -> tuple[object, ...] | None:
    return db.execute(query).fetchone()


def test_pause_and_resume_change_the_kind_and_are_audited(oomph: Oomph, db: Connection) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('greet', 'system')")
    paused = oomph("kinds", "pause", "greet", "--actor", "ada", "--reason", "it kills")
    assert (paused.out, paused.err) == ("kind greet is paused\n", "")
    (kind,) = oomph("kinds", "list", "--json").json
    assert kind["paused_by"] == "ada"
    assert kind["pause_reason"] == "it kills"
    assert kind["paused_at"].endswith("Z")
    assert oomph("kinds", "resume", "greet", "--actor", "ben").out == "kind greet runs again\n"
    assert one(db, "SELECT paused_at, generation FROM background_kinds") == (None, 1)
    assert [(row["actor"], row["action"]) for row in oomph("audit", "list", "--json").json] == [
        ("ben", "resume"),
        ("ada", "pause"),
    ]


def test_a_list_of_kinds_shows_what_they_declare_of_organisations_and_retention(oomph: Oomph, db: Connection) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('greet', 'system')")
    assert oomph("kinds", "list").out.split()[2:5] == ["STATE", "KILLS", "PAUSED"]
    (kind,) = oomph("kinds", "list", "--json").json
    declared = ("max_per_organization", "keep_succeeded", "keep_dead", "keep_cancelled")
    assert [kind[name] for name in declared] == [None] * 4
    db.execute(
        "INSERT INTO background_kinds (kind, pool, max_per_organization, keep_succeeded, keep_dead)"
        " VALUES ('parse', 'ingest', 2, '36 hours', '0')"
    )
    head, greet, parse = oomph("kinds", "list").out.splitlines()
    assert "PER ORG  KEPT " in head
    assert greet.split() == ["greet", "system", "running", "0"]
    assert parse.split(maxsplit=5)[4:] == ["2", "succeeded 1 d 12 h, dead for ever"]
    assert [oomph("kinds", "list", "--json").json[1][name] for name in declared] == [2, 129_600, 0, None]


def test_resume_with_a_probe_keeps_the_pause(oomph: Oomph, db: Connection) -> None:
    oomph("kinds", "pause", "greet", "--actor", "ada")
    told = oomph("kinds", "resume", "greet", "--probe", "--actor", "ada").out
    assert told == "kind greet lets one job through; `oomph kinds list` shows what comes of it\n"
    assert one(db, "SELECT paused_at IS NOT NULL, probe FROM background_kinds") == (True, True)
    assert "probing" in oomph("kinds", "list").out
    assert "resume --probe" in oomph("audit", "list").out


def test_a_second_pause_says_whose_reason_stays(oomph: Oomph) -> None:
    oomph("kinds", "pause", "greet", "--actor", "ada", "--reason", "it kills")
    again = oomph("kinds", "pause", "greet", "--actor", "ben", "--reason", "me too")
    assert "paused already" in again.out
    assert "by ada" in again.out
    assert "it kills" in again.out


def test_pausing_a_kind_that_nobody_knows_warns_of_a_slip(oomph: Oomph) -> None:
    assert "is it spelt right?" in oomph("kinds", "pause", "gret", "--actor", "ada").err


def test_resume_refuses_a_kind_that_is_not_paused(oomph: Oomph) -> None:
    assert "kind greet is not paused" in oomph("kinds", "resume", "greet", "--actor", "ada").refused()
    assert "who does this?" in oomph("kinds", "resume", "greet").misused()


def test_a_list_of_kinds_shows_the_paused_first_with_the_whole_reason(oomph: Oomph, db: Connection) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool) VALUES ('a-fine-one', 'system')")
    db.execute(
        "INSERT INTO background_kinds (kind, pool, kill_streak, paused_at, paused_by, pause_reason) "
        "VALUES ('parse', 'ingest', 5, now(), 'oomph', E'5 kills in a row:\njob 1 attempt 1 on web-1: crashed')"
    )
    lines = oomph("kinds", "list").out.splitlines()
    assert lines[1].split()[:4] == ["parse", "ingest", "paused", "5"]
    assert lines[2].split() == ["a-fine-one", "system", "running", "0"]
    assert lines[-1] == "job 1 attempt 1 on web-1: crashed"


def test_workers_are_alive_or_lost_by_the_clock_of_the_database(oomph: Oomph, db: Connection) -> None:
    hosts = [("alive-1", "30 s", None), ("expired-1", "-1 s", None), ("lost-1", "30 s", "2020-01-01T00:00Z")]
    ids = {host: one_id[0] for host, *rest in hosts if (one_id := db.execute(WORKER, [host, *rest]).fetchone())}
    rows = {row["host"]: row for row in oomph("workers", "list", "--json").json}
    assert {host: row["alive"] for host, row in rows.items()} == {"alive-1": True, "expired-1": False, "lost-1": False}
    assert rows["alive-1"].keys() >= {"id", "host", "pid", "version", "pools", "kinds", "started_at", "lease_until"}
    assert rows["alive-1"]["pools"] == ["agent", "ingest", "system"]
    table = oomph("workers", "list", COLUMNS="100").out
    assert all(str(worker_id) in table for worker_id in ids.values())
    assert max(map(len, table.splitlines())) <= 100


def test_schedules_are_listed_with_their_next_occurrence(oomph: Oomph, db: Connection) -> None:
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence) "
        "VALUES ('daily-digest', 'a:b', 'digest', '1 day', 'latest', 'skip', '1 min', '2030-01-01T00:00Z')"
    )
    (row,) = oomph("schedules", "list", "--json").json
    assert (row["every"], row["grace"], row["next_occurrence"]) == (86_400, 60, "2030-01-01T00:00:00Z")
    assert row.keys() >= {"name", "kind", "misfire", "overlap", "last_occurrence", "revision"}
    table = oomph("schedules", "list").out
    assert "1 d" in table
    assert "2030-01-01 00:00:00" in table


def test_a_schedule_on_a_calendar_shows_its_expression_and_its_zone(oomph: Oomph, db: Connection) -> None:
    db.execute(
        "INSERT INTO background_schedules (name, app, kind, cron, timezone, misfire, overlap, grace, next_occurrence) "
        "VALUES ('nightly', 'a:b', 'n', '30 2 * * *', 'Europe/Berlin', 'latest', 'skip', '1 min', '2030-01-01T01:30Z')"
    )
    (row,) = oomph("schedules", "list", "--json").json
    assert (row["every"], row["cron"], row["timezone"]) == (None, "30 2 * * *", "Europe/Berlin")
    assert "30 2 * * * Europe/Berlin" in oomph("schedules", "list", COLUMNS="120").out


def test_the_audit_pages_by_id(oomph: Oomph) -> None:
    for kind in ("one", "two", "three"):
        oomph("kinds", "pause", kind, "--actor", "ada")
    first = oomph("audit", "list", "--json", "--limit", "2").json
    assert [row["target"] for row in first] == ["three", "two"]
    rest = oomph("audit", "list", "--json", "--before", str(first[-1]["id"])).json
    assert [row["target"] for row in rest] == ["one"]
    assert rest[0].keys() >= {"at", "actor", "action", "target", "reason", "detail"}


def test_the_audit_is_listed_by_job_target_actor_and_action(oomph: Oomph, insert: Insert) -> None:
    job_id = str(insert())
    oomph("jobs", "cancel", job_id, "--actor", "ada")
    for kind in ("greet", "parse"):
        oomph("kinds", "pause", kind, "--actor", "ben")

    def listed(*options: str) -> list[tuple[str, str]]:
        return [(row["action"], row["target"]) for row in oomph("audit", "list", "--json", *options).json]

    assert listed("--job", job_id) == listed("--actor", "ada") == [("cancel", f"job {job_id}")]
    assert listed("--target", "greet") == [("pause", "greet")]
    assert listed("--action", "pause", "--actor", "ben") == [("pause", "parse"), ("pause", "greet")]
    assert oomph("audit", "list", "--action", "resume").err == "nothing like that was done by hand\n"
    assert "--before 2" in oomph("audit", "list", "--action", "pause", "--limit", "2").err


NIGHTLY = """
WITH kind AS (INSERT INTO background_kinds (kind, pool, priority, max_attempts, timeout)
              VALUES ('digest', 'system', 1, 5, '1 minute'))
INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence)
VALUES ('nightly', 'app', 'digest', '1 day', 'latest', 'skip', '1 hour', now() + interval '1 hour')
"""


def test_a_schedule_is_run_now_once_and_audited(oomph: Oomph, db: Connection) -> None:
    db.execute(NIGHTLY)
    before = one(db, "SELECT next_occurrence FROM background_schedules")
    (made,) = oomph("schedules", "run", "nightly", "--actor", "ada", "--reason", "asked for", "--json").json
    assert made == {"id": made["id"], "schedule": "nightly", "status": "queued"}
    assert one(db, "SELECT id, kind, schedule FROM background_jobs") == (made["id"], "digest", "nightly")
    assert one(db, "SELECT next_occurrence FROM background_schedules") == before
    (audited,) = oomph("audit", "list", "--json", "--job", str(made["id"])).json
    assert (audited["actor"], audited["target"], audited["reason"]) == ("ada", "schedule nightly", "asked for")
    assert "its overlap is to skip" in oomph("schedules", "run", "nightly", "--actor", "ada").refused()
    db.execute("UPDATE background_jobs SET status = 'succeeded'")
    assert re.fullmatch(
        r"schedule nightly runs now: job \d+\n", oomph("schedules", "run", "nightly", "--actor", "ada").out
    )


def test_running_a_schedule_needs_an_actor_and_a_schedule(oomph: Oomph) -> None:
    assert "who does this?" in oomph("schedules", "run", "nightly").misused()
    assert "schedule nightly does not exist" in oomph("schedules", "run", "nightly", "--actor", "ada").refused()


def test_every_list_is_an_array_also_when_it_is_empty(oomph: Oomph) -> None:
    for group in ("jobs", "kinds", "schedules", "workers", "audit"):
        assert oomph(group, "list", "--json").json == []
        assert oomph(group, "list").out == ""


STEERING = "mine\x1b]0;x\x07\r\nnext\u202eevil\x9b2J"


def test_no_row_steers_the_terminal_and_none_hides_the_others(oomph: Oomph, db: Connection, insert: Insert) -> None:
    """Not even one that somebody wrote by hand, with anything where a worker writes an object."""
    written = [
        insert(kind=STEERING, status="dead", organization_id=STEERING, dedupe_key=STEERING, error=Jsonb(error))
        for error in ({"type": STEERING, "message": STEERING, "frames": STEERING}, ["a list"], "a word", 5, {})
    ]
    for job_id in written:
        db.execute(
            "INSERT INTO background_attempts "
            "(job_id, claim, attempt, kind, verdict, charged, is_kill, evidence, error) "
            "SELECT id, 1, 1, kind, 'failed', true, false, error, error FROM background_jobs WHERE id = %s",
            [job_id],
        )
    db.execute(
        "INSERT INTO background_kinds (kind, pool, paused_at, paused_by, pause_reason) "
        "VALUES (%(it)s, 'system', now(), %(it)s, %(it)s)",
        {"it": STEERING},
    )
    db.execute(
        "INSERT INTO background_audit (actor, action, target, reason, detail) "
        "VALUES (%(it)s, %(it)s, %(it)s, %(it)s, '[1]')",
        {"it": STEERING},
    )
    assert set(re.findall(r"^ *(\d+) ", oomph("jobs", "list").out, re.MULTILINE)) == set(map(str, written))
    shows = [("jobs", "show", str(job_id)) for job_id in written]
    acts = [("kinds", act, STEERING, "--actor", "ada") for act in ("pause", "resume", "resume")]
    answers = [oomph(*command) for command in (*shows, ("kinds", "list"), ("audit", "list"), *acts)]
    assert [answer.status for answer in answers] == [0] * (len(answers) - 1) + [1]
    for answer in answers:
        assert (answer.out + answer.err).replace("\n", "").isprintable(), answer.arguments
