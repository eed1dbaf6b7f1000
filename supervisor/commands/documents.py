"""`oomph ingest` and `oomph search`: files into the database, and what was found in them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from supervisor.commands.database import connected, target_of
from supervisor.commands.files import FoundFile, Skipped, find_files
from supervisor.commands.options import AsJson, DatabaseUrl, EmbeddedFolder, refuse
from supervisor.commands.output import Column, print_json, print_table, printable
from supervisor.commands.waiting import wait_for_documents
from supervisor.errors import CommandError
from supervisor.target import open_connection

if TYPE_CHECKING:
    import psycopg

    from jobs.documents.originals import Originals
    from jobs.documents.reports import DocumentRow
    from jobs.documents.search import Hit

    Connection = psycopg.Connection[tuple[Any, ...]]

STATEMENT_TIMEOUT = "30s"


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of one file.

    `status` is the document's, or SKIPPED, or UNREADABLE where the file could not be read, or DELETED.
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
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every document is READY or FAILED.")
    ] = True,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Submit files as documents and follow how they are read.

    Each document and its job are written in one transaction. Hidden files in folders are left out, and so are files
    over 100 MB. The same content twice is one document; one that failed is tried again. The originals go to
    OBJECT_STORE_URL, by default the folder oomph-objects here; the worker needs the same. With --wait the status is 0
    only if everything became READY.
    """
    try:
        from jobs.documents.originals import Originals, StoreError
    except ImportError as error:
        raise CommandError(f"{error.name} is not installed: documents need oomph[documents]") from error

    found, skipped = find_files(paths)
    if not found and not skipped:
        raise CommandError(f"there are no files in {', '.join(str(path) for path in paths)}")
    reports = [FileReport(name, "SKIPPED", message=why) for name, why in skipped]
    with target_of(database, embedded, create=True) as target, open_connection(target) as connection:
        connection.commit()
        connection.autocommit = True
        try:
            submitted = _submit_all(connection, Originals(), found, reports)
        except StoreError as error:
            raise CommandError(str(error)) from error
        ids = list(dict.fromkeys(report.document_id for report in submitted if report.document_id is not None))
        trouble = wait_for_documents(connection, ids, target.named) if wait and ids else None
        reports += _with_documents(connection, submitted, ids)
    _print_reports(reports, as_json=as_json)
    if trouble is not None:
        raise CommandError(trouble)
    fine = {"READY"} if wait else {"READY", "PENDING", "PARSING"}
    if any(report.status not in fine for report in reports):
        raise typer.Exit(1)


def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help='As in a web search: "a phrase", or, -without.')],
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most this many hits.")] = 10,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Find words in the documents that are READY, best hits first.

    All words must occur, in any form; "a phrase" as it stands; this or that; -without, with -- before the words.
    """
    from jobs.documents.search import search as search_documents

    with connected(database, embedded) as connection:
        try:
            hits: list[Hit] = search_documents(connection, " ".join(words), limit=limit)
        except ValueError as error:
            refuse("WORDS", str(error))
    if as_json:
        print_json(hits)
        return
    if not hits:
        typer.echo("nothing was found", err=True)
    for hit in hits:
        _print_hit(hit)


def _submit_all(
    connection: "Connection", originals: "Originals", found: list[FoundFile], reports: list[FileReport]
) -> list[FileReport]:
    from jobs.documents.ingest import Submission, submit

    submitted = []
    with _progress("storing", len(found)) as step:
        for file in found:
            step()
            try:
                content = file.read()
            except OSError as error:
                reports.append(FileReport(file.shown, "UNREADABLE", message=error.strerror))
                continue
            except Skipped as skipped:
                reports.append(FileReport(file.shown, "SKIPPED", message=str(skipped)))
                continue
            original = originals.save(content)
            with connection.transaction():
                connection.execute("SELECT set_config('statement_timeout', %s, true)", [STATEMENT_TIMEOUT])
                given: Submission = submit(connection, original, file.path.name)
            submitted.append(FileReport(file.shown, given.status, given.document_id, given.job_id))
    return submitted


@contextmanager
def _progress(what: str, total: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def _with_documents(connection: "Connection", submitted: list[FileReport], ids: list[UUID]) -> Iterator[FileReport]:
    from jobs.documents.reports import show_documents

    documents: dict[UUID, DocumentRow] = {row.id: row for row in show_documents(connection, ids)} if ids else {}
    for report in submitted:
        assert report.document_id is not None
        row = documents.get(report.document_id)
        if row is None:
            yield FileReport(report.file, "DELETED", report.document_id, report.job_id)
        else:
            yield FileReport(report.file, row.status, row.id, row.job_id, row.pages, row.chunks, row.message)


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
        Column("MESSAGE", lambda report: report.message, flexible=True),
    ]
    print_table(columns, sorted(reports, key=lambda report: report.file), empty="nothing was submitted")
    counts: dict[str, int] = {}
    for report in reports:
        counts[report.status] = counts.get(report.status, 0) + 1
    typer.echo(", ".join(f"{count} {status}" for status, count in sorted(counts.items())), err=True)


def _print_hit(hit: "Hit") -> None:
    from rich.console import Console
    from rich.text import Text

    where = [printable(hit.filename)]
    if hit.page is not None:
        where.append(f"page {hit.page}")
    if hit.heading:
        where.append(printable(hit.heading))
    snippet = Text(printable(hit.snippet))
    if len(snippet) == len(hit.snippet):  # else something was replaced, and the places are others
        for start, end in hit.matches:
            snippet.stylize("bold", start, end)
    console = Console(highlight=False, soft_wrap=not os.isatty(1))
    console.print(Text(" | ".join(where), style="cyan"))
    console.print(snippet)
    console.print()
