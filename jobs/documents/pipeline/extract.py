"""A thin adapter of kreuzberg: a file in, its text as Markdown or plain out.

Importing it is single-threaded and safe in the template; the first extraction starts threads. Every way in which
kreuzberg 4.10 is known to fail becomes `UnreadableDocument` with a sentence for people, or says that memory ran out.
"""

import os
import resource
from pathlib import Path
from typing import Any, Literal

import kreuzberg

from jobs.documents.errors import DAMAGED, PASSWORD, TOO_MUCH, UNSUPPORTED, UnreadableDocument

for _pool in ("TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS"):
    os.environ[_pool] = "1"  # read once, at the first extraction; more threads only cost memory

PARSER = f"kreuzberg {kreuzberg.__version__}"

# kreuzberg calls itself for each element of XML inside another one. Linux leaves 128 MB of addresses to the stack of a
# program that started with less, and memory that is used there counts as any other.
STACK_BYTES = 96 << 20

_NO_MEMORY = ("out of memory", "cannot allocate", "memerror")
_NO_THREAD = ("failed to spawn", "temporarily unavailable")

# pdfium writes \x02 for the hyphen at a line's end that splits a word. Other control characters separate; the search
# relies on none being left.
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ") | {0x02: None, 0x09: "\t", 0x0A: "\n", 0xFEFF: None}
_CONTROLS |= {0x0B: "\n", 0x0C: "\n", 0x85: "\n"}


def extract(path: Path, mime_type: str, output_format: Literal["markdown", "plain"]) -> Any:
    """kreuzberg's result. Without images: it holds all of a document's at once, decoded."""
    _raise_stack()
    config = kreuzberg.ExtractionConfig(  # type: ignore[call-arg]  # its stub lacks disable_ocr
        use_cache=False,
        disable_ocr=True,
        output_format=output_format,
        pages=kreuzberg.PageConfig(extract_pages=True),
        concurrency=kreuzberg.ConcurrencyConfig(max_threads=1),
    )
    try:
        return kreuzberg.extract_file_sync(path, mime_type, config)
    except (kreuzberg.KreuzbergError, RuntimeError) as error:
        raise _told(error) from error


def _raise_stack() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = STACK_BYTES if hard == resource.RLIM_INFINITY else min(STACK_BYTES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))


def _told(error: Exception) -> Exception:
    """What an error of kreuzberg's means; itself where that is unknown."""
    words = str(error).lower()
    if any(sign in words for sign in _NO_MEMORY):
        return MemoryError(str(error))
    if any(sign in words for sign in _NO_THREAD):
        # In Python's own words, by which the supervisor judges: at the memory limit it is memory, else another limit.
        return RuntimeError(f"can't start new thread: {error}")
    if "password" in words:
        return UnreadableDocument(PASSWORD)
    if "security limit" in words:
        return UnreadableDocument(TOO_MUCH)
    if "unsupported format" in words:
        return UnreadableDocument(UNSUPPORTED)
    if isinstance(error, (kreuzberg.ParsingError, kreuzberg.ValidationError)):
        return UnreadableDocument(DAMAGED)
    return error


def clean(text: str) -> str:
    """The text without control characters other than tabs and line ends."""
    return text.replace("\r\n", "\n").translate(_CONTROLS)
