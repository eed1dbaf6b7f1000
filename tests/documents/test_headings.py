"""Where sections begin."""

import pytest

from jobs.documents.pipeline.headings import Heading, Page, markdown_headings, place_headings


def titles(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in markdown_headings(text)]


def test_headings_are_found_in_both_styles() -> None:
    text = "# One #\ntext\n\nTwo\n===\n\nThree\n---\n#### Four"
    assert titles(text) == [(1, "One"), (1, "Two"), (2, "Three"), (4, "Four")]


def test_a_heading_tells_where_it_stands() -> None:
    assert markdown_headings("a\n\n# One\nb") == [Heading(3, 9, 1, "One")]
    assert markdown_headings("One\n===\nb") == [Heading(0, 8, 1, "One")]


def test_a_title_reads_without_marks() -> None:
    assert titles("# **Bold** [link](http://x) `code` 5\\* a_b") == [(1, "Bold link code 5* a_b")]


def test_what_only_looks_like_a_heading_is_none() -> None:
    assert (
        titles("```\n# comment\n```\n#hashtag\n\n| a | b |\n|---|---|\n\n- item\n---\n\nparagraph\nof two lines\n---")
        == []
    )
    assert titles("# # #") == []
    assert titles("# " + "very long " * 30) == []


def test_headings_are_placed_on_the_pages_of_a_pdf_in_their_order() -> None:
    pages = [Page(1, "Intro\nmethods are\n"), Page(2, "A long\ntitle\nMethods\ntext"), Page(3, "Intro\nmore")]
    placed = place_headings(pages, "# Intro\n\ntext\n\n# A long title\n\n## Methods\n\n## Not there\n\n# Intro\n")
    assert [[(each.offset, each.end, each.title) for each in page.headings] for page in placed] == [
        [(0, 6, "Intro")],
        [(0, 13, "A long title"), (13, 21, "Methods")],
        [(0, 6, "Intro")],
    ]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "# a" + " " * 500_000 + "b\n",
        "# " + " *a" * 200_000 + "\n",
        "\n" + " *a" * 200_000 + "\n===\n",
        ("# a" + " " * 900 + "b\n") * 500,
        "# " + "![a](" * 100_000,
        "# a" + " #" * 200_000 + "b\n",
    ],
    ids=["spaces", "marks", "underlined", "many", "links", "closings"],
)
def test_no_line_takes_longer_than_it_is_long(text: str) -> None:
    assert len(markdown_headings(text)) in (0, 500)


@pytest.mark.parametrize(
    ("line", "title"), [("# a #", "a"), ("# a ## ", "a"), ("# C#", "C#"), ("# C# #", "C#"), ("## a # b", "a # b")]
)
def test_the_marks_that_close_a_heading_are_no_part_of_it(line: str, title: str) -> None:
    assert [each.title for each in markdown_headings(line)] == [title]
