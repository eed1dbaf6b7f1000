"""Follows submitted documents until each is read or has failed: a bar for people, a list for programs."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import typer

from supervisor.commands.output import first_line, printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from jobs.documents import Submission
    from jobs.documents.reports import Attendance, DocumentRow

LOOK_SECONDS = 0.5
ATTENDANCE_SECONDS = 5.0  # a worker that is just being replaced is back by then, most of the time


class IngestWatch:
    """The documents of one call, by id. A context manager, for the bar; it shows on a terminal only."""

    def __init__(self, total: int, *, show: bool) -> None:
        self._total = total
        self._show = show
        self._paths: dict[UUID, Path] = {}
        self._waiting: set[UUID] = set()
        self._settled: dict[UUID, DocumentRow] = {}
        self._unreadable: list[tuple[Path, str]] = []
        self._submitted = 0
        self._known = 0  # files whose content had been submitted before
        self._looked = 0.0
        self._why_not: str | None = None
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        if self._show and sys.stderr.isatty():
            self._bar = _bar(self._total)
            self._bar[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    @property
    def failures(self) -> int:
        failed = sum(document.status == "FAILED" for document in self._settled.values())
        return len(self._unreadable) + failed

    def unreadable(self, path: Path, why: str) -> None:
        """Note a file that could not even be read here."""
        self._unreadable.append((path, why))
        self._draw()

    def submitted(self, path: Path, submission: "Submission") -> None:
        self._submitted += 1
        self._known += not submission.is_queued
        if self._paths.setdefault(submission.document_id, path) == path:
            self._waiting.add(submission.document_id)

    def look(self, connection: Any) -> None:
        """See which documents are settled by now; at most twice a second."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        from jobs.documents.reports import show_documents

        documents: list[DocumentRow] = show_documents(connection, list(self._waiting))
        connection.commit()
        self._settled.update({document.id: document for document in documents if document.is_settled})
        self._waiting -= self._settled.keys() | (self._waiting - {document.id for document in documents})
        self._looked = time.monotonic()
        self._draw()

    def wait(self, connection: Any) -> None:
        """Look until all are settled, or until nobody works on them."""
        since = None
        self._looked = 0.0
        try:
            while self._waiting:
                self.look(connection)
                if not self._waiting:
                    return
                self._why_not = _why_nobody_works(connection)
                since = (since or time.monotonic()) if self._why_not else None
                if since is not None and time.monotonic() - since >= ATTENDANCE_SECONDS:
                    return
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            self._why_not = "interrupted; the work goes on without this command"

    def outcomes(self) -> list[dict[str, object]]:
        """One object a document: its path, id, and what became of it so far."""
        told: list[dict[str, object]] = [
            {"path": str(path), "id": None, "status": "FAILED", "message": why} for path, why in self._unreadable
        ]
        for document_id, path in self._paths.items():
            document = self._settled.get(document_id)
            status, message = (document.status, document.message) if document else ("PENDING", None)
            told.append({"path": str(path), "id": str(document_id), "status": status, "message": message})
        return told

    def conclude(self) -> None:
        """Name every failure, then count."""
        for path, why in self._unreadable:
            typer.echo(f"failed: {path}: {why}")
        for document in self._settled.values():
            if document.status == "FAILED":
                why = first_line(printable(document.message or "no reason is known"))
                typer.echo(f"failed: {self._paths[document.id]}: {why}")
        ready = len(self._settled) - self.failures + len(self._unreadable)
        counts = [(ready, "ready"), (self.failures, "failed"), (len(self._waiting), "waiting")]
        typer.echo(
            f"{self._total} files: "
            + ", ".join(f"{count} {what}" for count, what in counts if count or what == "ready")
            + (f"; {self._known} of them had been submitted before" if self._known else "")
        )
        if self._waiting and self._why_not:
            typer.echo(self._why_not, err=True)

    def _draw(self) -> None:
        if self._bar is not None:
            progress, task = self._bar
            done = len(self._unreadable) + self._submitted - len(self._waiting)
            progress.update(task, completed=done, failures=self.failures)


def _why_nobody_works(connection: Any) -> str | None:
    """Why no document that waits is read; None where one may be."""
    from jobs.documents.reports import attendance

    found: Attendance = attendance(connection)
    connection.commit()
    if found.paused is not None:
        return f"documents wait: the kind ingest-document is paused: {printable(found.paused)}"
    if not found.workers:
        return "documents wait for a worker: oomph worker --app jobs.documents.app:app"
    return None


def _bar(total: int) -> "tuple[Progress, TaskID]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    class Rate(TextColumn):
        def render(self, task: Any) -> Any:
            rate = task.completed / task.elapsed if task.elapsed else 0.0
            task.fields["rate"] = f"{rate:.1f}/s"
            return super().render(task)

    progress = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("documents, {task.fields[failures]} failed,"),
        Rate("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    return progress, progress.add_task("", total=total, failures=0)
