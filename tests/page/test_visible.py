"""How text, figures and pictures are made, without a server."""

import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from jobs.activity import PEAK_BOUNDS_MB
from supervisor.page import pictures
from supervisor.page.patience import WRONG_ONES, Patience
from supervisor.page.pictures import Column, Curve, Stretch
from supervisor.page.quantities import megabytes, moment, size, span
from supervisor.page.visible import MAX_SHOWN_CHARS, short, visible

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


@given(st.text())
def test_nothing_that_is_shown_is_unseen(text: str) -> None:
    for char in visible(text):
        assert char in "\n\t" or char.isprintable() or unicodedata.category(char) == "Zs"  # a space, of some width
        assert char not in "\u202e\u200b\u2066\ufeff\u00ad"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\u00e4\u4e2d\U0001f600", "\u00e4\u4e2d\U0001f600"),
        ("invoice\u202egpj.exe", "invoice\u27e8U+202E\u27e9gpj.exe"),
        ("ad\u200bmin", "ad\u27e8U+200B\u27e9min"),
        ("\x1b[31m\r\x00", "\u27e8U+001B\u27e9[31m\u27e8U+000D\u27e9\u27e8U+0000\u27e9"),
        ("\u3164\u2028\ud800", "\u27e8U+3164\u27e9\u27e8U+2028\u27e9\u27e8U+D800\u27e9"),
    ],
)
def test_what_is_not_seen_is_named(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_texts_are_bounded() -> None:
    assert len(visible("x" * 1_000_000)) == MAX_SHOWN_CHARS + 1
    assert short("first line\nsecond") == "first line \u2026"
    assert short("x" * 500, 10) == "x" * 10 + " \u2026"
    assert short("\n\n  here  ") == "here"


def test_figures_are_told_as_people_read_them() -> None:
    assert span(0.25) == "250 ms"
    assert span(timedelta(minutes=90)) == "1 h 30 min"
    assert size(1023) == "1,023 bytes"
    assert size(1536) == "1.5 KB"
    assert megabytes(1024) == "1 GB"
    assert "3 min ago" in moment(NOW - timedelta(seconds=200), NOW)
    assert "in 2 h" in moment(NOW + timedelta(hours=2), NOW)
    assert 'datetime="2030-01-31T12:00:00.000Z"' in moment(NOW, NOW)
    assert moment(None, NOW) == ""


def parsed(picture: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def boxes(root: ElementTree.Element) -> list[tuple[float, ...]]:
    """x, y, width and height of all that is filled."""
    path = re.compile(r"M([\d.-]+) ([\d.-]+)h([\d.-]+)v([\d.-]+)h-[\d.]+z")
    return [tuple(map(float, found)) for each in root.iter("path") for found in path.findall(each.attrib["d"])]


MOMENTS = [NOW + timedelta(minutes=15 * n) for n in range(96)]


@given(st.lists(st.tuples(*[st.integers(0, 10**6)] * 3), max_size=96))
def test_columns_stay_in_their_picture(counts: list[tuple[int, int, int]]) -> None:
    picture = pictures.columns([Column(at, *each) for at, each in zip(MOMENTS, counts, strict=False)], title="<ended>")
    root = parsed(picture)
    assert root.get("aria-label", "").startswith("<ended>: ")
    filled = boxes(root)
    assert len(filled) == sum(bool(count) for each in counts for count in each)
    for x, y, width, height in filled:
        assert x >= pictures.LEFT
        assert x + width <= pictures.WIDTH
        assert y >= -3  # what is too small to be seen is drawn as one unit
        assert y + height <= pictures.FLOOR + 0.1


@given(st.lists(st.none() | st.floats(0, 10**5), max_size=96))
def test_curves_stay_in_their_picture_and_leave_gaps(values: list[float | None]) -> None:
    root = parsed(pictures.curves(MOMENTS[: len(values)], [Curve("most", "high", values)], title="Wait"))
    for line in root.iter("polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= pictures.WIDTH
            assert 0 <= y <= pictures.HEIGHT


@given(
    st.lists(st.integers(0, 10**6), min_size=len(PEAK_BOUNDS_MB) + 1, max_size=len(PEAK_BOUNDS_MB) + 1),
    st.none() | st.floats(1, 10**6),
)
def test_peaks_show_the_limit_where_it_is(counts: list[int], limit: float | None) -> None:
    root = parsed(pictures.peaks(PEAK_BOUNDS_MB, counts, limit, title="Peak memory"))
    limits = [line for line in root.iter("line") if line.get("class") == "limit"]
    assert len(limits) == (limit is not None)
    for line in limits:
        assert pictures.LEFT <= float(line.attrib["x1"]) <= pictures.WIDTH
    assert f"{sum(counts):,} attempts" in root.attrib["aria-label"]


def test_a_limit_stands_between_what_is_below_and_what_is_above() -> None:
    counts = [0] * (len(PEAK_BOUNDS_MB) + 1)
    counts[PEAK_BOUNDS_MB.index(512)] = counts[PEAK_BOUNDS_MB.index(2048)] = 1
    root = parsed(pictures.peaks(PEAK_BOUNDS_MB, counts, 1024, title="Peak memory"))
    below, above = (box[0] for box in boxes(root))
    (limit,) = (float(line.attrib["x1"]) for line in root.iter("line") if line.get("class") == "limit")
    assert below < limit < above


@given(st.lists(st.tuples(st.floats(-100, 5000), st.floats(0, 5000)), min_size=1, max_size=20))
def test_a_time_line_stays_between_its_ends(given_stretches: list[tuple[float, float]]) -> None:
    stretches = [
        Stretch("<attempt>", "bad", NOW + timedelta(seconds=start), NOW + timedelta(seconds=start + length))
        for start, length in given_stretches
    ]
    begin, end = min(stretch.start for stretch in stretches), max(stretch.end for stretch in stretches)
    root = parsed(pictures.time_line(stretches, begin, end))
    assert len(list(root.iter("li"))) == len(stretches)
    for x, _, width, _ in boxes(root):
        assert x >= -0.1
        assert x + width <= pictures.LINE_WIDTH + 0.1


def test_patience_is_for_each_and_forgets() -> None:
    patience = Patience()
    for _ in range(WRONG_ONES):
        assert patience.wait("a") == 0
        patience.wrong("a")
    assert 0 < patience.wait("a") <= 60
    assert patience.wait("b") == 0
    for number in range(2_000):
        patience.wrong(f"other {number}")
    assert patience.wait("a") == 0
