"""`oomph search`: what was found in the documents."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from supervisor.commands.database import connected
from supervisor.commands.options import AsJson, DatabaseUrl, EmbeddedFolder, refuse
from supervisor.commands.output import print_json, printable

if TYPE_CHECKING:
    from jobs.documents.question import QuestionVector
    from jobs.documents.search import Hit, Hits


def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help='As in a web search: "a phrase", or, -without.')],
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most this many hits.")] = 10,
    collection: Annotated[
        str | None, typer.Option("--collection", metavar="NAME", help="Only documents of this.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    database: DatabaseUrl = "",
    embedded: EmbeddedFolder = None,
) -> None:
    """Find words in documents that are READY, best hits first.

    All words must occur, in any form; "a phrase" as it stands; this or that; -without, with -- before the words. Where
    EMBEDDING_URL and EMBEDDING_MODEL are set as for the worker, what means something like the words is found too.
    """
    from jobs.documents.search import search as search_documents

    asked = " ".join(words)
    vector, trouble = _vector(asked)
    with connected(database, embedded) as connection:
        try:
            hits: Hits = search_documents(connection, asked, limit=limit, collection=collection, vector=vector)
        except ValueError as error:
            refuse("WORDS", str(error))
    if note := trouble or (hits.note if vector else None):
        typer.echo(note, err=True)
    if as_json:
        print_json(hits)
        return
    if not hits:
        typer.echo("nothing was found", err=True)
    for hit in hits:
        _print_hit(hit)


def _vector(words: str) -> "tuple[QuestionVector | None, str | None]":
    """What the words mean; where no embedder is set, nothing, and where it fails, why."""
    from jobs.documents.errors import EmbeddingError, EmbeddingRefused
    from jobs.documents.pipeline.embed import embed_question, embedder_from_environment

    try:
        embedder = embedder_from_environment(retries=1)
        return embed_question(embedder, words), None
    except (EmbeddingError, EmbeddingRefused) as error:
        return None, f"Found by words only. {error}"


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
