"""What kreuzberg loses of Word files and XML."""

import zipfile
from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st

from jobs.documents.pipeline.references import restore, spell_out_word, spell_out_xml
from scripts import samples
from tests.documents.conftest import parsed


def test_references_are_spelt_out_and_come_back() -> None:
    given = b'<a b="&quot;&amp;">R&amp;D &lt;&#233;&#xE9;&#x26;&gt; &unknown; &#0; &#xD800;</a>'
    spelt = spell_out_xml(given)
    assert b"&amp;" not in spelt
    assert restore(spelt.decode()) == '<a b=""&">R&D <éé&> &unknown; &#0; &#xD800;</a>'


def test_xml_keeps_its_references() -> None:
    (page,) = parsed("a.xml", b"<?xml version='1.0'?><a><b>R&amp;D &#233;</b></a>").pages
    assert "R&D é" in page.text


def test_a_word_file_without_references_is_left_as_it_is() -> None:
    content = samples.docx([("Title", ["text"])])
    assert spell_out_word(content) is content


def test_a_word_file_with_references_keeps_all_its_other_parts() -> None:
    content = samples.docx([("R&D", ["a < b"])])
    with zipfile.ZipFile(BytesIO(content)) as before, zipfile.ZipFile(BytesIO(spell_out_word(content))) as after:
        assert after.namelist() == before.namelist()
        assert b"&" not in after.read("word/document.xml")
        assert after.read("word/styles.xml") == before.read("word/styles.xml")


@given(st.binary(max_size=200))
def test_what_is_no_word_file_is_left_as_it_is(content: bytes) -> None:
    assert spell_out_word(content) is content
