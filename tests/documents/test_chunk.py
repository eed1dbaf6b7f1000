"""Chunks: nothing is lost, nothing is cut where it hurts, and the place of each is right."""

import unicodedata
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.documents.pipeline.chunk import Chunk, StructuredChunker, chunk, chunker_from_environment
from jobs.documents.pipeline.headings import Page, markdown_headings
from jobs.documents.pipeline.units import tokens
from tests.documents.conftest import DOCUMENT

SENTENCE = "The quick brown fox jumps over the lazy dog. "


def chunks(text: str, size: int = 200, overlap: int = 30) -> list[Chunk]:
    return list(StructuredChunker(size, overlap)(DOCUMENT, [Page(None, text, markdown_headings(text))]))


def places(text: str, found: list[Chunk]) -> list[tuple[int, int]]:
    """Where each chunk stands in the text, each as early as the one before allows."""
    spans = []
    start = 0
    for each in found:
        start = text.index(each.text, start)
        spans.append((start, start + len(each.text)))
        start += 1
    return spans


def test_a_short_text_is_one_chunk() -> None:
    (found,) = chunks("  Hello.\n")
    assert (found.position, found.page, found.heading, found.text) == (0, None, None, "Hello.")


def test_an_empty_page_gives_no_chunk_and_takes_no_position() -> None:
    pages = [Page(1, " \n\n "), Page(2, "text")]
    assert [(each.position, each.page, each.text) for each in chunk(DOCUMENT, pages)] == [(0, 2, "text")]


def test_the_same_text_at_the_same_place_of_a_document_is_the_same_chunk() -> None:
    first, second = (
        [each.id for each in chunks(text)] for text in ("# A\n\none\n# B\n\ntwo", "# A\n\none\n# B\n\nxxx")
    )
    assert first[0] == second[0]
    assert first[1] != second[1]
    (elsewhere,) = chunk(UUID(int=8), [Page(None, "# A\n\none")])
    assert elsewhere.id != first[0]


def test_a_chunk_never_spans_two_pages() -> None:
    assert [(each.page, each.text) for each in chunk(DOCUMENT, [Page(1, "one"), Page(2, "two")])] == [
        (1, "one"),
        (2, "two"),
    ]


def test_each_section_is_a_chunk_of_its_own_under_its_path() -> None:
    found = chunks("# Animals\n\nAll of them.\n\n## Birds\n\nThey fly.\n\n# Plants\n\nThey do not.")
    assert [(each.heading, each.text.splitlines()[-1]) for each in found] == [
        ("Animals", "All of them."),
        ("Animals > Birds", "They fly."),
        ("Plants", "They do not."),
    ]


def test_a_heading_goes_with_the_text_below_it() -> None:
    found = chunks("# Animals\n\n## Birds\n\nThey fly.")
    assert [(each.heading, each.text) for each in found] == [("Animals > Birds", "# Animals\n\n## Birds\n\nThey fly.")]


def test_a_section_goes_on_over_the_end_of_its_page() -> None:
    first = "# Animals\n\nThey live."
    pages = [Page(1, first, markdown_headings(first)), Page(2, "And they eat.")]
    assert [each.heading for each in chunk(DOCUMENT, pages)] == ["Animals", "Animals"]


def test_a_long_text_is_cut_at_paragraphs() -> None:
    text = "\n\n".join([SENTENCE.strip() * 2] * 10)
    assert all(each.text.endswith("dog.") for each in chunks(text, overlap=0))


def test_without_paragraphs_it_is_cut_at_sentences_and_the_next_chunk_repeats_the_last_one() -> None:
    found = chunks(SENTENCE * 40, size=200, overlap=50)
    assert all(each.text.startswith("The quick") and each.text.endswith("dog.") for each in found)
    spans = places(SENTENCE * 40, found)
    assert spans[0][0] == 0


def test_no_word_is_cut_where_a_space_is_near() -> None:
    words = [f"word{number}" for number in range(2000)]
    assert {part for each in chunks(" ".join(words)) for part in each.text.split()} == set(words)


@pytest.mark.parametrize(
    "text",
    [
        "日本語の文章には空白がありません。" * 60,
        "漢" * 1000,
        "e\u0301" * 700,
        "🇩🇪🇫🇷" * 200,
        "👩\u200d👩\u200d👧" * 150,
        "क्षि" * 300,
    ],
    ids=["sentences", "one word", "accents", "flags", "families", "devanagari"],
)
def test_a_text_without_spaces_is_cut_between_characters_as_a_reader_sees_them(text: str) -> None:
    found = chunks(text, size=101, overlap=13)
    assert len(found) > 5
    for each in found:
        assert not unicodedata.category(each.text[0]).startswith("M")
        assert each.text[0] != "\u200d"
        assert each.text[-1] != "\u200d"
        if "🇩" in text:
            assert each.text[0] in "🇩🇫"


def test_arabic_is_cut_at_its_own_sentences() -> None:
    text = "هل هذا سؤال طويل بما فيه الكفاية؟ " * 50
    assert all(each.text.endswith("؟") for each in chunks(text))


def test_a_letter_with_endless_marks_does_not_stop_it() -> None:
    found = chunks("a" + "\u0301" * 5000)
    assert sum(len(each.text) for each in found) >= 5000


def test_marks_longer_than_a_whole_chunk_do_not_stop_it() -> None:
    text = "a" + "\u0301" * 200
    assert "".join(each.text for each in StructuredChunker(16, 0)(DOCUMENT, [Page(1, text, [])])) == text
    assert len(list(StructuredChunker(16, 4)(DOCUMENT, [Page(1, text, [])]))) < 100


@pytest.mark.parametrize(("size", "overlap"), [(15, 0), (100, 26), (100, -1)])
def test_sizes_that_cannot_work_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match=f"size={size}"):
        StructuredChunker(size, overlap)


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"The fox jumps over {number} dogs." for number in range(200)),
        " ".join(f"Wettervorhersagegenauigkeit{number}" for number in range(300)),
        "".join(map(chr, range(0x4E00, 0x5200))),
    ],
    ids=["sentences", "long words", "one word"],
)
def test_a_size_in_tokens_holds_for_every_chunk(text: str) -> None:
    found = list(StructuredChunker(64, 16, "tokens")(DOCUMENT, [Page(None, text)]))
    assert all(len(tokens(each.text)) <= 64 for each in found)
    assert min(len(tokens(each.text)) for each in found[:-1]) >= 32
    spans = places(text, found)
    assert all(after <= end for (_, end), (after, _) in pairwise(spans))
    assert all(len(tokens(text[after:end])) <= 16 for (_, end), (after, _) in pairwise(spans))
    assert not text[spans[-1][1] :].strip()


def test_the_environment_says_how_large_chunks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chunker_from_environment().name == "structured 1500/150 characters"
    monkeypatch.setenv("CHUNK_SIZE", "400")
    monkeypatch.setenv("CHUNK_UNIT", "tokens")
    assert chunker_from_environment().name == "structured 400/40 tokens"
    monkeypatch.setenv("CHUNK_OVERLAP", "0")
    assert chunker_from_environment().name == "structured 400/0 tokens"


def test_an_overlap_counts_also_without_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNK_OVERLAP", "20")
    monkeypatch.setenv("CHUNK_UNIT", "characters")
    assert chunker_from_environment().name == "structured 1500/20 characters"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"CHUNK_SIZE": "-3"}, "CHUNK_SIZE=-3: a whole number, at least 16, is allowed"),
        ({"CHUNK_SIZE": "400", "CHUNK_OVERLAP": "101"}, "CHUNK_OVERLAP=101: a whole number, from 0 to 100, is allowed"),
        ({"CHUNK_UNIT": "pages"}, "CHUNK_UNIT=pages: allowed are characters and tokens"),
        ({"CHUNK_UNIT": "tokens"}, "CHUNK_UNIT=tokens needs CHUNK_SIZE"),
    ],
)
def test_what_is_wrong_with_a_size_is_said_by_its_variable(
    settings: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=sentence):
        chunker_from_environment()


TEXTS = st.text(
    st.sampled_from("abc. \n#?漢。\u0301\u200d🇩🇪") | st.characters(exclude_categories=["Cs"]), min_size=0, max_size=1500
)


@given(TEXTS, st.integers(16, 120), st.integers(0, 30))
def test_whatever_the_text_every_character_is_in_a_chunk_in_order_and_no_chunk_is_too_long(
    text: str, size: int, overlap: int
) -> None:
    overlap = min(overlap, size // 4)
    page = Page(7, text, markdown_headings(text))
    found = list(StructuredChunker(size, overlap)(DOCUMENT, [page]))
    assert found == list(StructuredChunker(size, overlap)(DOCUMENT, [page]))
    assert [each.position for each in found] == list(range(len(found)))
    assert all(0 < len(each.text) <= size and each.page == 7 for each in found)
    covered = 0
    for each in found:
        # It may repeat what came before, but between two chunks there is nothing but space.
        start = text.find(each.text, max(0, covered - overlap))
        assert start >= 0
        assert not text[covered:start].strip()
        covered = max(covered, start + len(each.text))
    assert not text[covered:].strip()


@given(st.lists(st.sampled_from(["# A", "## B", "### C", "words here", "", "more words"]), max_size=40))
def test_whatever_the_structure_the_heading_of_a_chunk_is_the_last_one_above_or_in_it(lines: list[str]) -> None:
    text = "\n".join(lines)
    for each in chunks(text):
        titles = [line.lstrip("# ") for line in each.text.splitlines() if line.startswith("#")]
        if titles:
            assert each.heading is not None
            assert each.heading.split(" > ")[-1] == titles[-1]
    headings = [heading.offset for heading in markdown_headings(text)]
    assert all(before < after for before, after in pairwise(headings))
