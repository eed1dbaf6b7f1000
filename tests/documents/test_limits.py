"""Documents that want too much: each in a real child that may use 512 MB, with a verdict of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.documents.errors import DAMAGED, TOO_DEEP, TOO_MUCH
from jobs.outcome import Verdict
from scripts import samples
from supervisor.testing import Kit
from tests.documents import hostile
from tests.documents.parsing_app import PARSE_FILE, ParseFile

LIMIT_MB = 512
BOMB_MB = 600
WORDS = b"The analytical engine weaves algebraic patterns just as the Jacquard loom weaves flowers and leaves.\n"


class Reader:
    """A worker whose children may use 512 MB more than they have at their birth."""

    def __init__(self, kit: Kit, folder: Path) -> None:
        self.kit, self.folder = kit, folder
        kit.start("tests.documents.parsing_app:app", WORKER_INGEST_MEMORY_MB=str(LIMIT_MB))

    def read(self, filename: str, content: bytes | Callable[[Path], object], seconds: float = 60) -> dict[str, Any]:
        """What a child made of a file."""
        job_id = self._enqueue(filename, content)
        self.kit.wait_for(job_id, "succeeded", seconds)
        (result,) = self._job(job_id, "result")
        print(filename, result)
        assert result["peak_mb"] < LIMIT_MB
        return dict(result)

    def refusal(self, filename: str, content: bytes, verdict: Verdict, seconds: float = 60) -> str:
        """The error's message, where a child ended with this verdict and its job is dead."""
        job_id = self._enqueue(filename, content)
        self.kit.wait_for(job_id, "dead", seconds)
        assert self.kit.verdicts(job_id) == [verdict]
        (message,) = self._job(job_id, "error ->> 'message'")
        # The worker, and its other children, are as before.
        assert self.read("a.txt", WORDS)["chunks"] == 1
        print(filename, verdict, message)
        return str(message)

    def _enqueue(self, filename: str, content: bytes | Callable[[Path], object]) -> int:
        path = self.folder / f"original-{len(list(self.folder.iterdir()))}"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content(path)
        return self.kit.enqueue(PARSE_FILE, ParseFile(filename=filename, path=str(path)))

    def _job(self, job_id: int, columns: str) -> tuple[Any, ...]:
        row = self.kit.db.execute(f"SELECT {columns} FROM background_jobs WHERE id = %s", [job_id]).fetchone()
        assert row is not None
        return row


@pytest.fixture
def reader(oomph_kit: Kit, tmp_path: Path) -> Reader:
    folder = tmp_path / "files"
    folder.mkdir()
    return Reader(oomph_kit, folder)


def big_text(path: Path) -> None:
    with path.open("wb") as file:
        block = (WORDS * 20 + b"\n") * 500
        for _ in range((200 << 20) // len(block) + 1):
            file.write(block)


def pages_of(count: int, lines: int) -> bytes:
    return samples.pdf(
        [[f"Page {page}", *(f"line {line} of {page}" for line in range(lines))] for page in range(count)]
    )


def test_a_text_of_200_mb_is_read_as_a_stream(reader: Reader) -> None:
    read = reader.read("big.txt", big_text, 120)
    assert read["chunks"] > 100_000
    assert read["peak_mb"] < 150


def test_a_text_of_one_line_of_64_mb_is_read_as_a_stream(reader: Reader) -> None:
    read = reader.read("line.txt", b"x" * (64 << 20), 120)
    assert read["peak_mb"] < 200


@pytest.mark.timeout(300)
def test_a_pdf_of_500_pages_is_read(reader: Reader) -> None:
    read = reader.read("a.pdf", pages_of(500, 40), 200)
    assert read["pages"] == 500
    assert read["chunks"] >= 500
    assert read["peak_mb"] < 256


@pytest.mark.timeout(300)
def test_a_pdf_of_10_000_pages_is_read(reader: Reader) -> None:
    read = reader.read("a.pdf", pages_of(10_000, 1), 250)
    assert (read["pages"], read["chunks"]) == (10_000, 10_000)
    assert read["peak_mb"] < 256


def test_a_pdf_with_a_million_objects_is_read(reader: Reader) -> None:
    assert reader.read("a.pdf", hostile.pdf_of_objects(1_000_000))["chunks"] == 1


def test_the_text_around_an_image_of_30_000_by_30_000_is_read_and_the_image_left_out(reader: Reader) -> None:
    read = reader.read("a.pdf", hostile.pdf_with_image(30_000, 30_000))
    assert (read["chunks"], read["images"]) == (1, 0)
    assert read["peak_mb"] < 150


def test_the_text_around_an_image_that_is_a_bomb_is_read_and_the_image_left_out(reader: Reader) -> None:
    read = reader.read("a.pdf", hostile.pdf_with_image_packed_twice(64))
    assert (read["chunks"], read["images"]) == (1, 0)
    assert read["peak_mb"] < 150


@pytest.mark.parametrize(
    ("filename", "make"),
    [
        ("a.docx", lambda: hostile.docx_bomb(BOMB_MB)),
        ("a.xlsx", lambda: hostile.xlsx_bomb(BOMB_MB)),
        ("a.docx", lambda: hostile.picture_bomb(BOMB_MB)),
    ],
    ids=["docx", "xlsx", "picture"],
)
def test_a_zip_bomb_is_refused(reader: Reader, filename: str, make: Callable[[], bytes]) -> None:
    assert reader.refusal(filename, make(), Verdict.FAILED) == TOO_MUCH


@pytest.mark.parametrize("make", [hostile.docx_bomb, hostile.xlsx_bomb], ids=["docx", "xlsx"])
def test_a_zip_bomb_that_understates_itself_is_damaged(reader: Reader, make: Callable[[int], bytes]) -> None:
    assert reader.refusal("a.docx", hostile.understated(make(BOMB_MB)), Verdict.FAILED) == DAMAGED


def test_a_sheet_that_is_no_bomb_but_too_large_meets_the_limit_and_says_so(reader: Reader) -> None:
    row = [f"engine {number}" for number in range(40)]
    sheet = samples.xlsx({"Sheet": ([*row, str(line * 7919 % 1_000_003)] for line in range(120_000))})
    assert "512 MB" in reader.refusal("a.xlsx", sheet, Verdict.MEMORY_EXCEEDED)


def test_xml_a_million_elements_deep_meets_the_limit_and_says_so(reader: Reader) -> None:
    deep = b"<?xml version='1.0'?>" + b"<a>" * 1_000_000 + b"words" + b"</a>" * 1_000_000
    assert "512 MB" in reader.refusal("a.xml", deep, Verdict.MEMORY_EXCEEDED)


@pytest.mark.parametrize(
    ("filename", "make"),
    [
        ("a.docx", hostile.docx_entity_bomb),
        ("a.xml", lambda: b"<?xml version='1.0'?>" + hostile.entity_bomb("a") + b"<a>&z; words</a>"),
        ("a.html", lambda: hostile.entity_bomb("html") + b"<html><body>&z; words</body></html>"),
        (
            "a.fb2",
            lambda: (
                b"<?xml version='1.0'?>" + hostile.entity_bomb("FictionBook") + b"<FictionBook><body>"
                b"<section><p>&z; words</p></section></body></FictionBook>"
            ),
        ),
    ],
    ids=["docx", "xml", "html", "fb2"],
)
def test_an_entity_bomb_is_never_unpacked(reader: Reader, filename: str, make: Callable[[], bytes]) -> None:
    read = reader.read(filename, make())
    assert read["chunks"] <= 2
    assert read["peak_mb"] < 128


@pytest.mark.parametrize("filename", ["a.epub", "a.pptx"])
def test_a_document_as_deep_as_a_parser_stands_is_read(reader: Reader, filename: str) -> None:
    assert reader.read(filename, hostile.deep(filename, 9_000))["chunks"] > 0


@pytest.mark.parametrize("filename", ["a.epub", "a.pptx", "a.opml"])
def test_a_document_that_is_nested_too_deep_crashes_nothing(reader: Reader, filename: str) -> None:
    assert reader.refusal(filename, hostile.deep(filename, 200_000), Verdict.FAILED) == TOO_DEEP


def test_what_calls_itself_for_each_mark_has_the_stack_for_it(reader: Reader) -> None:
    assert reader.read("a.djot", b"> " * 20_000 + b"words")["chunks"] > 0
