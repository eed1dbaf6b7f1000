"""`oomph documents`: list, show, delete."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from supervisor.commands.completion import choices
from supervisor.commands.database import connected
from supervisor.commands.options import (
    Actor,
    AsJson,
    DatabaseUrl,
    EmbeddedFolder,
    Limit,
    Reason,
    actor_of,
    one_of,
    reason_of,
)
from supervisor.commands.output import Column, print_facts, print_json, print_table, printable, span
from supervisor.commands.progress import progress
from supervisor.errors import CommandError

if TYPE_CHECKING:
    from jobs.documents.reports import AssetRow, DocumentRow, VectorsRow

documents = typer.Typer(help="Documents: how they stand, and their end.", no_args_is_help=True)

STATUSES = ("PENDING", "PARSING", "CHUNKING", "EMBEDDING", "INDEXING", "READY", "FAILED")
STYLES = {"READY": "green", "FAILED": "red"}


@documents.command("list")
def list_documents(
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help="READY, FAILED, PENDING, or a stage such as PARSING.",
            autocompletion=choices(*STATUSES),
        ),
    ] = None,
    collection: Annotated[str | None, typer.Option(metavar="NAME", help="Only this collection.")] = None,
    limit: Limit = 50,
    before: Annotated[
        UUID | None,
        typer.Option("--before", metavar="ID", help="The next page: only older than this.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """List documents, newest first."""
    from jobs.documents import reports

    status = one_of("--status", status and status.upper(), reports.STATUSES)
    with connected(database, embedded) as connection:
        rows: list[DocumentRow] = reports.list_documents(
            connection, status=status, collection=collection, before=before, limit=limit
        )
    if as_json:
        print_json(rows)
        return
    columns: list[Column[DocumentRow]] = [
        Column("ID", lambda row: row.id),
        Column("COLLECTION", lambda row: row.collection),
        Column("FILE", lambda row: row.filename),
        Column("STATUS", lambda row: row.status, style=lambda row: STYLES.get(row.status, "")),
        Column("PAGES", lambda row: row.pages, right=True),
        Column("CHUNKS", lambda row: row.chunks, right=True),
        Column("JOB", lambda row: row.job_id, right=True),
        Column("CREATED (UTC)", lambda row: row.created_at),
        Column("NOTE", _note, flexible=True, of=lambda row: row.filename),
    ]
    print_table(columns, rows, empty="no such documents")
    if len(rows) == limit:
        typer.echo(f"perhaps more: --before {rows[-1].id}", err=True)


@documents.command("show")
def show_document(
    document_id: Annotated[UUID, typer.Argument(metavar="ID", help="Which document.")],
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Show a document: what it is, how it stands, its images."""
    from jobs.documents import reports

    with connected(database, embedded) as connection:
        rows: list[DocumentRow] = reports.show_documents(connection, [document_id])
        assets: list[AssetRow] = reports.document_assets(connection, document_id)
        vectors: list[VectorsRow] = reports.document_vectors(connection, document_id)
    if not rows:
        raise CommandError(f"document {document_id} does not exist")
    row = rows[0]
    if as_json:
        print_json({"document": row, "assets": assets, "vectors": vectors})
        return
    is_served = row.ready_at is not None and row.status != "READY"
    print_facts(
        [
            ("id", row.id),
            ("collection", row.collection),
            ("file", row.filename),
            ("status", row.status),
            ("message", row.message),
            ("progress", None if row.progress is None else f"{row.progress:.0%} {row.progress_note or ''}"),
            ("job", row.job_id),
            ("type", row.mime_type),
            ("title", row.title),
            ("bytes", f"{row.size:,}"),
            ("pages", row.pages),
            ("chunks", row.chunks),
            ("vectors", "\n".join(map(_vectors, vectors)) or "none: it is found by words only"),
            ("images", row.assets),
            ("parser", row.parser),
            ("created", row.created_at),
            ("ready since", row.ready_at),
            ("found", "by its earlier index" if is_served else None),
        ]
    )
    if assets:
        typer.echo()
        columns: list[Column[AssetRow]] = [
            Column("IMAGE", lambda asset: asset.key),
            Column("PAGE", lambda asset: asset.page, right=True),
            Column("BYTES", lambda asset: f"{asset.size:,}", right=True),
        ]
        print_table(columns, assets, empty="")


@documents.command("delete")
def delete_documents(
    ids: Annotated[list[UUID], typer.Argument(metavar="ID", help="Which documents.")],
    actor: Actor = None,
    reason: Reason = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Delete documents: index, images, original, row.

    Several are deleted all or none, and only where nothing works on them. No search finds them from now on; their
    objects go with a job of a worker that ingests documents.
    """
    from jobs import control
    from jobs.documents.delete import delete

    who, why = actor_of(actor), reason_of(reason)
    with connected(database, embedded) as connection, progress("deleting", len(ids)) as step:
        for document_id in ids:
            delete(connection, document_id)
            control.record(connection, "delete", f"document {document_id}", actor=who, reason=why)
            step(1)
    if as_json:
        print_json([{"id": document_id, "status": "DELETED"} for document_id in ids])
        return
    for document_id in ids:
        typer.echo(f"document {document_id} is deleted")


def _vectors(row: "VectorsRow") -> str:
    return f"{row.chunks} of {printable(row.model)}, {row.dimensions} dimensions"


def _note(row: "DocumentRow") -> str | None:
    """The one thing about a document that its other columns do not say."""
    if row.message is not None:
        return row.message
    if row.progress is not None:
        return f"{row.progress:.0%} {row.progress_note or ''}"
    if row.ready_at is not None and row.status != "READY":
        return f"is found as it was {span(datetime.now(UTC) - row.ready_at)} ago"
    return None
