from datetime import UTC, datetime, timedelta

import pytest

from tests.commands.conftest import Connection, Oomph

APP = "tests.commands.declared:app"


def columns(db: Connection, names: str) -> list[tuple[object, ...]]:
    return db.execute(f"SELECT {names} FROM background_jobs ORDER BY id").fetchall()


def test_several_payloads_become_several_jobs(oomph: Oomph, db: Connection) -> None:
    out = oomph("enqueue", "greet", '{"name": "ada"}', '{"name": "ben"}', "--pool", "system").out
    ids = [row[0] for row in columns(db, "id")]
    assert out == "".join(f"job {job_id} is queued\n" for job_id in ids)
    assert columns(db, "kind, payload->>'name', pool, priority, status") == [
        ("greet", "ada", "system", 1, "queued"),
        ("greet", "ben", "system", 1, "queued"),
    ]


def test_all_options_reach_the_row(oomph: Oomph, db: Connection) -> None:
    oomph(
        "enqueue", "greet", "{}", "--pool", "agent", "--priority", "bulk", "--organization-id", "acme",
        "--dedupe-key", "d", "--dedupe-active", "--concurrency-key", "c", "--run-after", "2030-01-31T08:00Z",
    )  # fmt: skip
    assert columns(
        db, "pool, priority, organization_id, dedupe_key, dedupe_active, concurrency_key, run_after"
    ) == [("agent", 2, "acme", "d", True, "c", datetime(2030, 1, 31, 8, tzinfo=UTC))]  # fmt: skip


@pytest.mark.parametrize("app", [(), ("--app", APP)])
def test_a_delay_counts_from_now(oomph: Oomph, db: Connection, app: tuple[str, ...]) -> None:
    oomph("enqueue", "greet", '{"name": "ada"}', "--pool", "system", "--run-after", "90m", *app)
    assert columns(db, "run_after - created_at") == [(timedelta(minutes=90),)]


def test_the_app_gives_defaults_and_validates(oomph: Oomph, db: Connection) -> None:
    oomph("enqueue", "greet", '{"name": "ada"}', "--app", APP)
    assert columns(db, "payload, pool, priority, max_attempts, timeout") == [
        ({"name": "ada", "times": 1}, "system", 2, 2, timedelta(minutes=2))
    ]
    bad = oomph("enqueue", "greet", '{"name": "ada"}', '{"nam": "ben"}', WORKER_APP=APP).refused()
    assert "payload 2" in bad
    assert "nam" in bad
    assert len(columns(db, "id")) == 1


def test_what_a_worker_declared_gives_the_defaults_without_an_app(oomph: Oomph, db: Connection) -> None:
    db.execute("INSERT INTO background_kinds (kind, pool, priority, max_attempts) VALUES ('parse', 'ingest', 0, 3)")
    oomph("enqueue", "parse", "{}")
    assert columns(db, "pool, priority, max_attempts") == [("ingest", 0, 3)]


def test_a_kind_that_nobody_declared_needs_its_pool(oomph: Oomph) -> None:
    assert "no worker has declared kind greet" in oomph("enqueue", "greet", "{}").refused()


def test_an_app_without_the_kind_says_what_it_has(oomph: Oomph) -> None:
    assert "digest, greet, parse" in oomph("enqueue", "greeet", "{}", "--app", APP).refused()
    assert (
        "for the pool system" in oomph("enqueue", "greet", '{"name": "a"}', "--app", APP, "--pool", "agent").refused()
    )


def test_a_taken_dedupe_key_is_told_and_is_no_error(oomph: Oomph) -> None:
    command = ("enqueue", "greet", "{}", "--pool", "system", "--dedupe-key", "d")
    (first,) = oomph(*command, "--json").json
    assert first["id"] > 0
    assert oomph(*command, "--json").json == [{"id": None, "kind": "greet"}]
    again = oomph(*command)
    assert again.status == 0
    assert "not queued" in again.out


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ("{", "payload 2 is not JSON"),
        ("[1]", "a payload is a JSON object"),
        ('"text"', "a payload is a JSON object"),
        ('{"x": "\\u0000"}', "Unicode"),
        ('{"x": "' + "y" * (1 << 20) + '"}', "1048576"),
    ],
)
def test_one_bad_payload_and_nothing_is_written(oomph: Oomph, db: Connection, payload: str, told: str) -> None:
    assert told in oomph("enqueue", "greet", "{}", payload, "--pool", "system").refused()
    assert columns(db, "id") == []


def test_a_payload_over_the_limit_is_refused_with_an_app_too(oomph: Oomph) -> None:
    payload = '{"name": "' + "y" * (1 << 20) + '"}'
    assert "1,048,576 are allowed" in oomph("enqueue", "greet", payload, "--app", APP).refused()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--priority", "urgent"), "interactive, default, bulk"),
        (("--pool", "gpu"), "agent, ingest, system"),
        (("--run-after", "tomorrow"), "neither a delay"),
        (("--run-after", "2030-01-31T08:00"), "no time zone"),
        (("--run-after", "9" * 400 + "d"), "too long"),
        (("--dedupe-active",), "--dedupe-key"),
    ],
)
def test_wrong_options_are_wrong_usage(oomph: Oomph, options: tuple[str, ...], told: str) -> None:
    assert told in oomph("enqueue", "greet", "{}", *options).misused()
