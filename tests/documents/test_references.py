"""What kreuzberg loses of Word files and XML."""

import zipfile
from io import BytesIO
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.documents.pipeline.references import restore, spell_out_word, spell_out_xml
from scripts import samples
from tests.documents.conftest import parsed


def test_references_are_spelt_out_and_come_back() -> None:
    given = '<a b="&quot;&amp;">R&amp;D &lt;&#233;&#xE9;&#x26;&gt; &unknown; &#0; &#xD800;</a>'
    spelt = spell_out_xml(given)
    assert "&amp;" not in spelt
    assert restore(spelt) == '<a b=""&">R&D <éé&> &unknown; &#0; &#xD800;</a>'


def test_xml_keeps_its_references() -> None:
    (page,) = parsed("a.xml", b"<?xml version='1.0'?><a><b>R&amp;D &#233;</b></a>").pages
    assert "R&D é" in page.text


def test_a_word_file_without_references_is_left_as_it_is(tmp_path: Path) -> None:
    assert spelt(tmp_path, samples.docx([("Title", ["text"])])) is None


def test_a_word_file_with_references_keeps_all_its_other_parts(tmp_path: Path) -> None:
    content = samples.docx([("R&D", ["a < b"])])
    rewritten = spelt(tmp_path, content)
    assert rewritten is not None
    with zipfile.ZipFile(BytesIO(content)) as before, zipfile.ZipFile(rewritten) as after:
        assert after.namelist() == before.namelist()
        assert b"&" not in after.read("word/document.xml")
        assert after.read("word/styles.xml") == before.read("word/styles.xml")


@given(content=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_no_word_file_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    assert spelt(tmp_path, content) is None


def spelt(folder: Path, content: bytes) -> Path | None:
    source, target = folder / "source.docx", folder / "target.docx"
    source.write_bytes(content)
    return target if spell_out_word(source, target) else None
