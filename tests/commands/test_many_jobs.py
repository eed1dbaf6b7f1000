"""`oomph jobs retry --all` and `cancel --all`: a number first, then an answer or --yes, then batch after batch."""

import threading
from collections.abc import Callable

import pytest

import jobs.bulk
from supervisor.commands.many_jobs import RETRY, do_to_all
from supervisor.errors import CommandError
from tests.commands.conftest import Connection, Oomph
from tests.commands.terminal import Terminal, terminal

Insert = Callable[..., int]

DEAD = ("jobs", "retry", "--all", "--status", "dead")
ADA = ("--actor", "ada")


def statuses(db: Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT status FROM background_jobs ORDER BY id").fetchall()]


def audit(db: Connection) -> list[tuple[object, ...]]:
    return db.execute("SELECT actor, action, target, reason FROM background_audit ORDER BY id").fetchall()


def answer(shown: Terminal, question: str, keys: str) -> None:
    while question not in shown.text:
        assert shown.process.poll() is None, shown.text
        shown.read(0.1)
    shown.press(keys)


def test_all_that_pass_the_filter_are_retried_and_no_others(oomph: Oomph, insert: Insert, db: Connection) -> None:
    insert(status="dead", organization_id="acme")
    insert(status="dead", organization_id="other")
    insert(status="cancelled", organization_id="acme")
    done = oomph(*DEAD, "--organization-id", "acme", "--yes", *ADA, "--reason", "the disk is free")
    assert (done.status, done.out) == (0, "1 job is queued again\n")
    assert done.err == "retrying 1 job: status dead, organization id acme\n"
    assert statuses(db) == ["queued", "dead", "cancelled"]
    assert audit(db) == [("ada", "retry", "1 jobs", "the disk is free")]


def test_all_are_cancelled_by_batches_which_each_are_audited(oomph: Oomph, insert: Insert, db: Connection) -> None:
    db.execute("INSERT INTO background_jobs (kind, pool) SELECT 'greet', 'system' FROM generate_series(1, 600)")
    done = oomph("jobs", "cancel", "--all", "--status", "queued", "--kind", "greet", "--yes", "--json", *ADA)
    assert done.json == {"changed": 600, "refused": {}}
    assert set(statuses(db)) == {"cancelled"}
    assert [row[2] for row in audit(db)] == ["250 jobs", "250 jobs", "100 jobs"]


def test_jobs_that_are_refused_are_counted_by_why(oomph: Oomph, insert: Insert) -> None:
    insert(status="dead", dedupe_key="d")
    insert(status="queued", dedupe_key="d")
    insert(status="dead")
    done = oomph(*DEAD, "--yes", *ADA)
    assert done.out == "1 job is queued again\nnot 1: a job with its dedupe key is queued\n"


def test_without_a_terminal_it_says_how_many_and_does_nothing(oomph: Oomph, insert: Insert, db: Connection) -> None:
    for _ in range(3):
        insert(status="dead", kind="parse")
    told = oomph(*DEAD, "--kind", "parse", *ADA).misused()
    assert "--yes" in told
    assert "3 jobs (status dead, kind parse)" in " ".join(told.split())
    assert statuses(db) == ["dead"] * 3
    assert audit(db) == []


def test_where_there_are_none_nobody_is_asked(oomph: Oomph) -> None:
    none = oomph(*DEAD, *ADA)
    assert (none.status, none.out, none.err) == (0, "", "no such jobs\n")
    assert oomph(*DEAD, *ADA, "--json").json == {"changed": 0, "refused": {}}


def test_it_is_said_which_jobs_are_meant_and_not_twice(oomph: Oomph, insert: Insert, db: Connection) -> None:
    job_id = str(insert(status="dead"))
    assert "--all" in oomph("jobs", "retry", *ADA).misused()
    assert "--all" in oomph("jobs", "retry", job_id, "--all", "--status", "dead", *ADA).misused()
    assert "status dead is of --all" in oomph("jobs", "retry", job_id, "--status", "dead", *ADA).misused()
    assert "--yes is of --all" in oomph("jobs", "cancel", job_id, "--yes", *ADA).misused()
    assert "dead or cancelled" in oomph("jobs", "retry", "--all", "--yes", *ADA).misused()
    assert "queued or running" in oomph("jobs", "cancel", "--all", "--status", "dead", "--yes", *ADA).misused()
    assert "who does this?" in oomph(*DEAD, "--yes").misused()
    assert statuses(db) == ["dead"]


@pytest.mark.parametrize(("keys", "ended"), [("n\n", 1), ("\n", 1), ("\x04", 1), ("\x03", 130)])
def test_a_terminal_is_asked_and_may_say_no(keys: str, ended: int, url: str, insert: Insert, db: Connection) -> None:
    insert(status="dead")
    with terminal(*DEAD, *ADA, DATABASE_URL=url) as shown:
        answer(shown, "Retry 1 job (status dead)? [y/N]", keys)
        assert shown.end() == ended
    assert statuses(db) == ["dead"]
    assert audit(db) == []


def test_a_terminal_that_says_yes_sees_the_work_and_is_asked_why(url: str, insert: Insert, db: Connection) -> None:
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status) SELECT 'a', 'system', 'dead' FROM generate_series(1, 300)"
    )
    with terminal(*DEAD, *ADA, DATABASE_URL=url) as shown:
        answer(shown, "Retry 300 jobs (status dead)? [y/N]", "y\n")
        answer(shown, "Why, for the audit?", "the disk is free\n")
        assert shown.end() == 0
        assert "/300" in shown.raw
        assert "300 jobs are queued again" in shown.text
    assert audit(db) == [
        ("ada", "retry", "250 jobs", "the disk is free"),
        ("ada", "retry", "50 jobs", "the disk is free"),
    ]


def test_nobody_holds_a_transaction_open_while_a_person_thinks(url: str, insert: Insert, db: Connection) -> None:
    insert(status="dead")
    with terminal(*DEAD, *ADA, DATABASE_URL=url) as shown:
        answer(shown, "[y/N]", "")
        states = db.execute(
            "SELECT state FROM pg_stat_activity WHERE application_name = 'oomph' AND datname = current_database()"
        ).fetchall()
        assert states == [("idle",)]
        shown.press("n\n")
        shown.end()


def test_what_was_done_before_the_database_refused_stays_and_is_told(url: str, db: Connection) -> None:
    """A lock on the jobs of the second batch."""
    db.execute(
        "INSERT INTO background_jobs (kind, pool, status) SELECT 'a', 'system', 'dead' FROM generate_series(1, 300)"
    )
    done = threading.Event()

    def one_batch_then_a_cut(connection: Connection, wanted: jobs.bulk.JobFilter, **options: object) -> jobs.bulk.Done:
        if done.is_set():
            db.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        done.set()
        changed: jobs.bulk.Done = jobs.bulk.retry_matching(connection, wanted, **options)  # type: ignore[arg-type]
        return changed

    wanted = jobs.bulk.JobFilter(status="dead")
    with pytest.raises(CommandError, match="250 jobs are queued again, and perhaps one batch more: that stays"):
        do_to_all(
            RETRY, one_batch_then_a_cut, wanted, actor="ada", reason="", yes=True, as_json=False, database=url,
            embedded=None,
        )  # fmt: skip
    assert sorted(statuses(db)) == ["dead"] * 50 + ["queued"] * 250


@pytest.mark.parametrize(
    ("command", "action"),
    [
        (("jobs", "retry", "1"), "retry"),
        (("jobs", "cancel", "2"), "cancel"),
        (("kinds", "pause", "greet"), "pause"),
        (("kinds", "resume", "parse"), "resume"),
    ],
)
def test_a_terminal_is_asked_why_where_no_reason_is_given(
    command: tuple[str, ...], action: str, url: str, insert: Insert, db: Connection
) -> None:
    insert(status="dead")
    insert()
    db.execute(
        "INSERT INTO background_kinds (kind, pool, paused_at, paused_by) VALUES ('parse', 'system', now(), 'bo')"
    )
    with terminal(*command, *ADA, DATABASE_URL=url) as shown:
        answer(shown, "Why, for the audit? (Enter: no reason)", "the disk is free\n")
        assert shown.end() == 0
    assert [(row[1], row[3]) for row in audit(db)] == [(action, "the disk is free")]


def test_enter_gives_no_reason_and_ctrl_d_does_nothing(url: str, insert: Insert, db: Connection) -> None:
    first, second = str(insert()), str(insert())
    with terminal("jobs", "cancel", first, *ADA, DATABASE_URL=url) as shown:
        answer(shown, "Why", "\n")
        assert shown.end() == 0
    with terminal("jobs", "cancel", second, *ADA, DATABASE_URL=url) as shown:
        answer(shown, "Why", "\x04")
        assert shown.end() == 1
        assert "nothing was done" in shown.text
    assert audit(db) == [("ada", "cancel", f"job {first}", None)]
