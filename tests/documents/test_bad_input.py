"""What is said of files that cannot be read, and that what can be read of odd ones is."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jobs.documents.detect import HEAD_BYTES, detect
from jobs.documents.errors import (
    BROKEN_UTF8,
    DAMAGED,
    EMPTY,
    NO_TEXT,
    NOT_TEXT,
    PASSWORD,
    UNSUPPORTED,
    UnreadableDocument,
)
from jobs.documents.pipeline.parse import parse
from jobs.documents.submit import base_name
from scripts import samples
from supervisor.commands.files import find_files
from tests.documents import hostile
from tests.documents.conftest import chunks_of, parsed
from tests.documents.hostile import SECTIONS

NOBODY = 65534
MIB = 1 << 20


def refusal(filename: str, content: bytes) -> str:
    with pytest.raises(UnreadableDocument) as caught:
        parsed(filename, content)
    return str(caught.value)


def refusal_at_submission(filename: str, content: bytes) -> str:
    with pytest.raises(UnreadableDocument) as caught:
        detect(filename, content[:HEAD_BYTES], len(content))
    assert refusal(filename, content) == str(caught.value)
    return str(caught.value)


def texts(filename: str, content: bytes) -> list[str]:
    return [each.text for each in chunks_of(filename, content)]


@pytest.mark.parametrize("content", [b"", b" \n\t\n "])
@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.txt", "a"])
def test_a_file_without_content_is_empty(name: str, content: bytes) -> None:
    assert refusal_at_submission(name, content) == EMPTY


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.xlsx", "a.doc"])
def test_a_file_of_zeros_is_damaged(name: str) -> None:
    assert refusal_at_submission(name, bytes(100_000)) == DAMAGED


def test_a_text_of_zeros_is_no_text() -> None:
    assert refusal_at_submission("a.txt", bytes(100_000)) == NOT_TEXT


def test_an_encrypted_pdf_has_a_password() -> None:
    assert refusal("a.pdf", hostile.encrypted_pdf()) == PASSWORD


def test_an_encrypted_office_file_has_a_password() -> None:
    assert refusal("a.docx", hostile.encrypted_office()) == PASSWORD


def test_an_encrypted_zip_part_has_a_password() -> None:
    content = bytearray(samples.docx(SECTIONS))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    assert refusal("a.docx", bytes(content)) == PASSWORD


@pytest.mark.parametrize(
    ("filename", "make"),
    [
        ("a.pdf", lambda: samples.pdf([["a"]])[:200]),
        ("a.docx", lambda: samples.docx(SECTIONS)[:900]),
        ("a.xlsx", lambda: samples.xlsx({"a": [["b"]]})[:700]),
        ("a.pptx", lambda: samples.pptx(SECTIONS)[:900]),
        ("a.epub", lambda: samples.epub("Book", SECTIONS)[:600]),
    ],
)
def test_a_truncated_document_is_damaged(filename: str, make: Callable[[], bytes]) -> None:
    assert refusal(filename, make()) == DAMAGED


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx", "a.pptx", "a.epub", "a.odt"])
def test_an_archive_under_the_name_of_a_document_is_damaged(name: str) -> None:
    assert refusal(name, samples.archive({"b.txt": b"words"})) == DAMAGED


@pytest.mark.parametrize(
    ("filename", "content"),
    [
        ("a.pdf", bytes(range(128, 256)) * 50),
        ("a.pdf", b"only words\n" * 20),
        ("a.docx", b"words"),
        ("a.doc", b"words"),
    ],
)
def test_what_is_not_of_the_type_that_its_name_says_is_damaged(filename: str, content: bytes) -> None:
    assert refusal_at_submission(filename, content) == DAMAGED


@pytest.mark.parametrize(
    ("name", "content", "mime_type"),
    [
        ("a.txt", samples.pdf([["Engines"]]), "application/pdf"),
        ("a.docx", samples.pdf([["Engines"]]), "application/pdf"),
        ("a.pdf", samples.docx(SECTIONS), "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a", samples.docx(SECTIONS), "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a.docx", samples.xlsx({"S": [["a"]]}), "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("a.zip", samples.pptx(SECTIONS), "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
        ("a.docx", samples.epub("Book", SECTIONS), "application/epub+zip"),
        ("a.pdf", samples.html("Page", SECTIONS), "text/html"),
        ("a.docx", b"{\\rtf1 words}", "application/rtf"),
        ("a.png", b"words", "text/plain"),
        ("a.bin", b"BM and MZ begin words too", "text/plain"),
    ],
)
def test_a_wrong_extension_does_no_harm_where_the_content_says_what_it_is(
    name: str, content: bytes, mime_type: str
) -> None:
    assert detect(name, content[:HEAD_BYTES], len(content)) == mime_type
    assert parsed(name, content).mime_type == mime_type


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(40)
UNREAD = {
    "png": PNG,
    "jpeg": b"\xff\xd8\xff\xe0" + bytes(60),
    "svg": b"<?xml version='1.0'?>\n<!-- drawn -->\n<svg xmlns='http://www.w3.org/2000/svg'><text>a</text></svg>",
    "svg bomb": b"<?xml version='1.0'?>" + hostile.entity_bomb("svg") + b"<svg><text>&z;</text></svg>",
    "mp3": b"ID3\x04" + bytes(60),
    "mp4": b"\0\0\0\x20ftypisom" + bytes(60),
    "zip": samples.archive({"a.txt": b"words"}),
    "zip in a zip": samples.archive({"a.zip": samples.archive({"b.docx": samples.docx(SECTIONS)})}),
    "gzip": b"\x1f\x8b\x08" + bytes(60),
    "7z": b"7z\xbc\xaf\x27\x1c" + bytes(60),
    "tar": bytes(257).replace(b"\0", b"a") + b"ustar\0" + bytes(300),
    "program": Path("/bin/true").read_bytes(),
    "database": b"SQLite format 3\0" + bytes(60),
    "bytes": bytes(range(256)),
}


@pytest.mark.parametrize("kind", [kind for kind in UNREAD if kind != "bytes"])
@pytest.mark.parametrize("name", ["a.txt", "a.bin", "a"])
def test_what_nothing_reads_is_refused_at_submission_whatever_its_name(kind: str, name: str) -> None:
    assert refusal_at_submission(name, UNREAD[kind]) == UNSUPPORTED


def test_bytes_without_a_name_or_a_signature_are_not_supported() -> None:
    assert refusal_at_submission("a.bin", UNREAD["bytes"]) == UNSUPPORTED


def test_bytes_that_call_themselves_text_are_no_text() -> None:
    assert refusal_at_submission("a.txt", UNREAD["bytes"] * 4) == NOT_TEXT


def test_a_word_file_inside_an_archive_inside_a_word_file_is_not_looked_for() -> None:
    nested = samples.archive({"inner.docx": samples.docx([("Secret", ["hidden words"])])})
    content = hostile.with_parts(samples.docx(SECTIONS), {"word/embeddings/a.zip": lambda part, _: part.write(nested)})
    assert not any("hidden" in text for text in texts("a.docx", content))


def test_a_document_without_text_says_so() -> None:
    assert refusal("a.pdf", samples.pdf([[]])) == NO_TEXT
    assert refusal("a.html", b"<html><body><img src='a.png'></body></html>") == NO_TEXT


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["plain words\n", "Широкая электрификация южных губерний\n", "日本語の文章\n二行目\n", "🇩🇪 flags\n"]
)
def test_utf_16_is_read_with_and_without_a_mark(encoding: str, text: str) -> None:
    assert texts("a.txt", text.encode(encoding)) == [text.strip()]
    assert texts("a", text.encode(encoding)) == [text.strip()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"a,b\nwords,\0\n"),
        ("a.html", b"<html><body>wo\0rds</body></html>"),
        ("a.txt", b"only words and \0 nothing more\n"),
        ("a.txt", "Gr\u00fc\u00dfe aus \0 K\u00f6ln, und noch mehr\n".encode()),
        ("a", b"only words and \0 nothing more\n"),
    ],
)
def test_a_zero_in_a_text_does_not_turn_it_into_chinese(name: str, content: bytes) -> None:
    with pytest.raises(UnreadableDocument):
        detect(name, content, len(content))
    assert refusal(name, content) == (NOT_TEXT if name != "a" else UNSUPPORTED)


@pytest.mark.parametrize("text", ["いぬ\nねこ と さる\n" * 3, "तितली उड़ी\n" * 5, "日本語の文章\n" * 2000, "a 漢字\n"])
def test_utf_16_of_other_scripts_is_still_told(text: str) -> None:
    assert texts("a.txt", text.encode("utf-16-be"))[0].startswith(text[:4])
    assert texts("a.txt", text.encode("utf-16-le"))[0].startswith(text[:4])


def test_utf_16_that_is_cut_in_a_character_is_no_text() -> None:
    assert refusal("a.txt", "\N{BOM}words".encode("utf-16-le")[:-1]) == NOT_TEXT


@pytest.mark.parametrize("encoding", ["utf-7", "unicode_escape", "raw_unicode_escape", "punycode", "idna"])
def test_what_is_declared_in_no_encoding_of_text_is_read_as_it_is(encoding: str) -> None:
    content = f'<?xml version="1.0" encoding="{encoding}"?><a>+2AA- \\ud800 Grüße</a>'.encode()
    (text,) = texts("a.xml", content)
    assert text.endswith("+2AA- \\ud800 Grüße")


def test_broken_utf_8_says_where() -> None:
    whole = "Grüße aus Köln. ".encode()
    assert refusal("a.txt", whole + b"\xff" + whole) == BROKEN_UTF8.format(len(whole) + 1)
    assert refusal("a.txt", whole + "ü".encode()[:1]) == BROKEN_UTF8.format(len(whole) + 1)


def test_broken_utf_8_far_into_a_file_says_where() -> None:
    whole = "Grüße\n".encode() * 400_000
    assert refusal("a.txt", whole + b"\xc3(" + whole) == BROKEN_UTF8.format(f"{len(whole) + 1:,}")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Широкая электрификация южных губерний даст мощный толчок подъёму сельского хозяйства"),
        ("koi8-r", "Широкая электрификация южных губерний даст мощный толчок подъёму сельского хозяйства"),
        ("shift_jis", "日本語の文章には空白がありません。" * 3),
        ("gb18030", "中文文本没有空格。分成句子。" * 3),
        ("cp1252", "Der schöne Sommer in München war für die Händler ein Übel. " * 3),
        ("cp1252", "Ünïcode"),
    ],
)
def test_a_text_in_an_older_encoding_is_told_by_its_letters(encoding: str, text: str) -> None:
    assert texts("a.txt", text.encode(encoding)) == [text.strip()]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd.txt", "passwd.txt"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("a\nb\r.txt", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}.txt"),
        ("..", "unnamed"),
        ("a\0.txt", "a\N{REPLACEMENT CHARACTER}.txt"),
    ],
)
def test_a_name_is_no_path_and_one_line(given: str, kept: str) -> None:
    assert base_name(given) == kept


@pytest.mark.parametrize(
    "name", ["../../a.txt", "a\nb.txt", "a.\n", "a.", "." * 300, "a\0b", "", "-rf", "a.\N{SNOWMAN}"]
)
def test_whatever_the_name_the_content_is_read(name: str) -> None:
    assert texts(name, b"plain words") == ["plain words"]


@contextmanager
def as_nobody() -> Iterator[None]:
    """As a user whom permissions bind; root reads everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_read_is_no_fault_of_the_document() -> None:
    with TemporaryDirectory(prefix="oomph-test-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "a.txt")
        path.write_bytes(b"words")
        path.chmod(0)
        with as_nobody(), pytest.raises(PermissionError):
            parse("a.txt", path)
        ((found,), skipped) = find_files([path], MIB)
        assert skipped == []
        with as_nobody(), pytest.raises(PermissionError), found.opened():
            pass


def test_links_that_lead_in_a_circle_are_left_out_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    (tmp_path / "folder").symlink_to(".")
    found, skipped = find_files([tmp_path], MIB)
    assert found == []
    assert [(Path(name).name, why) for name, why in skipped] == [
        ("one", "Too many levels of symbolic links"),
        ("two", "Too many levels of symbolic links"),
    ]
    with pytest.raises(OSError, match="symbolic links"):
        parse("a.txt", tmp_path / "one")


def test_detection_costs_no_parser() -> None:
    from subprocess import run
    from sys import executable

    code = "import jobs.documents.detect, sys; print([name for name in ('kreuzberg', 'obstore', 'pypdfium2', 'PIL', "
    code += "'charset_normalizer', 'psycopg') if name in sys.modules])"
    assert run([executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_types_that_are_read_are_those_that_the_parser_reads() -> None:
    import kreuzberg

    from jobs.documents.file_types import BY_SUFFIX

    for mime_type in set(BY_SUFFIX.values()):
        assert kreuzberg.validate_mime_type(mime_type) == mime_type
    with TemporaryDirectory() as folder:
        for suffix, mime_type in BY_SUFFIX.items():
            path = Path(folder, f"a.{suffix}")
            path.write_bytes(io.BytesIO().getvalue())
            assert kreuzberg.detect_mime_type_from_path(path) == mime_type
