"""Documents through a real worker: parsed in a child, written once, and judged when they cannot be read."""

import signal
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import psutil
import psycopg
import pytest

from jobs.documents.submit import Submission
from scripts import samples
from supervisor.testing.processes import WorkerProcess
from supervisor.testing.waiting import wait_for
from tests.documents.conftest import Library, chunks_of
from tests.documents.hostile import encrypted_pdf

SECTIONS = [("Engines", ["The analytical engine weaves algebraic patterns."]), ("Looms", ["The loom weaves flowers."])]
PAGES = [["Engines", "The analytical engine weaves."], ["Looms", "The Jacquard loom weaves."]]


def long_pdf(pages: int) -> bytes:
    """Takes the parser some 10 ms a page."""
    return samples.pdf([[f"Page {page}", *(f"line {line} of {page}" for line in range(45))] for page in range(pages)])


def hungry_sheet() -> bytes:
    """Under 2 MB as a file, a few hundred when it is read."""
    return samples.xlsx({"Numbers": ([row, row * 7919 % 104729, f"row {row % 97}"] for row in range(300_000))})


def child_of(worker: WorkerProcess, given: Submission) -> psutil.Process | None:
    for process in worker.descendants():
        with suppress(psutil.NoSuchProcess):
            if f"ingest-document job {given.job_id} " in " ".join(process.cmdline()):
                return process
    return None


def expected_chunks(filename: str, content: bytes, document_id: UUID) -> list[tuple[object, ...]]:
    return [
        (each.id, each.position, each.page, each.heading, each.text)
        for each in chunks_of(filename, content, document_id)
    ]


def test_documents_of_many_formats_become_ready_with_their_chunks(library: Library) -> None:
    files = {
        "a.pdf": samples.pdf(PAGES),
        "a.docx": samples.docx(SECTIONS),
        "a.pptx": samples.pptx(SECTIONS),
        "a.xlsx": samples.xlsx({"Sheet": [["Engine", 1837]]}),
        "a.epub": samples.epub("Book", SECTIONS),
        "a.html": samples.html("Page", SECTIONS),
        "a.eml": samples.eml("Looms", "The loom weaves flowers."),
        "a.md": samples.markdown("Notes", SECTIONS),
        "a.txt": "Grüße aus Köln".encode("cp1252"),
    }
    library.start()
    given = [library.submit(name, content) for name, content in files.items()]
    for row, (name, content) in zip(library.settled(*given), files.items(), strict=True):
        assert (row.status, row.message) == ("READY", None), name
        chunks = library.chunks(row.id)
        assert chunks == expected_chunks(name, content, row.id)
        assert row.chunks == len(chunks)
        assert row.pages == (2 if name == "a.pdf" else None)
        assert row.mime_type is not None
        status, result = library.job(row.job_id, "status, result")
        assert 20 < result.pop("peak_memory_mb") < 256
        assert (status, result) == ("succeeded", {"document_id": str(row.id), "pages": row.pages, "chunks": row.chunks})


def test_the_same_file_twice_is_parsed_once(library: Library) -> None:
    library.start()
    first = library.submit("a.pdf", samples.pdf(PAGES))
    library.settled(first)
    second = library.submit("b.pdf", samples.pdf(PAGES))
    assert (second.document_id, second.status, second.is_queued) == (first.document_id, "READY", False)
    assert len(library.chunks(first.document_id)) == 2


def test_a_job_that_runs_again_writes_the_same_rows(library: Library) -> None:
    library.start()
    given = library.submit("a.pdf", samples.pdf(PAGES))
    library.settled(given)
    before = library.chunks(given.document_id)
    library.db.execute("UPDATE background_jobs SET status = 'queued' WHERE id = %s", [given.job_id])
    library.settled(given)
    assert library.job(given.job_id) == ("succeeded", 2)
    assert library.chunks(given.document_id) == before


@pytest.mark.parametrize(
    ("filename", "content", "message"),
    [
        ("locked.pdf", encrypted_pdf(), "The document is protected by a password."),
        ("blank.md", b"\xef\xbb\xbf \n", "No text was found in the document. Scanned pages and pictures are not read."),
        (
            "garbage.pdf",
            b"%PDF-" + b"\xff\xfe\xfd" * 100,
            "The document is damaged, or not of the type that its name says.",
        ),
        ("scan.pdf", samples.pdf([[]]), "No text was found in the document. Scanned pages and pictures are not read."),
    ],
)
def test_a_document_that_cannot_be_read_is_dead_at_once_and_says_why(
    library: Library, filename: str, content: bytes, message: str
) -> None:
    library.start()
    given = library.submit(filename, content)
    (row,) = library.settled(given)
    assert (row.status, row.message) == ("FAILED", message)
    assert library.job(row.job_id) == ("dead", 1)
    assert library.verdicts(row.job_id) == ["failed"]
    assert library.chunks(row.id) == []


def test_a_child_that_is_killed_while_it_parses_is_replaced_and_leaves_exactly_one_set_of_chunks(
    library: Library,
) -> None:
    content = long_pdf(200)
    worker = library.start()
    given = library.submit("long.pdf", content)

    def parsing() -> psutil.Process | None:
        child = child_of(worker, given)
        # Its store and its parser start threads; to fetch takes a moment, to parse seconds.
        return child if child is not None and child.num_threads() > 1 else None

    child = wait_for(parsing, "a child that parses")
    assert child is not None
    child.send_signal(signal.SIGKILL)
    (row,) = library.settled(given)
    assert library.verdicts(row.job_id) == ["killed"]
    assert (row.status, library.job(row.job_id)) == ("READY", ("succeeded", 2))
    assert library.chunks(row.id) == expected_chunks("long.pdf", content, row.id)


def test_a_child_that_is_killed_while_it_writes_leaves_nothing_until_the_next_one_has_written_all(
    library: Library,
) -> None:
    worker = library.start()
    with psycopg.connect(library.url) as holder:
        holder.execute("LOCK TABLE background_document_chunks IN SHARE MODE")
        given = library.submit("a.pdf", samples.pdf(PAGES))
        child = wait_for(lambda: child_of(worker, given), "a child")
        assert child is not None
        wait_for(lambda: waits_for_lock(library), "a child that writes")
        child.send_signal(signal.SIGKILL)
        wait_for(lambda: library.verdicts(given.job_id), "its verdict")
    (row,) = library.settled(given)
    assert row.status == "READY"
    assert library.chunks(row.id) == expected_chunks("a.pdf", samples.pdf(PAGES), row.id)


def waits_for_lock(library: Library) -> bool:
    return bool(
        library.db.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'oomph ingest' AND wait_event_type = 'Lock'"
        ).fetchall()
    )


def test_a_document_that_needs_too_much_memory_costs_its_attempts_and_nothing_else(library: Library) -> None:
    worker = library.start(WORKER_INGEST_MEMORY_MB="64")
    hungry = library.submit("hungry.xlsx", hungry_sheet())
    small = [library.submit(f"{number}.md", b"# Note\n\nnumber %d" % number) for number in range(5)]
    row, *others = library.settled(hungry, *small, seconds=90)
    assert library.verdicts(row.job_id) == ["memory_exceeded"] * 3
    assert library.job(row.job_id) == ("dead", 3)
    assert row.status == "FAILED"
    assert row.message is not None
    assert row.message.startswith("The document needs more memory than a job may use: ")
    assert "64 MB" in row.message
    assert [each.status for each in others] == ["READY"] * 5
    assert library.chunks(row.id) == []
    assert worker.process.poll() is None


def test_with_more_memory_the_same_document_is_read(library: Library) -> None:
    library.start(WORKER_INGEST_MEMORY_MB="600", WORKER_INGEST_CONCURRENCY="1")
    given = library.submit("hungry.xlsx", hungry_sheet())
    (row,) = library.settled(given, seconds=90)
    assert (row.status, row.message) == ("READY", None)
    assert row.chunks is not None
    assert row.chunks > 1000


def test_a_worker_with_another_object_store_says_so(library: Library, tmp_path: Path) -> None:
    library.start(OBJECT_STORE_URL=(tmp_path / "elsewhere").as_uri())
    (row,) = library.settled(library.submit("a.txt", b"words"))
    assert row.status == "FAILED"
    assert row.message is not None
    assert "must use the same OBJECT_STORE_URL" in row.message


def test_a_job_whose_document_has_another_job_changes_nothing(library: Library) -> None:
    first = library.submit("a.txt", b"words")
    library.db.execute("UPDATE background_jobs SET status = 'dead' WHERE id = %s", [first.job_id])
    second = library.submit("a.txt", b"words")
    library.db.execute("UPDATE background_jobs SET status = 'succeeded' WHERE id = %s", [second.job_id])
    library.db.execute("UPDATE background_jobs SET status = 'queued', attempt = 0 WHERE id = %s", [first.job_id])
    library.start()
    wait_for(lambda: library.job(first.job_id)[0] == "dead", "the old job dead again")
    error = library.job(first.job_id, "error ->> 'message'")[0]
    assert f"belongs to job {second.job_id}" in error
    assert library.document(first.document_id).status == "READY"


def test_a_job_without_a_document_is_dead_at_once(library: Library) -> None:
    library.start()
    row = library.db.execute(
        "SELECT background_enqueue('ingest-document', "
        "'{\"document_id\": \"00000000-0000-0000-0000-000000000000\"}', pool => 'ingest')"
    ).fetchone()
    assert row is not None
    wait_for(lambda: library.job(row[0])[0] == "dead", "a dead job")
    assert "does not exist" in library.job(row[0], "error ->> 'message'")[0]
