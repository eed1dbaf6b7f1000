"""`oomph ingest` and `oomph reindex`: documents on their way, followed until they have arrived."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from supervisor.commands.database import target_of
from supervisor.commands.files import FoundFile, Skipped, find_files
from supervisor.commands.options import AsJson, DatabaseUrl, EmbeddedFolder, refuse
from supervisor.commands.output import Column, print_json, print_table
from supervisor.commands.progress import progress
from supervisor.commands.waiting import nobody_knew, wait_for_documents
from supervisor.errors import CommandError
from supervisor.target import open_connection

if TYPE_CHECKING:
    import psycopg

    from jobs.documents.objects import Objects
    from jobs.documents.reports import DocumentRow

    Connection = psycopg.Connection[tuple[Any, ...]]

STATEMENT_TIMEOUT = "30s"
BUSY = "Somebody else is submitting the same content, or deleting it, and did not finish in time."
MAX_COLLECTION_CHARS = 100
MAX_SHOWN = 1_000  # of more, only those are shown that went wrong: nobody reads the others, and they take a minute

WENT_WRONG = {"FAILED", "SKIPPED", "REFUSED", "UNREADABLE", "DELETED"}

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until every document is READY or FAILED.")]


class Beginning(StrEnum):
    """Where `oomph reindex` begins."""

    PARSE = "parse"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of one file or document.

    `status` is the document's, or SKIPPED for a file that was left out, REFUSED where it could not be done,
    UNREADABLE where it could not be read, or DELETED.
    """

    file: str
    status: str
    document_id: UUID | None = None
    job_id: int | None = None
    pages: int | None = None
    chunks: int | None = None
    message: str | None = None


def ingest(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files, and folders with all that is in them.")],
    wait: Wait = True,
    collection: Annotated[
        str, typer.Option("--collection", metavar="NAME", help="Where the documents go.")
    ] = "default",
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Submit files as documents and follow how they are read.

    Each document and its job are written in one transaction. Hidden files in folders are left out, and so are files
    over DOCUMENT_MAX_MB. The same content twice is one document of a collection; one that failed is tried again. The
    originals go to OBJECT_STORE_URL, by default the folder oomph-objects here; the worker needs the same. With --wait
    the status is 0 only if everything became READY.
    """
    from jobs.extras import how_to_install

    try:
        from jobs.documents.objects import Objects, StoreError
    except ImportError as error:
        raise CommandError(f"documents need {error.name}: {how_to_install('documents')}") from error
    from jobs.documents.intake import max_document_bytes
    from jobs.documents.store_url import store_folder

    if not 1 <= len(collection) <= MAX_COLLECTION_CHARS or not collection.isprintable():
        refuse("--collection", f"1 to {MAX_COLLECTION_CHARS} printable characters")
    try:
        objects = Objects()
        found, skipped = find_files(paths, max_document_bytes(), store_folder(objects.url))
    except (StoreError, ValueError) as error:
        raise CommandError(str(error)) from error
    if not found and not skipped:
        raise CommandError(f"there are no files in {', '.join(str(path) for path in paths)}")
    reports = [FileReport(name, "SKIPPED", message=why) for name, why in skipped]
    with target_of(database, embedded, create=True) as target, open_connection(target) as connection:
        connection.commit()
        connection.autocommit = True
        submitted, trouble = _submit_all(connection, objects, found, collection, reports)
        trouble = _follow(connection, submitted, reports, target.named, wait=wait and trouble is None) or trouble
    _conclude(reports, trouble, as_json=as_json, wait=wait)


def reindex(
    ids: Annotated[list[UUID] | None, typer.Argument(metavar="ID", help="Which documents.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="All documents that nothing works on.")] = False,
    begin: Annotated[
        Beginning,
        typer.Option("--from", metavar="parse|snapshot", help="From the originals, or from the chunks as they are."),
    ] = Beginning.PARSE,
    collection: Annotated[
        str | None, typer.Option("--collection", metavar="NAME", help="With --all: only of this.", show_default=False)
    ] = None,
    wait: Wait = True,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Make the index of documents anew.

    Each keeps its id, and is found by its earlier index until the new one is READY. From a snapshot nothing is parsed:
    enough for another embedding model. With --wait the status is 0 only if everything became READY.
    """
    if bool(ids) == every:
        refuse("ID", "name documents, or --all of them")
    with target_of(database, embedded) as target, open_connection(target) as connection:
        connection.commit()
        connection.autocommit = True
        reports: list[FileReport] = []
        submitted: list[FileReport] = []
        with _interruption_told(submitted), progress("reindexing", len(ids) if ids else None) as step:
            for submission in _reindex_all(connection, ids, collection, begin, reports):
                submitted.append(submission)
                step(1)
        trouble = _follow(connection, submitted, reports, target.named, wait=wait)
    _conclude(reports, trouble, as_json=as_json, wait=wait)


def _submit_all(
    connection: "Connection",
    objects: "Objects",
    found: list[FoundFile],
    collection: str,
    reports: list[FileReport],
) -> tuple[list[FileReport], str | None]:
    """What was submitted, and why the rest was not, where the store failed. The others are added to `reports`."""
    import psycopg

    from jobs.documents.errors import UnreadableDocument
    from jobs.documents.objects import StoreError
    from jobs.documents.submit import Submission, submit

    submitted: list[FileReport] = []
    with _interruption_told(submitted), progress("storing", len(found)) as step:
        for place, file in enumerate(found):
            step(1)
            try:
                with file.opened() as content, connection.transaction():
                    connection.execute("SELECT set_config('statement_timeout', %s, true)", [STATEMENT_TIMEOUT])
                    given: Submission = submit(
                        connection, file.path.name, content, collection=collection, objects=objects
                    )
            except OSError as error:
                reports.append(FileReport(file.shown, "UNREADABLE", message=error.strerror))
            except Skipped as skipped:
                reports.append(FileReport(file.shown, "SKIPPED", message=str(skipped)))
            except UnreadableDocument as refused:
                reports.append(FileReport(file.shown, "REFUSED", message=str(refused)))
            except psycopg.errors.QueryCanceled:
                reports.append(FileReport(file.shown, "REFUSED", message=BUSY))
            except StoreError as error:
                return submitted, f"{error}; {len(found) - place} files were not submitted, the first is {file.shown}"
            else:
                submitted.append(FileReport(file.shown, given.status, given.document_id, given.job_id))
    return submitted, None


def _reindex_all(
    connection: "Connection",
    ids: list[UUID] | None,
    collection: str | None,
    begin: Beginning,
    reports: list[FileReport],
) -> Iterator[FileReport]:
    import psycopg

    from jobs.documents.errors import DocumentError
    from jobs.documents.reindex import reindex as reindex_document
    from jobs.documents.reindex import settled_documents
    from jobs.documents.task import Source

    for document_id in ids or settled_documents(connection, collection):
        try:
            with connection.transaction():
                connection.execute("SELECT set_config('statement_timeout', %s, true)", [STATEMENT_TIMEOUT])
                job_id = reindex_document(connection, document_id, Source(begin))
        except DocumentError as error:
            reports.append(FileReport(str(document_id), "REFUSED", document_id, message=str(error)))
        except psycopg.errors.QueryCanceled:
            reports.append(FileReport(str(document_id), "REFUSED", document_id, message=BUSY))
        else:
            yield FileReport(str(document_id), "PENDING", document_id, job_id)


@contextmanager
def _interruption_told(submitted: list[FileReport]) -> Iterator[None]:
    """Of Ctrl-C: what is submitted by then stays so."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        typer.echo(
            f"Interrupted; {len(submitted)} documents are submitted, and go on wherever a worker ingests documents: "
            "`oomph documents list` shows them",
            err=True,
        )
        raise typer.Exit(130) from interrupt  # 128 and the number of the signal


def _follow(
    connection: "Connection", submitted: list[FileReport], reports: list[FileReport], database: str, *, wait: bool
) -> str | None:
    """Add to `reports` what became of what was submitted; why waiting had no sense, if it had none."""
    ids = list(dict.fromkeys(report.document_id for report in submitted if report.document_id is not None))
    # Those that were READY before are no work of this run, and would be in its rate.
    waiting = list(dict.fromkeys(each.document_id for each in submitted if each.document_id and each.status != "READY"))
    with _interruption_told(submitted):
        trouble = wait_for_documents(connection, waiting, database) if wait and waiting else None
        ended = list(_with_documents(connection, submitted, ids))
    reports += ended
    return trouble or nobody_knew([each.message for each in ended if each.status == "FAILED"], database)


def _with_documents(connection: "Connection", submitted: list[FileReport], ids: list[UUID]) -> Iterator[FileReport]:
    from jobs.documents.reports import show_documents

    documents: dict[UUID, DocumentRow] = {row.id: row for row in show_documents(connection, ids)} if ids else {}
    for report in submitted:
        assert report.document_id is not None
        row = documents.get(report.document_id)
        if row is None:
            yield FileReport(report.file, "DELETED", report.document_id, report.job_id)
        else:
            shown = row.filename if report.file == str(row.id) else report.file
            yield FileReport(shown, row.status, row.id, row.job_id, row.pages, row.chunks, row.message)


def _conclude(reports: list[FileReport], trouble: str | None, *, as_json: bool, wait: bool) -> None:
    if reports or trouble is None:
        _print_reports(reports, as_json=as_json)
    if trouble is not None:
        raise CommandError(trouble)
    if any(report.status in WENT_WRONG or (wait and report.status != "READY") for report in reports):
        raise typer.Exit(1)


def _print_reports(reports: list[FileReport], *, as_json: bool) -> None:
    if as_json:
        print_json(reports)
        return
    columns: list[Column[FileReport]] = [
        Column("FILE", lambda report: report.file),
        Column("STATUS", lambda report: report.status),
        Column("PAGES", lambda report: report.pages, right=True),
        Column("CHUNKS", lambda report: report.chunks, right=True),
        Column("JOB", lambda report: report.job_id, right=True),
        Column("MESSAGE", lambda report: report.message, flexible=True, of=lambda report: report.file),
    ]
    shown = reports if len(reports) <= MAX_SHOWN else [report for report in reports if report.status in WENT_WRONG]
    if shown or not reports:
        print_table(columns, sorted(shown, key=lambda report: report.file), empty="nothing was submitted")
    counts: dict[str, int] = {}
    for report in reports:
        counts[report.status] = counts.get(report.status, 0) + 1
    typer.echo(", ".join(f"{count} {status}" for status, count in sorted(counts.items())), err=True)
