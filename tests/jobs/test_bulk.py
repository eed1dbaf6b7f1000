"""Many jobs at once: each by the rules of one, each batch with one audit entry, in the caller's transaction."""

from threading import Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from jobs import ControlError
from jobs.bulk import Done, cancel_matching, retry_matching
from jobs.finding import JobFilter
from tests.jobs.callers import CALLERS, settle
from tests.jobs.lab import Connection, add, job, scalar
from tests.jobs.test_control import CONNECTIONS, audit

DEAD = JobFilter(status="dead", kind="note")


@pytest.mark.parametrize("connection", CONNECTIONS)
async def test_every_connection_is_served_in_its_own_transaction(
    connection: str, url: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    dead, queued = add(db, 3, status="dead", attempt=5), add(db, 2, kind="letter")
    add(db, status="dead", kind="letter")
    async with CALLERS[connection](url) as held:
        assert await settle(retry_matching(held.db, DEAD, actor="ana", reason="disk was full")) == Done(3, {}, None)
        wanted = JobFilter(status="queued", kind="letter")
        assert await settle(cancel_matching(held.db, wanted, actor="bo")) == Done(2, {}, None)
        assert audit(db) == []
        await settle(held.commit())
    assert [job(db, each, "status, attempt") for each in dead] == [("queued", 0)] * 3
    assert [job(db, each, "status, error->>'message'") for each in queued] == [("cancelled", "cancelled by bo")] * 2
    newest_first = [sorted(dead), sorted(queued)]
    assert audit(db) == [
        (
            *("ana", "retry", "3 jobs", "disk was full"),
            {"filter": DEAD.given(), "changed": 3, "refused": {}, "ids": newest_first[0]},
        ),
        (
            *("bo", "cancel", "2 jobs", None),
            {"filter": wanted.given(), "changed": 2, "refused": {}, "ids": newest_first[1]},
        ),
    ]


def test_batches_go_on_where_the_last_one_ended(db: Connection) -> None:
    add(db, 25, status="dead")
    before, done = None, []
    while True:
        done.append(retry_matching(db, DEAD, actor="ana", before=before, limit=10))
        if (before := done[-1].next_before) is None:
            break
    assert [each.changed for each in done] == [10, 10, 5]
    assert scalar(db, "SELECT count(*) FROM background_jobs WHERE status = 'queued'") == 25
    assert len(audit(db)) == 3


def test_of_several_copies_of_a_dedupe_key_one_is_retried(db: Connection) -> None:
    add(db, 3, status="dead", dedupe_key="d")
    add(db, status="dead", dedupe_key="e")
    add(db, status="queued", dedupe_key="e")
    done = retry_matching(db, DEAD, actor="ana")
    assert (done.changed, done.refused) == (1, {"a job with its dedupe key is queued": 3})


def test_a_copy_that_is_queued_meanwhile_forbids_the_retry_and_breaks_nothing(url: str, db: Connection) -> None:
    """The copy is committed while the retry waits for it at the unique index."""
    dead = add(db, status="dead", dedupe_key="d") + add(db, status="dead")
    with psycopg.connect(url) as other, psycopg.connect(url, autocommit=True) as retrying:
        add(other, status="queued", dedupe_key="d")
        retrying.execute("SET lock_timeout = '10s'")
        done: list[Any] = []
        thread = Thread(target=lambda: done.append(retry_matching(retrying, DEAD, actor="ana")))
        thread.start()
        while not scalar(db, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'",
                         retrying.info.backend_pid):  # fmt: skip
            assert thread.is_alive()
        other.commit()
        thread.join(10)
    assert (done[0].changed, done[0].refused) == (1, {"a job with its dedupe key is queued": 1})
    assert [job(db, each) for each in dead] == ["dead", "queued"]


def test_what_somebody_holds_is_left_out_and_counted(url: str, db: Connection) -> None:
    held, free = add(db, 2, status="dead")
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM background_jobs WHERE id = %s FOR UPDATE", [held])
        done = retry_matching(db, DEAD, actor="ana")
    assert (done.changed, done.refused) == (1, {"somebody holds it": 1})
    assert (job(db, held), job(db, free)) == ("dead", "queued")


def test_workers_of_running_jobs_are_asked(db: Connection) -> None:
    running = add(db, 3, status="running", worker_id=uuid4())
    done = cancel_matching(db, JobFilter(status="running"), actor="ana")
    assert done.changed == 3
    assert [job(db, each, "status, cancel_requested_at IS NULL") for each in running] == [("running", False)] * 3


@pytest.mark.parametrize(
    ("act", "status"),
    [
        (retry_matching, None),
        (retry_matching, "succeeded"),
        (retry_matching, "queued"),
        (cancel_matching, None),
        (cancel_matching, "dead"),
    ],
)
def test_a_filter_that_does_not_say_which_jobs_is_refused(act: Any, status: str | None, db: Connection) -> None:
    with pytest.raises(ControlError, match="name one of these as the status"):
        act(db, JobFilter(status=status), actor="ana")
    with pytest.raises(ControlError, match="an actor is needed"):
        act(db, JobFilter(status="dead" if act is retry_matching else "queued"), actor="")


def test_nothing_to_do_is_not_audited(db: Connection) -> None:
    assert retry_matching(db, DEAD, actor="ana") == Done(0, {}, None)
    assert audit(db) == []
