"""`enqueue` on every connection a service may hold: the job exists exactly when the service's transaction commits."""

import json
import re
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import asyncpg
import psycopg
import psycopg_pool
import pytest
import sqlalchemy as sa
from psycopg import errors
from psycopg.rows import dict_row
from sqlalchemy import orm

from jobs import Job, Payload, Pool, Priority, Task, enqueue, enqueue_many
from jobs.store import JobStore
from tests.jobs.callers import CALLERS, Held, async_engine, asyncpg_arguments, psycopg_connection, settle, sync_engine
from tests.jobs.lab import LETTER, NOTE, PARCEL, Connection, Note, add, hire, job, scalar, succeed

ORGANIZATION = uuid.UUID(int=1)
HOUR = timedelta(hours=1)


@pytest.fixture(params=list(CALLERS))
async def held(request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Held]:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # these tests may block their own loop
    async with CALLERS[request.param](url) as opened:
        yield opened


@pytest.fixture
async def connection(url: str) -> AsyncIterator[psycopg.Connection[Any]]:
    async with psycopg_connection(url) as opened:
        yield opened.db


def count(db: Connection) -> int:
    return int(scalar(db, "SELECT count(*) FROM background_jobs"))


async def test_a_committed_transaction_has_its_job_and_a_rolled_back_one_has_none(held: Held, db: Connection) -> None:
    assert isinstance(await settle(enqueue(held.db, NOTE, Note(text="gone"))), int)
    await settle(held.rollback())
    assert count(db) == 0
    # asyncpg's transaction object is used up by its end, so this one commits by itself.
    job_id = await settle(enqueue(held.db, NOTE, Note(text="kept", number=7)))
    if not isinstance(held.db, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        assert count(db) == 0
        await settle(held.commit())
    assert job(db, job_id, "kind, pool, status, payload, attempt") == (
        "note",
        "system",
        "queued",
        {"text": "kept", "number": 7},
        0,
    )


async def test_a_job_wakes_its_pool_after_the_commit_and_not_before(held: Held, db: Connection, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_jobs")
        await settle(enqueue_many(held.db, PARCEL, [Note(number=n) for n in range(3)]))
        await settle(enqueue(held.db, NOTE, Note()))
        db.execute("NOTIFY background_jobs, 'something else'")
        (first,) = listener.notifies(timeout=10, stop_after=1)
        assert first.payload == "something else"
        await settle(held.commit())
        woken = [notice.payload for notice in listener.notifies(timeout=10, stop_after=4)]
        # Two of a statement's rows are named, and all others are told at once, however many they are.
        assert [re.sub(r"\d+", "ID", payload) for payload in woken] == [
            "one ID parcel",
            "one ID parcel",
            "new parcel",
            "one ID note",
        ]


async def test_a_rolled_back_job_wakes_nobody(held: Held, db: Connection, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_jobs")
        await settle(enqueue(held.db, NOTE, Note()))
        await settle(held.rollback())
        db.execute("NOTIFY background_jobs, 'something else'")
        (first,) = listener.notifies(timeout=10, stop_after=1)
        assert first.payload == "something else"


async def test_everything_given_is_written(held: Held, db: Connection) -> None:
    task = Task(
        kind="ocr",
        payload_type=Note,
        pool=Pool.INGEST,
        max_attempts=7,
        timeout=timedelta(minutes=90, microseconds=1),
        priority=Priority.BULK,
    )
    moment = datetime(2031, 7, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    job_id = await settle(
        enqueue(
            held.db,
            task,
            Note(text="\u2603 %s %(x)s :name $1 \\ ' \" \U0001f600"),
            organization_id=ORGANIZATION,
            dedupe_key="k%(y)s:z$2",
            dedupe_active=True,
            concurrency_key="c'\\",
            run_after=moment,
            priority=Priority.INTERACTIVE,
        )
    )
    await settle(held.commit())
    written = job(
        db,
        job_id,
        "kind, pool, max_attempts, timeout, priority, payload ->> 'text', organization_id, dedupe_key, dedupe_active,"
        " concurrency_key, run_after",
    )
    assert written == (
        "ocr",
        "ingest",
        7,
        timedelta(minutes=90, microseconds=1),
        0,
        "\u2603 %s %(x)s :name $1 \\ ' \" \U0001f600",
        str(ORGANIZATION),
        "k%(y)s:z$2",
        True,
        "c'\\",
        moment,
    )


async def test_a_taken_dedupe_key_answers_none_and_leaves_the_transaction_usable(held: Held, db: Connection) -> None:
    first = await settle(enqueue(held.db, NOTE, Note(), dedupe_key="k"))
    assert await settle(enqueue(held.db, NOTE, Note(), dedupe_key="k")) is None
    other = await settle(enqueue(held.db, LETTER, Note(), dedupe_key="k"))  # keys are counted per kind
    await settle(held.commit())
    assert [row[0] for row in db.execute("SELECT id FROM background_jobs ORDER BY id")] == [first, other]


@pytest.mark.parametrize(
    "held",
    [
        "psycopg_connection",
        "psycopg_async_connection",
        "sqlalchemy_session",
        "sqlalchemy_async_session_asyncpg",
        "asyncpg_connection",
        "django_connection",
    ],
    indirect=True,
)
async def test_ten_thousand_jobs_keep_their_positions(held: Held, db: Connection) -> None:
    jobs = [Job(payload=Note(number=n), dedupe_key=f"k{n % 9_000}") for n in range(10_000)]
    ids = await settle(enqueue_many(held.db, NOTE, jobs))
    await settle(held.commit())
    assert len(ids) == 10_000
    assert None not in ids[:9_000]
    assert ids[9_000:] == [None] * 1_000
    assert ids[:9_000] == sorted(ids[:9_000])  # what was given first has the smaller id, so it runs first
    numbers = dict(db.execute("SELECT id, (payload ->> 'number')::int FROM background_jobs").fetchall())
    assert [numbers[job_id] for job_id in ids[:9_000]] == list(range(9_000))


async def test_an_empty_list_writes_nothing(held: Held, db: Connection) -> None:
    assert await settle(enqueue_many(held.db, NOTE, [])) == []
    await settle(held.commit())
    assert count(db) == 0


class Letter(Payload):
    text: str


def too_large() -> Note:
    return Note(text="x" * (1 << 20))


# Each is refused by itself, before anything is sent.
REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a payload of another type": (
        lambda db: enqueue(db, NOTE, Letter(text="x")),
        TypeError,
        "note takes Note, not Lett",
    ),
    "a plain dict": (lambda db: enqueue(db, NOTE, {"text": "x"}), TypeError, "note takes Note, not dict"),
    "a payload over 1 MiB": (
        lambda db: enqueue(db, NOTE, too_large()),
        ValueError,
        r"1,048,\d+ bytes, 1,048,576 are allowed; store the data and pass its identifier",
    ),
    "a NUL in the payload": (lambda db: enqueue(db, NOTE, Note(text="a\x00b")), ValueError, "NUL"),
    "a NUL after backslashes": (lambda db: enqueue(db, NOTE, Note(text="\\\\\x00")), ValueError, "NUL"),
    "a kind's name": (lambda db: enqueue(db, "note", Note()), TypeError, "enqueue needs a Task, not 'note'"),
    "a kind's name and no jobs": (
        lambda db: enqueue_many(db, "note", []),
        TypeError,
        "enqueue needs a Task, not 'note'",
    ),
    "run_after without zone": (
        lambda db: enqueue(db, NOTE, Note(), run_after=datetime(2030, 1, 1)),  # noqa: DTZ001
        ValueError,
        "has no time zone",
    ),
    "run_after in seconds": (
        lambda db: enqueue(db, NOTE, Note(), run_after=60),
        TypeError,
        "a datetime or a timedelta",
    ),
    "run_after beyond all clocks": (
        lambda db: enqueue(db, NOTE, Note(), run_after=timedelta.max),
        ValueError,
        "run_after=.* is more than",
    ),
    "run_after before all clocks": (
        lambda db: enqueue(db, NOTE, Note(), run_after=timedelta.min),
        ValueError,
        "run_after=.* is more than",
    ),
    "a priority's number": (lambda db: enqueue(db, NOTE, Note(), priority=0), TypeError, "must be a Priority, not 0"),
    "an organization of another type": (
        lambda db: enqueue(db, NOTE, Note(), organization_id=1.5),
        TypeError,
        "organization_id must be a string, a UUID or a number",
    ),
    "an organization that is a flag": (
        lambda db: enqueue(db, NOTE, Note(), organization_id=True),
        TypeError,
        "organization_id must be a string, a UUID or a number",
    ),
    "an organization with NUL": (lambda db: enqueue(db, NOTE, Note(), organization_id="\x00"), ValueError, "no NUL"),
    "a dedupe key that is a number": (
        lambda db: enqueue(db, NOTE, Note(), dedupe_key=5),
        TypeError,
        "dedupe_key must be a string, not 5",
    ),
    "a long dedupe key": (lambda db: enqueue(db, NOTE, Note(), dedupe_key="x" * 501), ValueError, "500 characters"),
    "an empty dedupe key": (
        lambda db: enqueue(db, NOTE, Note(), dedupe_key=""),
        ValueError,
        "dedupe_key must have 1 to",
    ),
    "a dedupe key with NUL": (lambda db: enqueue(db, NOTE, Note(), dedupe_key="a\x00"), ValueError, "no NUL"),
    "a dedupe key that is no text": (
        lambda db: enqueue(db, NOTE, Note(), dedupe_key="\ud800"),
        ValueError,
        "surrogate",
    ),
    "a long concurrency key": (
        lambda db: enqueue(db, NOTE, Note(), concurrency_key="x" * 501),
        ValueError,
        "500 characters",
    ),
    "an empty concurrency key": (
        lambda db: enqueue(db, NOTE, Note(), concurrency_key=""),
        ValueError,
        "concurrency_key must have 1 to",
    ),
    "dedupe_active without key": (
        lambda db: enqueue(db, NOTE, Note(), dedupe_active=True),
        ValueError,
        "needs a dedupe_k",
    ),
    "dedupe_active that is no flag": (
        lambda db: enqueue(db, NOTE, Note(), dedupe_key="k", dedupe_active="yes"),
        TypeError,
        "must be True or False",
    ),
    "one bad job in the second batch": (
        lambda db: enqueue_many(db, NOTE, [*(Note() for _ in range(6_000)), Note(text="\x00")]),
        ValueError,
        "NUL",
    ),
}


async def test_what_is_refused_is_refused_at_the_call_and_leaves_the_transaction_usable(
    held: Held, db: Connection
) -> None:
    await settle(held.execute("CREATE TABLE the_services_own_work (n int)"))
    for call, error, message in REFUSED.values():
        with pytest.raises(error, match=message):
            call(held.db)  # not awaited: it raises before there is anything to await
    await settle(enqueue(held.db, NOTE, Note()))
    await settle(held.commit())
    assert count(db) == 1
    assert scalar(db, "SELECT to_regclass('the_services_own_work') IS NOT NULL")


async def test_a_task_of_an_unknown_pool_cannot_even_be_declared() -> None:
    with pytest.raises(TypeError, match=r"Pool\.AGENT, Pool\.INGEST, Pool\.SYSTEM"):
        Task(kind="x", payload_type=Note, pool="gpu")  # type: ignore[arg-type]


async def test_a_pool_or_an_engine_is_refused_with_a_hint(url: str) -> None:
    pool = psycopg_pool.ConnectionPool(url, open=False)
    async_pool = psycopg_pool.AsyncConnectionPool(url, open=False)
    asyncpg_pool = asyncpg.create_pool(**asyncpg_arguments(url))
    async with sync_engine(url) as engine, async_engine(url, "asyncpg") as asynchronous:
        for wrong in (pool, async_pool, asyncpg_pool, engine, asynchronous, orm.sessionmaker(engine), url, None, {}):
            with pytest.raises(TypeError, match=r"pass the connection, cursor or session .* not a pool or an engine"):
                enqueue(wrong, NOTE, Note())
            with pytest.raises(TypeError, match="not a pool or an engine"):
                enqueue_many(wrong, NOTE, [])


# What the caller has set on its own connection stays its own.


def test_the_callers_row_factory_and_unread_rows_stay(url: str) -> None:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        cursor = connection.execute("SELECT generate_series(1, 3) AS n")
        assert cursor.fetchone() == {"n": 1}
        assert enqueue(cursor, NOTE, Note()) == 1
        assert enqueue(connection, NOTE, Note()) == 2
        assert cursor.fetchall() == [{"n": 2}, {"n": 3}]


@pytest.mark.parametrize("factory", [psycopg.ClientCursor, psycopg.RawCursor, psycopg.Cursor])
def test_the_callers_kind_of_cursor_does_not_matter(url: str, factory: type[Any]) -> None:
    with psycopg.connect(url, cursor_factory=factory) as connection:
        assert enqueue(connection, NOTE, Note(), run_after=HOUR, dedupe_key="a%b") == 1
        assert enqueue(connection.cursor(), NOTE, Note(), dedupe_key="a%b") is None


async def test_an_asynchronous_raw_cursor_does_not_matter_either(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, cursor_factory=psycopg.AsyncRawCursor) as connection:
        assert await enqueue(connection, NOTE, Note(), run_after=HOUR) == 1


def test_a_pipeline_and_prepared_statements_do_not_matter(url: str) -> None:
    with psycopg.connect(url, prepare_threshold=0) as connection, connection.pipeline():
        assert [enqueue(connection, NOTE, Note(), run_after=HOUR) for _ in range(3)] == [1, 2, 3]


def test_an_autocommit_connection_writes_at_once(url: str, db: Connection) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        assert job(db, enqueue(connection, NOTE, Note())) == "queued"


async def test_a_json_codec_on_asyncpg_does_not_matter(url: str, db: Connection) -> None:
    connection = await asyncpg.connect(**asyncpg_arguments(url))
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    job_id = await enqueue(connection, NOTE, Note(text="x"))
    await connection.close()
    assert job(db, job_id, "payload") == {"text": "x", "number": 0}


async def test_a_savepoint_takes_its_job_back(url: str, db: Connection) -> None:
    async with sync_engine(url) as engine:
        with orm.Session(engine) as session, session.begin():
            kept = enqueue(session, NOTE, Note())
            with session.begin_nested() as savepoint:
                enqueue(session, NOTE, Note())
                savepoint.rollback()
    assert [row[0] for row in db.execute("SELECT id FROM background_jobs")] == [kept]


async def test_a_session_flushes_its_own_work_into_the_same_transaction(url: str, db: Connection) -> None:
    class Base(orm.DeclarativeBase):
        pass

    class Invoice(Base):
        __tablename__ = "invoices"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)

    async with sync_engine(url) as engine:
        Base.metadata.create_all(engine)
        with orm.Session(engine) as session:
            session.add(Invoice(id=1))
            enqueue(session, NOTE, Note())
            session.commit()
        with orm.Session(engine) as session:
            session.add(Invoice(id=1))
            with pytest.raises(sa.exc.IntegrityError):
                enqueue(session, NOTE, Note())
    assert count(db) == 1


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns", "<+03>-03"])
@pytest.mark.parametrize("style", ["ISO, MDY", "SQL, DMY", "German", "Postgres, MDY"])
def test_the_settings_of_the_callers_session_do_not_shift_a_moment(
    url: str, db: Connection, zone: str, style: str
) -> None:
    moment = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
    with psycopg.connect(url) as connection:
        connection.execute(
            "SELECT set_config('timezone', %s, false), set_config('datestyle', %s, false)", [zone, style]
        )
        connection.execute("SET intervalstyle = 'sql_standard'")
        at = enqueue(connection, NOTE, Note(), run_after=moment)
        later = enqueue(connection, NOTE, Note(), run_after=timedelta(days=-1, hours=30, seconds=1))
    assert job(db, at, "run_after") == moment
    assert job(db, later, "run_after - created_at") == timedelta(hours=6, seconds=1)
    assert job(db, later, "timeout") == NOTE.timeout


# The values.


@pytest.mark.parametrize(
    ("given", "stored"),
    [(None, None), (ORGANIZATION, str(ORGANIZATION)), (42, "42"), (0, "0"), ("acme", "acme"), ("", "")],
)
def test_an_organization_is_a_uuid_a_number_or_a_string(connection: Connection, given: Any, stored: str | None) -> None:
    assert job(connection, enqueue(connection, NOTE, Note(), organization_id=given), "organization_id") == stored


def test_a_delay_counts_from_the_start_of_the_transaction(connection: Connection) -> None:
    job_id = enqueue(connection, NOTE, Note(), run_after=timedelta(minutes=10))
    assert job(connection, job_id, "run_after - now()") == timedelta(minutes=10)
    at_once = enqueue(connection, NOTE, Note())
    assert job(connection, at_once, "run_after - now()") == timedelta(0)


def test_each_job_of_many_has_its_own_values(connection: Connection) -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    ids = enqueue_many(
        connection,
        NOTE,
        [
            Note(number=1),
            Job(payload=Note(number=2), run_after=moment, priority=Priority.BULK, organization_id=ORGANIZATION),
            Job(payload=Note(number=3), run_after=HOUR, priority=Priority.INTERACTIVE, concurrency_key="c"),
        ],
    )
    written = [job(connection, i, "priority, organization_id, concurrency_key, run_after - now() = '1 h'") for i in ids]
    assert written == [(1, None, None, False), (2, str(ORGANIZATION), None, False), (0, None, "c", True)]
    assert job(connection, ids[1], "run_after") == moment


HOSTILE = [
    "'; DROP TABLE background_jobs; --",
    "\\u0000",
    "\\\\u0000 and \\",
    "\u2028\u2029\x7f\x01\x1f",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "\u202eright to left",
    '{"a": 1, "a": 2}',
    "$$ $1 %s %(kind)s :kind {} {0}",
    "a" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_a_hostile_string_comes_back_as_it_was(connection: Connection, store: JobStore, text: str) -> None:
    enqueue(connection, NOTE, Note(text=text))
    connection.commit()
    worker = await hire(store)
    assert Note.model_validate_json((await worker.claim_one()).payload).text == text


def test_a_payload_of_exactly_one_mebibyte_is_taken(connection: Connection) -> None:
    room = (1 << 20) - len(Note().model_dump_json())
    assert enqueue(connection, NOTE, Note(text="x" * room)) is not None
    with pytest.raises(ValueError, match=r"1,048,577 bytes"):
        enqueue(connection, NOTE, Note(text="x" * (room + 1)))
    with pytest.raises(ValueError, match=r"1,048,578 bytes"):
        enqueue(connection, NOTE, Note(text="x" * (room - 1) + "\u2603"))  # bytes count, not characters


async def test_dedupe_counts_a_queued_copy_and_only_with_dedupe_active_a_running_one(
    connection: Connection, store: JobStore
) -> None:
    worker = await hire(store)
    first = enqueue(connection, NOTE, Note(), dedupe_key="k")
    connection.commit()
    assert enqueue(connection, NOTE, Note(), dedupe_key="k") is None
    assert enqueue(connection, NOTE, Note(), dedupe_key="k", dedupe_active=True) is None
    connection.commit()
    running = await worker.claim_one()
    assert running.id == first
    assert enqueue(connection, NOTE, Note(), dedupe_key="k", dedupe_active=True) is None
    second = enqueue(connection, NOTE, Note(), dedupe_key="k")
    assert second is not None
    connection.commit()
    await succeed(store, {running.fence: None})
    await succeed(store, {(await worker.claim_one()).fence: None})
    assert enqueue(connection, NOTE, Note(), dedupe_key="k", dedupe_active=True) is not None


async def test_a_running_copy_that_was_enqueued_as_active_refuses_only_active_ones(
    connection: Connection, store: JobStore
) -> None:
    worker = await hire(store)
    enqueue(connection, NOTE, Note(), dedupe_key="k", dedupe_active=True)
    connection.commit()
    await worker.claim_one()
    assert enqueue_many(
        connection, NOTE, [Job(payload=Note(), dedupe_key="k", dedupe_active=active) for active in (True, False, False)]
    ) == [None, 2 + 1, None]


def test_a_job_that_a_taken_id_swallows_is_an_error_and_not_a_duplicate(connection: Connection) -> None:
    # Somebody restored rows with their ids and forgot the sequence.
    add(connection, id=1)
    connection.commit()
    with pytest.raises(errors.UniqueViolation, match="background_jobs_pkey"):
        enqueue(connection, NOTE, Note())
    connection.rollback()
    connection.execute("SELECT setval('background_jobs_id_seq', 1, false)")
    with pytest.raises(RuntimeError, match="was not written"):
        enqueue_many(connection, NOTE, [Note()])
    connection.rollback()
    with pytest.raises(errors.UniqueViolation):
        add(connection, id=1)


def test_two_services_that_enqueue_the_same_keys_in_opposite_order_do_not_deadlock(url: str, db: Connection) -> None:
    import threading

    keys = [f"k{n:05}" for n in range(3_000)]
    failures: list[Exception] = []
    written: list[int] = []
    start = threading.Barrier(2)

    def service(ordered: list[str]) -> None:
        try:
            with psycopg.connect(url) as connection:
                start.wait()
                ids = enqueue_many(connection, NOTE, [Job(payload=Note(), dedupe_key=key) for key in ordered])
                written.append(sum(job_id is not None for job_id in ids))
        except Exception as error:  # noqa: BLE001  (asserted on below)
            failures.append(error)

    threads = [threading.Thread(target=service, args=[ordered]) for ordered in (keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(written) == [0, 3_000]
    assert count(db) == 3_000


# The same in SQL, for every language.


def test_sql_takes_what_is_not_given_from_the_declaration(connection: Connection) -> None:
    connection.execute(
        "INSERT INTO background_kinds (kind, pool, priority, max_attempts, timeout)"
        " VALUES ('ocr', 'ingest', 2, 9, '1 h')"
    )
    job_id = scalar(connection, "SELECT background_enqueue('ocr', '{\"a\": 1}')")
    assert job(
        connection, job_id, "kind, pool, priority, max_attempts, timeout, payload, run_after = now(), dedupe_active"
    ) == ("ocr", "ingest", 2, 9, HOUR, {"a": 1}, True, False)
    job_id = scalar(
        connection,
        "SELECT background_enqueue('ocr', pool => 'agent', priority => 0, max_attempts => 1, timeout => '1 min',"
        " run_after => now() + '1 h', organization_id => 'o', dedupe_key => 'd', dedupe_active => true,"
        " concurrency_key => 'c')",
    )
    assert job(
        connection,
        job_id,
        "pool, priority, max_attempts, timeout, run_after - now(), organization_id, dedupe_key, dedupe_active,"
        " concurrency_key, payload",
    ) == ("agent", 0, 1, timedelta(minutes=1), HOUR, "o", "d", True, "c", {})


def test_sql_gives_an_undeclared_kind_the_general_defaults(connection: Connection) -> None:
    job_id = scalar(connection, "SELECT background_enqueue('new', pool => 'system')")
    assert job(connection, job_id, "pool, priority, max_attempts, timeout") == ("system", 1, 5, timedelta(minutes=5))


def test_sql_answers_null_for_a_taken_key(connection: Connection) -> None:
    enqueue_one = "SELECT background_enqueue('note', pool => 'system', dedupe_key => 'k', dedupe_active => %s)"
    first = scalar(connection, enqueue_one, False)
    assert first is not None
    assert scalar(connection, enqueue_one, False) is None
    connection.execute("UPDATE background_jobs SET status = 'running' WHERE id = %s", [first])
    assert scalar(connection, enqueue_one, True) is None
    assert scalar(connection, enqueue_one, False) is not None


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            "'typo'",
            errors.InvalidParameterValue,
            r"no worker has declared kind typo: if it is not misspelt, name its pool \(agent",
        ),
        ("'note', pool => 'gpu'", errors.CheckViolation, "pool"),
        ("'', pool => 'system'", errors.CheckViolation, "kind"),
        ("NULL, pool => 'system'", errors.NotNullViolation, "kind"),
        ("'note', NULL, pool => 'system'", errors.NotNullViolation, "payload"),
        ("'note', pool => 'system', priority => 7", errors.CheckViolation, "priority"),
        ("'note', pool => 'system', max_attempts => 0", errors.CheckViolation, "max_attempts"),
        ("'note', pool => 'system', timeout => '-1 s'", errors.CheckViolation, "timeout"),
        ("'note', pool => 'system', timeout => '8 days'", errors.CheckViolation, "timeout"),
        ("'note', pool => 'system', concurrency_key => ''", errors.CheckViolation, "concurrency_key"),
        ("'note', pool => 'system', dedupe_key => repeat('x', 501)", errors.CheckViolation, "dedupe_key"),
        (
            "'note', to_jsonb(repeat('x', 1048576)), pool => 'system'",
            errors.ProgramLimitExceeded,
            "the payload of kind note has 1048578 bytes; 1048576 are allowed",
        ),
    ],
)
def test_sql_says_what_is_wrong(connection: Connection, call: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        connection.execute(f"SELECT background_enqueue({call})")


def test_sql_does_not_take_a_swallowed_job_for_a_duplicate(connection: Connection) -> None:
    add(connection, id=1)
    with pytest.raises(errors.UniqueViolation):
        connection.execute("SELECT background_enqueue('note', pool => 'system')")


def test_sql_works_from_another_search_path(connection: Connection) -> None:
    connection.execute("SET search_path = pg_catalog")
    assert scalar(connection, "SELECT public.background_enqueue('note', pool => 'system')") == 1


def test_a_row_inserted_by_hand_is_a_valid_job_and_wakes_its_pool(url: str, db: Connection) -> None:
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN background_jobs")
        (later,) = add(db, run_after=datetime(2031, 1, 1, tzinfo=UTC), pool="agent")
        (job_id,) = (
            db.execute(
                "INSERT INTO background_jobs (kind, pool, payload) VALUES ('note', 'ingest', '{}') RETURNING id"
            ).fetchone()
            or ()
        )
        (notice,) = listener.notifies(timeout=10, stop_after=1)
        assert notice.payload == f"one {job_id} note"  # what is due later wakes nobody now
    assert job(db, later) == "queued"
    assert job(db, job_id, "status, attempt, claim, max_attempts, priority, timeout, blocked") == (
        "queued",
        0,
        0,
        5,
        1,
        timedelta(minutes=5),
        False,
    )


async def test_a_row_inserted_by_hand_with_absurd_values_does_not_stop_the_claims_of_others(
    db: Connection, store: JobStore
) -> None:
    worker = await hire(store)
    (odd,) = add(db, run_after="-infinity", payload="[1, null]", organization_id="\u2603" * 10)
    (never,) = add(db, run_after="infinity")
    (plain,) = add(db)
    assert {job.id for job in await worker.claim()} == {odd, plain}
    assert (await store.look(["note"])).waiting == []
    assert job(db, never) == "queued"
