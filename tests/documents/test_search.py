"""Search: words of any language, in READY documents only, each hit with its place."""

import asyncio
from collections.abc import Sequence

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from jobs.documents.search import Hit, query_text, search
from scripts import samples
from tests.documents.conftest import Library


def put(library: Library, filename: str, *texts: str, status: str = "succeeded", heading: str | None = None) -> None:
    """A document with these chunks, a page each, whose job has this status."""
    given = library.submit(filename, "\n".join([filename, *texts]).encode())
    for position, text in enumerate(texts):
        library.db.execute(
            "INSERT INTO background_document_chunks (document_id, position, page, heading, text) "
            "VALUES (%s, %s, %s, %s, %s)",
            [given.document_id, position, position + 1, heading, text],
        )
    library.db.execute("UPDATE background_jobs SET status = %s WHERE id = %s", [status, given.job_id])


def hits(library: Library, words: str, limit: int = 10) -> Sequence[Hit]:
    found: Sequence[Hit] = search(library.db, words, limit=limit)
    return found


def places(library: Library, words: str) -> list[tuple[str, int | None]]:
    return sorted((hit.filename, hit.page) for hit in hits(library, words))


def highlighted(hit: Hit) -> list[str]:
    return [hit.snippet[start:end] for start, end in hit.matches]


def test_what_a_worker_has_read_is_found_with_its_page_and_heading(library: Library) -> None:
    library.start()
    pages = [["Engines", "It weaves algebraic patterns."], ["Looms", "It weaves flowers and leaves."]]
    library.settled(library.submit("notes.pdf", samples.pdf(pages, title="Notes")))
    (hit,) = hits(library, "flower weaving")
    assert (hit.filename, hit.title, hit.page, hit.heading) == ("notes.pdf", "Notes", 2, "Looms")
    assert hit.snippet == "Looms It weaves flowers and leaves."
    assert highlighted(hit) == ["weaves", "flowers"]


@pytest.mark.parametrize("status", ["queued", "running", "dead", "cancelled"])
def test_only_ready_documents_are_found(library: Library, status: str) -> None:
    put(library, "a.txt", "the analytical engine", status=status)
    assert hits(library, "engine") == []
    library.db.execute("UPDATE background_jobs SET status = 'succeeded'")
    assert len(hits(library, "engine")) == 1


def test_a_query_reads_as_in_a_web_search(library: Library) -> None:
    put(library, "a.txt", "the analytical engine weaves", "an engine that is analytical")
    put(library, "b.txt", "a steam engine")
    assert places(library, "engine") == [("a.txt", 1), ("a.txt", 2), ("b.txt", 1)]
    assert places(library, "analytical engine") == [("a.txt", 1), ("a.txt", 2)]
    assert places(library, '"analytical engine"') == [("a.txt", 1)]
    assert places(library, "\N{LEFT DOUBLE QUOTATION MARK}analytical engine\N{RIGHT DOUBLE QUOTATION MARK}") == [
        ("a.txt", 1)
    ]
    assert places(library, "engine -analytical") == [("b.txt", 1)]
    assert places(library, "weaves or steam") == [("a.txt", 1), ("b.txt", 1)]


def test_english_words_are_found_in_all_their_forms_and_words_that_english_drops_too(library: Library) -> None:
    put(library, "a.txt", "to be or not to be; documents were parsed")
    assert places(library, "parsing document") == [("a.txt", 1)]
    assert places(library, '"to be or not"') == [("a.txt", 1)]


@pytest.mark.parametrize(
    ("text", "words", "matched"),
    [
        ("المستندات العربية تُقرأ أيضا", "تقرأ", ["تقرأ"]),
        ("\ufea3\ufe92\ufef4\ufe90", "حبيب", ["حبيب"]),
        ("日本語の検索エンジンは良い。", "検索", ["検索"]),
        ("日本語の検索エンジンは良い。", "検索 エンジン", ["検索エンジン"]),
        ("นี่คือเอกสารภาษาไทย", "เอกสาร", ["เอกสาร"]),
        ("Широкая ЭЛЕКТРИФИКАЦИЯ губерний", "электрификация", ["ЭЛЕКТРИФИКАЦИЯ"]),
        ("die Straße in Köln", "köln", ["Köln"]),
        ("the of\ufb01ce of \ufb01nance", "office", ["office"]),
        (
            "he said \N{LEFT DOUBLE QUOTATION MARK}patterns\N{RIGHT DOUBLE QUOTATION MARK}\N{EM DASH}yes",
            "pattern",
            None,
        ),
        ("the soft\u00adware", "software", ["software"]),
    ],
    ids=[
        "arabic",
        "arabic forms",
        "japanese",
        "two japanese",
        "thai",
        "russian",
        "german",
        "ligature",
        "quotes",
        "hyphen",
    ],
)
def test_every_script_can_be_searched(library: Library, text: str, words: str, matched: list[str] | None) -> None:
    put(library, "a.txt", text)
    put(library, "b.txt", "nothing of the sort 本 日")
    (hit,) = hits(library, words)
    assert hit.filename == "a.txt"
    if matched is not None:
        assert highlighted(hit) == matched


def test_what_stands_apart_in_a_script_without_spaces_is_no_match(library: Library) -> None:
    put(library, "a.txt", "検査と索引")
    assert hits(library, "検索") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("input/output devices", "output"),
        ("the TCP/IP stack", "tcp"),
        ("in src/main/java it lies", "main"),
        ("https://example.com/path/page.html", "page"),
        ("https://example.com/path/page.html", "example.com"),
        ("see <ada@example.com> now", "ada@example.com"),
        ("ada@example.com", "ada"),
        ("a List<String> here", "string"),
        ("if x <limit and value> 3", "limit value"),
        ("&nbsp;x &copy; y", "copy"),
        ("it weaves.The next", "the weaves"),
        ("the report.pdf file", "report"),
        ("from 1837-1840 on", "1840"),
        ("on 2021-10-05", "2021-10-05"),
        ("-5 degrees", "5 degrees"),
        ("Creative Commons Attribution-ShareAlike", '"commons attribution"'),
        ("Creative Commons Attribution-ShareAlike", '"attribution-sharealike"'),
        ("Creative Commons Attribution-ShareAlike", "sharealike"),
        ("version 1.2.3", "1.2.3"),
        ("great job👍", "job"),
        ("great job👍", "👍"),
        ("1️⃣ first", "1"),
        ("50€ a day", "50"),
        ("यह एक परीक्षा है।", "है"),
        ("ሰላም። ዓለም", "ሰላም"),
        ("བོད་སྐད་ཀྱི་ཡི་གེ", "སྐད"),
        ("𠮷野家で食べる", "野家"),
        ("古𠮷𠮷𠀋字", "𠮷𠀋"),
        ("ꦧꦱꦗꦮ", "ꦱꦗ"),
        ("מי־זה", "זה"),
        ("שָׁלוֹם", "שלום"),
        ("Հայ\u0589", "Հայ"),
        ("ինչո՞ւ", "ինչու"),
    ],
)
def test_a_word_is_found_whatever_it_is_written_together_with(library: Library, text: str, words: str) -> None:
    put(library, "a.txt", text)
    put(library, "b.txt", "nothing of the sort")
    (hit,) = hits(library, words)
    assert hit.filename == "a.txt"
    assert hit.matches


def test_words_that_english_drops_can_be_excluded(library: Library) -> None:
    put(library, "a.txt", "the loom")
    put(library, "b.txt", "a loom")
    assert places(library, "loom -the") == [("b.txt", 1)]
    assert places(library, 'loom -"the loom"') == [("b.txt", 1)]
    assert places(library, "loom -loom") == []
    assert places(library, "loom -5") == [("a.txt", 1), ("b.txt", 1)]


def test_the_end_and_the_beginning_of_a_text_are_no_phrase(library: Library) -> None:
    put(library, "a.txt", "alpha beta gamma", heading="delta")
    assert hits(library, '"gamma alpha"') == []
    assert len(hits(library, '"alpha beta gamma"')) == 1


def test_a_query_as_long_as_a_page_takes_no_time(library: Library) -> None:
    put(library, "a.txt", *["some words in a text that is long enough " * 30] * 20)
    library.db.execute("SET statement_timeout = '2s'")
    assert len(hits(library, "-本" * 400)) == 10


def test_a_heading_counts_more_than_the_text(library: Library) -> None:
    put(library, "text.txt", "an engine somewhere in a text about other things")
    put(library, "heading.txt", "text about a machine and other things", heading="Chapter 1 > Engines")
    assert [hit.filename for hit in hits(library, "engine")] == ["heading.txt", "text.txt"]


def test_a_snippet_shows_the_words_in_a_long_text(library: Library) -> None:
    put(library, "a.txt", "filler words " * 60 + "the analytical engine weaves " + "more filler " * 60)
    (hit,) = hits(library, "engine")
    assert len(hit.snippet) < 400
    assert highlighted(hit) == ["engine"]


def test_the_limit_holds(library: Library) -> None:
    put(library, "a.txt", *["engine"] * 20)
    assert len(hits(library, "engine", limit=7)) == 7


@pytest.mark.parametrize("words", ["", "  ", "x" * 1001, "a\0b"])
def test_a_query_that_asks_nothing_is_refused(library: Library, words: str) -> None:
    with pytest.raises(ValueError, match="search needs words"):
        search(library.db, words)


def test_a_limit_out_of_range_is_refused(library: Library) -> None:
    with pytest.raises(ValueError, match="limit=0: 1 to 1,000"):
        search(library.db, "a", limit=0)


@pytest.mark.parametrize(
    "words",
    [
        "...",
        '"',
        "-",
        "& | !",
        "'; DROP TABLE x; --",
        "a:b <-> %s %(x)s",
        '"" ""',
        "\\",
        "-" * 900 + "x",
        "- " * 400,
        "\ud800",
        "ﷺ" * 1000,
    ],
)
def test_whatever_is_typed_is_a_query(library: Library, words: str) -> None:
    put(library, "a.txt", "words")
    hits(library, words)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("plain words", "plain words"),
        ("検索", ' "検索" '),
        ('"全文 検索" engine', '"全文 検索" engine'),
        ("-検索", ' -"検索" '),
    ],
)
def test_a_run_of_a_script_without_spaces_is_a_phrase(words: str, asked: str) -> None:
    assert query_text(words).split() == asked.split()


async def test_a_service_searches_on_the_connection_it_has(library: Library) -> None:
    await asyncio.to_thread(put, library, "a.txt", "the analytical engine")
    async with await psycopg.AsyncConnection.connect(library.url) as db:
        (hit,) = await search(db, "engine")
    parts = conninfo_to_dict(library.url)
    other = await asyncpg.connect(
        host=parts["host"], port=parts.get("port"), user=parts["user"], database=parts["dbname"]
    )
    found = await search(other, "engine")
    await other.close()
    assert found == [hit]
