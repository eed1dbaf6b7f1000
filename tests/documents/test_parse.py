"""What is read from files of many formats."""

import io
from collections.abc import Callable

import docx
import kreuzberg
import openpyxl
import pptx
import pytest

from jobs.documents.pipeline import parse as parsing
from jobs.documents.pipeline.chunk import chunk
from pools.symptoms import memory_sign
from scripts import samples
from tests.documents.conftest import DOCUMENT, chunks_of, parsed

SECTIONS = [
    ("Engines", ["The analytical engine weaves algebraic patterns.", "R&D at <Babbage & Co>."]),
    ("Looms", ["The Jacquard loom weaves flowers and leaves."]),
]
CYRILLIC = "Широкая электрификация южных губерний"


def saved(save: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def by_python_docx() -> bytes:
    document = docx.Document()
    for heading, paragraphs in SECTIONS:
        document.add_heading(heading, 1)
        for paragraph in paragraphs:
            document.add_paragraph(paragraph)
    return saved(document.save)


def by_python_pptx() -> bytes:
    deck = pptx.Presentation()
    for heading, paragraphs in SECTIONS:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = heading
        slide.placeholders[1].text = "\n".join(paragraphs)
    return saved(deck.save)


def by_openpyxl() -> bytes:
    book = openpyxl.Workbook()
    for heading, paragraphs in SECTIONS:
        sheet = book.create_sheet(heading)
        for paragraph in paragraphs:
            sheet.append([paragraph, 1837])
    del book["Sheet"]
    return saved(book.save)


@pytest.mark.parametrize(
    ("filename", "make"),
    [
        ("own.docx", lambda: samples.docx(SECTIONS)),
        ("own.pptx", lambda: samples.pptx(SECTIONS)),
        ("own.xlsx", lambda: samples.xlsx({name: [[line] for line in lines] for name, lines in SECTIONS})),
        ("own.epub", lambda: samples.epub("Book", SECTIONS)),
        ("own.html", lambda: samples.html("Page", SECTIONS)),
        ("own.md", lambda: samples.markdown("Notes", SECTIONS)),
        ("theirs.docx", by_python_docx),
        ("theirs.pptx", by_python_pptx),
        ("theirs.xlsx", by_openpyxl),
    ],
)
def test_text_comes_with_its_heading_and_keeps_every_character(filename: str, make: Callable[[], bytes]) -> None:
    first, second = chunks_of(filename, make())
    assert first.heading is not None
    assert first.heading.endswith("Engines")
    assert "The analytical engine weaves algebraic patterns." in first.text
    assert "R&D at <Babbage & Co>." in first.text
    assert second.heading is not None
    assert second.heading.endswith("Looms")
    assert "Jacquard loom" in second.text


def test_a_pdf_is_read_page_by_page_with_its_headings() -> None:
    pages = [
        ["Engines", "The analytical engine \N{EN DASH} 1837"],
        ["Looms", "The Jacquard loom (Lyon)"],
        ["Ends", "Nothing more"],
    ]
    document = parsed("notes.pdf", samples.pdf(pages, title="Notes on engines"))
    assert (document.mime_type, document.title, document.page_count) == ("application/pdf", "Notes on engines", 3)
    assert [(each.page, each.heading, each.text) for each in chunk(DOCUMENT, document.pages)] == [
        (1, "Engines", "Engines\nThe analytical engine \N{EN DASH} 1837"),
        (2, "Looms", "Looms\nThe Jacquard loom (Lyon)"),
        (3, "Ends", "Ends\nNothing more"),
    ]


def test_the_title_is_the_first_heading_where_the_document_names_none() -> None:
    assert parsed("a.md", samples.markdown("On engines", SECTIONS)).title == "On engines"


def test_an_e_mail_is_read_with_its_subject() -> None:
    (found,) = chunks_of("mail.eml", samples.eml("About looms", "The loom has come."))
    assert "About looms" in found.text
    assert "The loom has come." in found.text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_text_is_read_in_the_encodings_that_people_have(encoding: str) -> None:
    text = "Café \N{EN DASH} déjà vu" if encoding == "cp1252" else f"Café {CYRILLIC}"
    assert [each.text for each in chunks_of("a.txt", f"{text}\r\nline".encode(encoding))] == [f"{text}\nline"]


def test_a_web_page_is_read_in_the_encoding_that_it_names() -> None:
    page = f'<html><head><meta charset="windows-1251"></head><body><p>{CYRILLIC}</p></body></html>'
    assert [each.text for each in chunks_of("a.html", page.encode("cp1251"))] == [CYRILLIC]


def test_addresses_and_pictures_are_not_text() -> None:
    page = '<p>See <a href="http://x.example/y_(z)">the <b>notes</b></a> <img src="a.png" alt="a drawing"></p>'
    assert [each.text for each in chunks_of("a.html", page.encode())] == ["See the **notes** a drawing"]


def test_the_head_of_a_web_page_is_not_text() -> None:
    page = "<html><head><title>T</title><meta name='robots' content='noindex'></head><body><h1>H</h1>body</body></html>"
    assert [each.text for each in chunks_of("a.html", page.encode())] == ["# H\n\nbody"]


def test_control_characters_never_reach_the_database() -> None:
    (found,) = chunks_of("a.txt", b"a\x02b\x1fc\x0cd\x03e\x7f")
    assert found.text == "ab c\nd e"


def test_a_hyphen_at_the_end_of_a_line_of_a_pdf_does_not_split_the_word() -> None:
    pages = [["Engines", "The analytical engine weaves alge-", "braic patterns."]]
    (found,) = chunks_of("a.pdf", samples.pdf(pages))
    assert "algebraic" in found.text


def test_source_code_is_read_as_text_and_nothing_is_downloaded() -> None:
    assert [each.text for each in chunks_of("a.py", b"def f():\n    return 1\n")] == ["def f():\n    return 1"]


def test_a_csv_is_read_as_it_stands() -> None:
    assert [each.text for each in chunks_of("a.csv", b"a,b\n1,2\n")] == ["a,b\n1,2"]


def test_a_big_sheet_is_read_without_its_table_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "BIG_SHEET_BYTES", 100)
    (found,) = chunks_of("a.xlsx", samples.xlsx({"Sheet": [["Engine", 1837]]}))
    assert "Engine 1837" in found.text


def test_the_content_decides_what_a_file_is_not_its_name() -> None:
    assert parsed("a.txt", samples.pdf([["Engines"]])).mime_type == "application/pdf"
    assert parsed("a", samples.docx(SECTIONS)).mime_type.endswith("wordprocessingml.document")


def test_the_name_may_be_anything() -> None:
    for name in ("a.\n", "a." + "x" * 300, ".md", "", "a.../b", "a.\N{SNOWMAN}"):
        assert parsed(name, b"plain words").pages


@pytest.mark.parametrize(
    ("words", "near_limit"),
    [
        ("pdfium: out of memory", False),
        ("Cannot allocate memory (os error 12)", False),
        ("OS can't spawn: failed to spawn thread", True),
    ],
)
def test_what_kreuzberg_says_of_exhausted_memory_is_a_sign_of_memory(
    words: str, near_limit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise kreuzberg.ParsingError(words)

    monkeypatch.setattr(kreuzberg, "extract_file_sync", fail)
    with pytest.raises((MemoryError, RuntimeError)) as caught:
        parsed("a.pdf", samples.pdf([["a"]]))
    assert memory_sign(caught.value, is_near_limit=near_limit)


def test_a_failure_that_nobody_knows_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("what is this?")

    monkeypatch.setattr(kreuzberg, "extract_file_sync", fail)
    with pytest.raises(RuntimeError, match="what is this"):
        parsed("a.pdf", samples.pdf([["a"]]))


MULTIPART = b"From: a@b.c\r\nSubject: scan\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=bb\r\n\r\n"
ATTACHED = (
    b"--bb\r\nContent-Type: application/pdf; name=a.pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\nJVBERi0xLjQKJdPr6eEK\r\n--bb--\r\n"
)


def test_the_words_of_a_mail_in_html_stay_apart() -> None:
    page = (
        b"<div>Dear Ada,</div><div>the invoice is <b>R&amp;D</b>.</div><table><tr><td>one</td><td>two</td></tr></table>"
    )
    mail = MULTIPART + b"--bb\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + page + b"\r\n" + ATTACHED
    (chunk,) = chunks_of("a.eml", mail)
    words = chunk.text.replace("|", " ").split()
    assert {"scan", "Ada,", "the", "one", "two"} <= set(words)
    assert "R&D" in chunk.text


def test_a_mail_of_attachments_only_is_its_subject() -> None:
    (chunk,) = chunks_of("a.eml", MULTIPART + ATTACHED)
    assert "scan" in chunk.text
    assert "JVBER" not in chunk.text
