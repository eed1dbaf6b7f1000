"""A document's status follows its job's, whoever changes that, in the same transaction."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from jobs import cancel, retry
from jobs.documents.reindex import reindex
from jobs.documents.submit import Submission
from jobs.documents.task import Source
from jobs.sql import statement
from supervisor.testing.waiting import wait_for
from tests.documents.conftest import Connection, Library

UNREADABLE = "jobs.documents.errors.UnreadableDocument"


def change(library: Library, job_id: int | None, status: str, error: Any = None, attempt: int = 1) -> None:
    library.db.execute(
        "UPDATE background_jobs SET status = %s, error = %s, attempt = %s WHERE id = %s",
        [status, None if error is None else json.dumps(error), attempt, job_id],
    )


@pytest.mark.parametrize(
    ("job", "document"),
    [("running", "PARSING"), ("succeeded", "READY"), ("dead", "FAILED"), ("cancelled", "FAILED")],
)
def test_each_status_of_the_job_has_one_of_the_document(library: Library, job: str, document: str) -> None:
    given = library.submit("a.txt", b"words")
    change(library, given.job_id, job)
    row = library.document(given.document_id)
    assert row.status == document
    assert (row.ready_at is not None) == (document == "READY")


def test_both_change_or_neither(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    with library.db.transaction(force_rollback=True):
        change(library, given.job_id, "running")
    assert library.document(given.document_id).status == "PENDING"


def test_a_failed_attempt_says_so_and_an_advance_clears_it(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    change(library, given.job_id, "running")
    change(library, given.job_id, "queued", {"type": "RuntimeError", "message": "no luck"})
    row = library.document(given.document_id)
    assert row.status == "PENDING"
    assert row.message == "Attempt 1 of 3 failed, will be retried. Reading the document failed: no luck"
    change(library, given.job_id, "running")
    assert library.document(given.document_id).message is None


def test_an_attempt_that_was_given_back_says_nothing(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    change(library, given.job_id, "running")
    change(library, given.job_id, "queued", attempt=0)
    assert library.document(given.document_id).message is None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"type": UNREADABLE, "message": "The file is empty."}, "The file is empty."),
        (
            {"type": "MemoryExceeded", "message": "peak 300 MB of 256 MB"},
            "The document needs more memory than a job may use: peak 300 MB of 256 MB",
        ),
        ({"type": "MemoryError", "message": "x"}, "The document needs more memory than a job may use: x"),
        ({"type": "TimedOut", "message": "600 s"}, "Reading the document took too long: 600 s"),
        ({"type": "SIGSEGV", "message": "ended by SIGSEGV"}, "Reading the document failed: ended by SIGSEGV"),
        ({"type": "Odd"}, "Reading the document failed: Odd"),
        ({}, "Reading the document failed: "),
        (None, "The job ended without saying why."),
    ],
)
def test_the_message_is_for_people(library: Library, error: Any, message: str) -> None:
    given = library.submit("a.txt", b"words")
    change(library, given.job_id, "dead", error)
    assert library.document(given.document_id).message == message


def test_an_operator_who_cancels_and_retries_the_job_moves_the_document(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    cancel(library.db, given.job_id, actor="ada", reason="wrong file")  # type: ignore[arg-type]
    row = library.document(given.document_id)
    assert (row.status, row.message) == ("FAILED", "The job was cancelled by ada: wrong file.")
    retry(library.db, given.job_id, actor="ada")  # type: ignore[arg-type]
    row = library.document(given.document_id)
    assert (row.status, row.message) == ("PENDING", None)


def test_an_old_job_that_is_retried_does_not_move_a_document_that_has_a_new_one(library: Library) -> None:
    first = library.submit("a.txt", b"words")
    change(library, first.job_id, "dead")
    second = library.submit("a.txt", b"words")
    change(library, second.job_id, "succeeded")
    retry(library.db, first.job_id, actor="ada")  # type: ignore[arg-type]
    row = library.document(first.document_id)
    assert (row.status, row.job_id) == ("READY", second.job_id)


@pytest.mark.parametrize(("job", "document"), [("queued", "FAILED"), ("running", "FAILED"), ("succeeded", "READY")])
def test_a_job_that_is_deleted_leaves_a_document_that_waits_for_nothing(
    library: Library, job: str, document: str
) -> None:
    given = library.submit("a.txt", b"words")
    change(library, given.job_id, job)
    library.db.execute("DELETE FROM background_jobs WHERE id = %s", [given.job_id])
    row = library.document(given.document_id)
    assert (row.status, row.job_id) == (document, None)


def test_the_database_refuses_what_is_no_hash(library: Library) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        library.db.execute("INSERT INTO background_documents (filename, sha256, size) VALUES ('a', 'ABC', 1)")


def advance(db: Connection, given: Submission, claim: int, stage: str = "CHUNKING") -> bool:
    """Whether a claim may write that a stage begins."""
    fence = {"job_id": given.job_id, "claim": claim}
    row = db.execute(
        statement("advance_document"), {"document_id": given.document_id, "stage": stage, **fence}
    ).fetchone()
    return row is not None


def test_a_stage_is_written_by_the_claim_that_runs_and_by_no_other(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    library.db.execute("UPDATE background_jobs SET status = 'running', claim = 2 WHERE id = %s", [given.job_id])
    assert not advance(library.db, given, 1)
    assert library.document(given.document_id).status == "PARSING"
    assert advance(library.db, given, 2)
    assert library.document(given.document_id).status == "CHUNKING"
    change(library, given.job_id, "queued")
    assert not advance(library.db, given, 2, "EMBEDDING")
    assert library.document(given.document_id).status == "PENDING"


def test_a_stage_that_meets_the_end_of_its_job_waits_for_it_and_writes_nothing(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    library.db.execute("UPDATE background_jobs SET status = 'running', claim = 1 WHERE id = %s", [given.job_id])
    with psycopg.connect(library.url) as ending, ThreadPoolExecutor(1) as threads:
        ending.execute("UPDATE background_jobs SET status = 'dead' WHERE id = %s", [given.job_id])
        with psycopg.connect(library.url, autocommit=True) as other:
            late = threads.submit(advance, other, given, 1)
            wait_for(
                lambda: library.db.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall(),
                "a stage that waits",
            )
            ending.commit()
            assert late.result(20) is False
    assert library.document(given.document_id).status == "FAILED"


def test_a_reindex_from_a_snapshot_begins_with_embedding(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    change(library, given.job_id, "succeeded")
    library.db.execute("UPDATE background_documents SET edition = '1-1'")
    with library.db.transaction():
        job_id = reindex(library.db, given.document_id, Source.SNAPSHOT)
    change(library, job_id, "running")
    assert library.document(given.document_id).status == "EMBEDDING"


@pytest.mark.parametrize(("ending", "cleaned"), [("queued", 1), ("dead", 1), ("cancelled", 1), ("succeeded", 0)])
def test_every_end_of_an_attempt_that_is_no_success_asks_for_a_clean_up(
    library: Library, ending: str, cleaned: int
) -> None:
    given = library.submit("a.txt", b"words")
    change(library, given.job_id, "running")
    change(library, given.job_id, ending)
    found = library.db.execute(
        "SELECT payload ->> 'document_id', pool FROM background_jobs WHERE kind = 'clean-up-document'"
    ).fetchall()
    assert found == [(str(given.document_id), "system")] * cleaned


@pytest.mark.parametrize(
    ("stage", "words"),
    [("PARSING", "Reading"), ("CHUNKING", "Chunking"), ("EMBEDDING", "Embedding"), ("INDEXING", "Indexing")],
)
def test_the_message_names_the_stage_that_failed(library: Library, stage: str, words: str) -> None:
    given = library.submit("a.txt", b"words")
    change(library, given.job_id, "running")
    assert advance(library.db, given, 0, stage)
    change(library, given.job_id, "queued", {"type": "EmbeddingError", "message": "no answer"})
    message = library.document(given.document_id).message
    assert message == f"Attempt 1 of 3 failed, will be retried. {words} the document failed: no answer"
