"""A document's life, broken at every boundary of its stages: in the end it is what an undisturbed run makes of it."""

import signal
from contextlib import suppress
from io import BytesIO
from typing import Any

import psutil
import pytest
from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen import canvas

from jobs.documents.keys import edition_of
from jobs.documents.submit import Submission
from jobs.failpoints import OF_DOCUMENTS, Failpoint
from supervisor.testing.processes import WorkerProcess
from supervisor.testing.waiting import wait_for
from tests.documents.conftest import Library
from tests.documents.test_ingest import expected_chunks


def illustrated_pdf() -> bytes:
    """Two pages of text, each with an image of its own."""
    written = BytesIO()
    pages = canvas.Canvas(written, invariant=1)
    for number, text in enumerate(("The analytical engine weaves.", "The Jacquard loom weaves.")):
        pages.drawString(72, 700, text)
        image = Image.effect_noise((64, 64), 40 + number)
        pages.drawImage(ImageReader(image), 72, 500)
        pages.showPage()
    pages.save()
    return written.getvalue()


CONTENT = illustrated_pdf()
RETRY_LATER = {"WORKER_RETRY_DELAY_SECONDS": "1", "WORKER_INGEST_CONCURRENCY": "1"}
STAGE_AT = {
    Failpoint.DOCUMENT_PARSING: "PARSING",
    Failpoint.DOCUMENT_CHUNKING: "CHUNKING",
    Failpoint.DOCUMENT_ASSETS: "CHUNKING",
    Failpoint.DOCUMENT_SNAPSHOT: "CHUNKING",
    Failpoint.DOCUMENT_EMBEDDING: "EMBEDDING",
    Failpoint.DOCUMENT_INDEXING: "INDEXING",
    Failpoint.DOCUMENT_WRITTEN: "INDEXING",
    Failpoint.DOCUMENT_READY: "READY",
}


def whole(library: Library, given: Submission) -> None:
    """The document is READY, with the chunks of an undisturbed run, and nothing of any other run is stored."""
    (row,) = library.settled(given)
    assert (row.status, row.message) == ("READY", None)
    assert library.chunks(row.id) == expected_chunks("a.pdf", CONTENT, row.id)
    wait_for(lambda: not library.cleaning(), "everything cleaned up")
    job_id, claim = library.job(row.job_id, "id, claim")
    assert library.stored(row.id) == library.expected_objects(row.id, edition_of(job_id, claim))
    assert all(key.startswith(f"documents/{row.id}/") for key in library.stored())


def stopped_child(worker: WorkerProcess, given: Submission) -> psutil.Process | None:
    for process in worker.descendants():
        with suppress(psutil.NoSuchProcess):
            named = f"ingest-document job {given.job_id} " in " ".join(process.cmdline())
            if named and process.status() == psutil.STATUS_STOPPED:
                return process
    return None


def test_an_undisturbed_run_stores_an_original_a_snapshot_and_nothing_else_of_anybody(library: Library) -> None:
    library.start()
    whole(library, library.submit("a.pdf", CONTENT))


def test_every_boundary_has_its_place(library: Library) -> None:
    assert set(STAGE_AT) == OF_DOCUMENTS


@pytest.mark.parametrize("place", STAGE_AT)
def test_a_child_that_is_killed_at_a_boundary_is_followed_by_one_that_does_it_all(
    library: Library, place: Failpoint
) -> None:
    given = library.submit("a.pdf", CONTENT)
    with library.worker(WORKER_FAILPOINTS=f"{place}:stop", **RETRY_LATER) as worker:
        child = wait_for(lambda: stopped_child(worker, given), f"a child that stands at {place}")
        assert child is not None
        row = library.document(given.document_id)
        assert row.status == STAGE_AT[place]
        if row.status != "READY":
            assert library.chunks(row.id) == [], "nothing partial is ever seen"
        child.send_signal(signal.SIGKILL)
        if row.status != "READY":
            wait_for(lambda: library.verdicts(given.job_id) == ["killed"], "its verdict")
            row = library.document(given.document_id)
            assert row.message is not None
            assert row.message.startswith("Attempt 1 of 3 failed, will be retried. ")
            assert row.status == "PENDING"
        worker.stop()
    library.start()
    whole(library, given)
    assert library.job(given.job_id) == ("succeeded", 1 if place is Failpoint.DOCUMENT_READY else 2)


@pytest.mark.parametrize("place", STAGE_AT)
def test_a_worker_that_is_killed_between_stages_is_followed_by_one_that_does_it_all(
    library: Library, place: Failpoint
) -> None:
    given = library.submit("a.pdf", CONTENT)
    with library.worker(WORKER_FAILPOINTS=f"{place}:stop", **RETRY_LATER) as worker:
        wait_for(lambda: stopped_child(worker, given), f"a child that stands at {place}")
        worker.signal(signal.SIGKILL)
        worker.wait()
    library.start()
    whole(library, given)
    if place is not Failpoint.DOCUMENT_READY:
        assert library.verdicts(given.job_id) == ["worker_lost"]


def test_a_worker_that_vanishes_on_the_last_attempt_leaves_a_failed_document(library: Library) -> None:
    given = library.submit("a.pdf", CONTENT)
    library.db.execute("UPDATE background_jobs SET max_attempts = 1 WHERE id = %s", [given.job_id])
    with library.worker(WORKER_FAILPOINTS=f"{Failpoint.DOCUMENT_SNAPSHOT}:stop") as worker:
        wait_for(lambda: stopped_child(worker, given), "a child that has stored its snapshot")
        worker.signal(signal.SIGKILL)
        worker.wait()
    library.start()
    (row,) = library.settled(given)
    assert row.status == "FAILED"
    assert row.message is not None
    assert "the lease of worker" in row.message
    wait_for(lambda: not library.cleaning(), "everything cleaned up")
    assert library.stored() == [f"documents/{row.id}/original"]


@pytest.mark.parametrize(
    "place", [Failpoint.DOCUMENT_PARSING, Failpoint.DOCUMENT_SNAPSHOT, Failpoint.DOCUMENT_INDEXING]
)
def test_an_attempt_that_lost_its_lease_changes_neither_the_document_nor_what_the_next_one_wrote(
    library: Library, place: Failpoint
) -> None:
    given = library.submit("a.pdf", CONTENT)
    with library.worker(WORKER_FAILPOINTS=f"{place}:stop") as worker:
        late = wait_for(lambda: stopped_child(worker, given), f"a child that stands at {place}")
        assert late is not None
        worker.signal(signal.SIGSTOP)  # and its lease runs out, while its child stands there
        library.start()
        whole(library, given)
        before = library.stored(), library.chunks(given.document_id), library.document(given.document_id)
        late.send_signal(signal.SIGCONT)
        wait_for(lambda: not late.is_running() or late.status() == psutil.STATUS_ZOMBIE, "the end of the late child")
    assert (library.stored(), library.chunks(given.document_id), library.document(given.document_id)) == before


def test_whatever_moves_the_job_the_document_never_disagrees(library: Library) -> None:
    """Watched from outside, in one snapshot each: through a kill, a retry and the end."""
    agreed = {
        "queued": {"PENDING"},
        "running": {"PARSING", "CHUNKING", "EMBEDDING", "INDEXING"},
        "succeeded": {"READY"},
        "dead": {"FAILED"},
    }
    library.start(WORKER_FAILPOINTS=f"{Failpoint.DOCUMENT_WRITTEN}:kill", WORKER_RETRY_DELAY_SECONDS="0.05")
    given = library.submit("a.pdf", CONTENT)
    seen: set[tuple[Any, ...]] = set()

    def look() -> bool:
        row = library.db.execute(
            "SELECT job.status, document.status FROM background_documents AS document "
            "JOIN background_jobs AS job ON job.id = document.job_id"
        ).fetchone()
        assert row is not None
        seen.add(row)
        return row[0] in ("succeeded", "dead")

    wait_for(look, "the end of the job", 60)
    assert library.job(given.job_id) == ("dead", 3)
    assert {pair for pair in seen if pair[1] not in agreed[pair[0]]} == set()


def test_a_store_that_does_not_answer_is_waited_for(library: Library) -> None:
    """Nothing is embedded or indexed where the snapshot cannot be written."""
    given = library.submit("a.pdf", CONTENT)
    objects = library.folder / "objects" / "documents" / str(given.document_id)
    with library.worker(WORKER_FAILPOINTS=f"{Failpoint.DOCUMENT_ASSETS}:stop", **RETRY_LATER) as worker:
        child = wait_for(lambda: stopped_child(worker, given), "a child that is about to store its snapshot")
        assert child is not None
        job_id, claim = library.job(given.job_id, "id, claim")
        edition = objects / edition_of(job_id, claim)
        for path in sorted(edition.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        if edition.exists():
            edition.rmdir()
        edition.write_bytes(b"in the way")
        child.send_signal(signal.SIGCONT)
        wait_for(lambda: library.verdicts(given.job_id) == ["failed"], "its verdict")
        row = library.document(given.document_id)
        assert row.message is not None
        assert "Chunking the document failed: the object store" in row.message
        assert library.chunks(row.id) == []
        worker.stop()
    library.start()
    whole(library, given)
