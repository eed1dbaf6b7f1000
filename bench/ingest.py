"""Measures how fast documents become READY, with one child and with more, and what each of them took.

Every run has a fresh database and a fresh object store: a folder. All documents are submitted first; then a worker is
started, and the time runs from its readiness until nothing happens any more. Then a phrase of each is searched for.
Without paths, documents are made, and not searched for: PDF, Word, slides, sheets, HTML, Markdown and text.
"""

import argparse
import sys
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from rich.console import Console
from rich.table import Table

from bench.ground import Ground
from bench.processes import MIB, Command, Running, wait_for
from jobs.documents import Hits, search
from jobs.documents.errors import UnreadableDocument
from jobs.documents.objects import Objects
from jobs.documents.submit import submit
from jobs.migrate import migrate
from scripts import samples

CHILDREN = (1, 2)
COPIES = 20  # of each document that is made: no two are the same
PAGES, LINES = 20, 40
MEMORY_MB = 512
READY_SECONDS = 60.0
RUN_SECONDS = 1_800.0
WIDTH = 180  # where the output is a file
SENTENCE = "The fence of job {} is its id and its claim number, and a late outcome changes nothing."

File = tuple[str, bytes]


class Taken(NamedTuple):
    """What one document took: seconds of all its attempts' last, MiB at most, and how it ended."""

    filename: str
    size: int
    pages: int | None
    chunks: int | None
    seconds: float | None
    peak_mb: float | None
    verdict: str
    message: str
    found: str = ""  # what of its own text finds it, or that nothing does


TAKEN = """
SELECT document.filename, document.size, document.pages, document.chunks,
       extract(epoch FROM job.finished_at - job.started_at)::float,
       coalesce((job.result ->> 'peak_memory_mb')::float, attempt.peak_memory_mb),
       CASE WHEN job.status = 'succeeded' THEN 'READY' ELSE coalesce(attempt.verdict, job.status) END,
       coalesce(document.message, ''), document.id
  FROM background_documents AS document JOIN background_jobs AS job ON job.id = document.job_id
  LEFT JOIN LATERAL (SELECT * FROM background_attempts AS a WHERE a.job_id = job.id ORDER BY claim DESC LIMIT 1)
       AS attempt ON true
 ORDER BY document.filename, document.id
"""
TEXT = "SELECT string_agg(text, ' | ' ORDER BY position) FROM background_document_chunks WHERE document_id = %s"
PHRASE_WORDS, LONGEST_WORD = 4, 40
LEFT = "SELECT count(*) FROM background_documents WHERE status NOT IN ('READY', 'FAILED')"


def main() -> int:
    arguments = _arguments()
    files = _given(arguments.paths) if arguments.paths else _made()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    speeds = Table("children", "documents", "MB", "seconds", "documents/s", "MB/s", "READY", box=None, pad_edge=False)
    taken: list[Taken] = []
    with Ground() as ground:
        for number in arguments.children:
            taken, seconds = _run(ground, files, number, look_up=bool(arguments.paths))
            size = sum(each.size for each in taken) / MIB
            ready = sum(each.verdict == "READY" for each in taken)
            figures = (f"{size:.1f}", f"{seconds:.1f}", f"{len(taken) / seconds:.2f}", f"{size / seconds:.2f}")
            speeds.add_row(str(number), str(len(taken)), *figures, str(ready))
    if arguments.paths:
        console.print(_by_document(taken))
        console.print()
    console.print(speeds)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench ingest", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files, and folders of files")
    parser.add_argument("--children", nargs="+", type=int, default=CHILDREN, metavar="N", help="at once, a run each")
    return parser.parse_args()


def _run(ground: Ground, files: list[File], children: int, *, look_up: bool) -> tuple[list[Taken], float]:
    url = ground.database()
    migrate(url)
    place = ground.place(url)
    store = place.log.with_suffix(".objects").as_uri()
    refused: list[Taken] = []
    with psycopg.connect(url) as db:
        objects = Objects(store)
        for name, content in files:
            try:
                submit(db, name, content, objects=objects)
            except UnreadableDocument as error:
                refused.append(Taken(name, len(content), None, None, None, None, "refused", str(error)))
    environment = {
        "DATABASE_URL": url,
        "OBJECT_STORE_URL": store,
        "WORKER_APP": "jobs.documents.app:app",
        "WORKER_INGEST_CONCURRENCY": str(children),
        "WORKER_INGEST_MEMORY_MB": str(MEMORY_MB),
        "WORKER_RETRY_DELAY_SECONDS": "0.1",
    }
    with Running(Command(["-m", "supervisor"], environment), place.log) as worker:
        worker.wait_log("ready: worker", READY_SECONDS)
        began = monotonic()
        with psycopg.connect(url, autocommit=True) as look:
            wait_for(
                lambda: worker.require_alive() and look.execute(LEFT).fetchone() == (0,),
                "every document READY or FAILED",
                RUN_SECONDS,
                0.05,
            )
            seconds = monotonic() - began
            rows: list[Any] = look.execute(TAKEN).fetchall()
            taken = [Taken(*row[:-1])._replace(found=_found(look, row[-1]) if look_up else "") for row in rows]
    return sorted([*taken, *refused]), seconds


def _found(db: psycopg.Connection[tuple[Any, ...]], document_id: UUID) -> str:
    """Some words in a row of its text, if a search for this phrase finds the document."""
    (text,) = db.execute(TEXT, [document_id]).fetchone() or (None,)
    words = [word for word in (text or "").replace('"', " ").split() if len(word) <= LONGEST_WORD]
    runs = [words[at : at + PHRASE_WORDS] for at in range(max(1, len(words) - PHRASE_WORDS + 1))]
    # Of letters only, if there are such: that nobody thinks of punctuation as the reason why it is found.
    phrase = " ".join(next((run for run in runs if all(map(str.isalpha, run))), runs[0]))
    if not phrase:
        return ""
    hits: Hits = search(db, f'"{phrase}"', limit=1_000)
    return phrase if any(hit.document_id == document_id for hit in hits) else f"NOT FOUND: {phrase}"


def _by_document(taken: list[Taken]) -> Table:
    columns = ("document", "KB", "pages", "chunks", "seconds", "peak MB", "verdict", "found by", "")
    table = Table(*columns, box=None, pad_edge=False)
    for each in taken:
        numbers = (each.size / 1024, each.pages, each.chunks)
        told = ["" if number is None else f"{number:,.0f}" for number in numbers]
        seconds = "" if each.seconds is None else f"{each.seconds:.2f}"
        peak = "" if each.peak_mb is None else f"{each.peak_mb:.0f}"
        table.add_row(each.filename, *told, seconds, peak, each.verdict, each.found, each.message)
    return table


def _given(paths: list[Path]) -> list[File]:
    found = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return [(file.name, file.read_bytes()) for file in found if file.is_file()]


def _made() -> list[File]:
    made: list[File] = []
    for copy in range(COPIES):
        lines = [SENTENCE.format(copy * 1000 + line) for line in range(LINES)]
        sections = [(f"Section {number} of {copy}", lines) for number in range(PAGES)]
        made += [
            (f"{copy}.pdf", samples.pdf([[title, *texts] for title, texts in sections])),
            (f"{copy}.docx", samples.docx(sections)),
            (f"{copy}.pptx", samples.pptx(sections)),
            (f"{copy}.xlsx", samples.xlsx({"sheet": [[copy, row, SENTENCE.format(row)] for row in range(500)]})),
            (f"{copy}.html", _bytes(samples.html(f"Page {copy}", sections))),
            (f"{copy}.md", _bytes(samples.markdown(f"Notes {copy}", sections))),
            (f"{copy}.txt", "\n".join(lines * PAGES).encode()),
        ]
    return made


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


if __name__ == "__main__":
    sys.exit(main())
