"""A long PDF is read in parts, and nobody sees the seams."""

from pathlib import Path

import pytest

from jobs.documents.errors import NO_TEXT, UnreadableDocument
from jobs.documents.pipeline import pdf
from jobs.documents.pipeline.parse import parse
from scripts import samples
from tests.documents import hostile
from tests.documents.conftest import chunks_of, parsed

PAGES = [[f"Chapter {number}", f"What stands on page {number}", "and more of it"] for number in range(1, 12)]


def test_a_document_in_parts_gives_the_same_chunks_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    content = samples.pdf(PAGES, title="A long one")
    whole = chunks_of("a.pdf", content)
    assert [each.page for each in whole] == list(range(1, 12))
    assert whole[4].heading == "Chapter 5"
    monkeypatch.setattr(pdf, "PART_PAGES", 4)
    assert chunks_of("a.pdf", content) == whole
    document = parsed("a.pdf", content)
    assert (document.title, document.page_count) == ("A long one", 11)


def test_a_large_file_of_few_pages_is_read_in_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = chunks_of("a.pdf", samples.pdf(PAGES))
    monkeypatch.setattr(pdf, "PART_BYTES", 100)
    assert chunks_of("a.pdf", samples.pdf(PAGES)) == whole


def test_pages_without_text_are_passed_over_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "PART_PAGES", 2)
    document = parsed("a.pdf", samples.pdf([[], [], [], ["Last", "words"], []]))
    assert [page.number for page in document.pages] == [4]
    assert document.page_count == 5
    with pytest.raises(UnreadableDocument, match=NO_TEXT):
        parsed("a.pdf", samples.pdf([[], [], []]))


def test_nothing_is_left_of_the_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pdf, "PART_PAGES", 2)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    (tmp_path / "a.pdf").write_bytes(samples.pdf(PAGES))
    assert len(list(parse("a.pdf", tmp_path / "a.pdf").pages)) == 11
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_password_is_told_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "extract", None)
    with pytest.raises(UnreadableDocument, match="password"):
        parsed("a.pdf", hostile.encrypted_pdf())
