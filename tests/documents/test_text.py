"""Text of any size and encoding, a block at a time."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.documents.errors import NOT_TEXT, UnreadableDocument
from jobs.documents.pipeline import text as reading
from jobs.documents.pipeline.text import decode, encoding_of
from tests.documents.conftest import chunks_of, parsed

BLOCK = 64


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK_CHARS", BLOCK)


def blocks(path: Path, content: bytes) -> list[str]:
    path.write_bytes(content)
    return list(decode(path, encoding_of(path)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@given(text=st.text(st.sampled_from("ab \nüß漢🇩🇪.") | st.characters(exclude_categories=["Cs", "Cc"]), max_size=400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_lost_between_blocks(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(text.encode(encoding))
    found = list(decode(path, encoding))
    assert "".join(found) == text
    assert all(len(each) <= 2 * BLOCK for each in found)


def test_a_block_ends_at_a_paragraph_a_line_or_a_word(tmp_path: Path) -> None:
    for mark in ("\n\n", "\n", " "):
        found = blocks(tmp_path / "a", (("x" * 20 + mark) * 20).encode())
        assert len(found) > 5
        assert all(each.endswith(mark) for each in found)
    assert [len(each) for each in blocks(tmp_path / "a", b"x" * 150)] == [64, 64, 22]


def test_line_ends_of_every_system_are_one(tmp_path: Path) -> None:
    assert "".join(blocks(tmp_path / "a", b"a\r\nb\rc\n" * 40)) == "a\nb\nc\n" * 40


def test_letters_beyond_ascii_may_come_late(tmp_path: Path) -> None:
    assert blocks(tmp_path / "a", b"plain words\n" * 100 + "Köln".encode())[-1].endswith("Köln")
    assert blocks(tmp_path / "a", b"plain words\n" * 100 + "Köln".encode("cp1252"))[-1].endswith("Köln")


def test_what_is_no_text_is_told_where_it_comes() -> None:
    with pytest.raises(UnreadableDocument, match=NOT_TEXT):
        parsed("a.txt", b"plain words\n" * 10_000 + b"\0\1\2")


def test_markdown_keeps_its_headings_and_its_code_over_blocks() -> None:
    text = "# One\n\n" + "words here\n" * 20 + "\n```\n" + "# code\n" * 40 + "```\n\n## Two\n\n" + "more words\n" * 20
    found = chunks_of("a.md", text.encode())
    assert {each.heading for each in found} == {"One", "One > Two"}
    assert "".join(each.text for each in found).count("# code") >= 40


def test_xml_and_json_are_read_in_their_own_encoding() -> None:
    xml = '<?xml version="1.0" encoding="windows-1251"?><a><b>Широкая электрификация</b></a>'
    assert "Широкая электрификация" in "".join(each.text for each in chunks_of("a.xml", xml.encode("cp1251")))
    assert "Köln" in "".join(each.text for each in chunks_of("a.json", '{"city": "Köln"}'.encode("utf-16")))
