"""The settings of documents are looked at before a worker starts, all of them."""

import os
import subprocess
import sys
from pathlib import Path

from jobs.documents.app import CHECKED
from jobs.documents.settings import PREFIXES, VARIABLES
from tests.documents.conftest import Library

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "documents.md").read_text()


def start(url: str, folder: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    """A worker that ends once there is nothing to do."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith((*PREFIXES, "WORKER_", CHECKED))}
    command = "from supervisor.commands import main; main()"
    return subprocess.run(
        [sys.executable, "-c", command, "worker", "--app", "jobs.documents.app:app", "--drain"],
        cwd=folder,
        env={**clean, "DATABASE_URL": url, "WORKER_INGEST_CONCURRENCY": "1", **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_wrong_setting_has_its_line(library: Library, tmp_path: Path) -> None:
    done = start(
        library.url,
        tmp_path,
        OBJECT_STORE_URL="ftp://x",
        DOCUMENT_MAX_MB="x",
        DOCUMENT_FOLDER="/nope",
        DOCUMENT_FOLDER_SECONDS="0",
        DOCUMENT_FOLDER_COLLECTION="a\nb",
        CHUNK_SIZE="-3",
        EMBEDDING_MODEL="m",
        EMBEDDING_BATCH_SIZE="0",
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    for expected in (
        "OBJECT_STORE_URL=ftp://x: allowed are file:///folder, s3://bucket/prefix",
        "DOCUMENT_MAX_MB=x: a whole number of MiB, at least 1, is allowed",
        "DOCUMENT_FOLDER=/nope: there is no such folder on this host",
        "DOCUMENT_FOLDER_SECONDS=0: a whole number, at least 1, is allowed",
        "DOCUMENT_FOLDER_COLLECTION: collection 'a\\nb': 1 to 100 printable characters are allowed",
        "CHUNK_SIZE=-3: a whole number, at least 16, is allowed",
        "EMBEDDING_MODEL is set without EMBEDDING_URL",
        "EMBEDDING_BATCH_SIZE=0: a whole number from 1 to 2,048",
    ):
        assert sum(expected in line for line in lines) == 1, done.stderr


def test_what_is_nearly_a_setting_is_named_and_what_is_another_programs_is_not(
    library: Library, tmp_path: Path
) -> None:
    done = start(library.url, tmp_path, DOCUMENT_FOLDR="/x", DOCUMENT_ROOT="/var/www", CHUNK_SIZE="400")
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "is not a setting" in line]
    assert len(warnings) == 1, done.stderr
    assert "DOCUMENT_FOLDR is not a setting and has no effect; is DOCUMENT_FOLDER meant?" in warnings[0]


def test_the_readme_names_every_variable() -> None:
    assert [name for name in VARIABLES if f"`{name}`" not in PAGE] == []
