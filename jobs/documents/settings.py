"""What the variables of documents say, looked at before anything starts. Loads no parser, store or model."""

import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from jobs.documents.intake import max_document_bytes
from jobs.documents.numbers import whole_number
from jobs.documents.pipeline import embed
from jobs.documents.pipeline.chunk import chunker_from_environment
from jobs.documents.store_url import store_problem
from jobs.documents.submit import check_collection

FOLDER_SECONDS = 60
VARIABLES = (
    "OBJECT_STORE_URL",
    "DOCUMENT_MAX_MB",
    "DOCUMENT_FOLDER",
    "DOCUMENT_FOLDER_SECONDS",
    "DOCUMENT_FOLDER_COLLECTION",
    "CHUNK_SIZE",
    "CHUNK_OVERLAP",
    "CHUNK_UNIT",
    "EMBEDDING_URL",
    "EMBEDDING_MODEL",
    "EMBEDDING_API_KEY",
    "EMBEDDING_DIMENSIONS",
    "EMBEDDING_BATCH_SIZE",
    "EMBEDDING_TIMEOUT_SECONDS",
)
PREFIXES = ("OBJECT_", "DOCUMENT_", "CHUNK_", "EMBEDDING_")
# Others have variables of these prefixes too, so only what is nearly one of ours counts as misspelt.
SIMILARITY = 0.85


def folder_seconds() -> int:
    """How often DOCUMENT_FOLDER is looked at. Raises `ValueError`."""
    return whole_number("DOCUMENT_FOLDER_SECONDS", FOLDER_SECONDS, least=1)


def problems() -> list[str]:
    """What cannot be meant, a line each, with the variable's name."""
    checks: tuple[Callable[[], object], ...] = (max_document_bytes, folder_seconds, chunker_from_environment)
    return [*_store(), *_folder(), *filter(None, map(_refusal, checks)), *embed.problems(os.environ)]


def misspelt() -> list[tuple[str, str]]:
    """Variables of the environment that are nearly one of ours, each with that one."""
    strangers = sorted(name for name in os.environ if name.startswith(PREFIXES) and name not in VARIABLES)
    nearest = ((name, get_close_matches(name, VARIABLES, 1, SIMILARITY)) for name in strangers)
    return [(name, found[0]) for name, found in nearest if found]


def _store() -> list[str]:
    url = os.environ.get("OBJECT_STORE_URL")
    problem = store_problem(url) if url else None
    return [f"OBJECT_STORE_URL={url}: {problem}"] if problem else []


def _folder() -> list[str]:
    wrong = []
    folder = os.environ.get("DOCUMENT_FOLDER")
    if folder and not Path(folder).is_dir():
        wrong.append(f"DOCUMENT_FOLDER={folder}: there is no such folder on this host")
    if collection := os.environ.get("DOCUMENT_FOLDER_COLLECTION"):
        refusal = _refusal(lambda: check_collection(collection))
        wrong += [f"DOCUMENT_FOLDER_COLLECTION: {refusal}"] if refusal else []
    return wrong


def _refusal(check: Callable[[], object]) -> str | None:
    try:
        check()
    except ValueError as error:
        return str(error)
    return None
