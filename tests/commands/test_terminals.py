"""Tables and colours, on terminals of any width and off them."""

import re
from collections.abc import Callable

import pytest
from psycopg.types.json import Jsonb

from tests.commands.conftest import Connection, Oomph
from tests.commands.terminal import COLOUR, terminal

Insert = Callable[..., int]


def test_a_narrow_terminal_shows_each_row_as_a_paragraph(url: str, insert: Insert) -> None:
    kind = "a-kind-with-a-rather-long-name-indeed"
    ids = [insert(kind=kind, status="dead", error=Jsonb({"type": "E", "message": "words " * 30})) for _ in range(2)]
    with terminal("jobs", "list", columns=50, DATABASE_URL=url) as narrow:
        assert narrow.end() == 0
        assert max(len(line) for line in narrow.text.splitlines() if kind not in line) <= 50  # it stays whole
        paragraphs = narrow.text.strip().split("\n\n")
        assert [re.search(r"^ID +(\d+)$", each, re.MULTILINE)[1] for each in paragraphs] == [  # type: ignore[index]
            str(job_id) for job_id in reversed(ids)
        ]
        assert all(kind in each and each.count("words") == 30 for each in paragraphs)
    with terminal("jobs", "list", columns=160, DATABASE_URL=url) as wide:
        assert wide.end() == 0
        assert len(wide.text.strip().splitlines()) == 3


@pytest.mark.parametrize(
    ("settings", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False)],
)
def test_a_terminal_has_colours_unless_it_is_told_otherwise(
    url: str, insert: Insert, settings: dict[str, str], coloured: bool
) -> None:
    insert(status="dead")
    with terminal("jobs", "list", DATABASE_URL=url, **settings) as shown:
        assert shown.end() == 0
        assert (COLOUR.search(shown.raw) is not None) == coloured
        assert "dead" in shown.text


def test_a_pipe_has_them_only_where_they_are_asked_for(oomph: Oomph, insert: Insert) -> None:
    insert(status="dead")
    assert "\x1b" not in oomph("jobs", "list").out
    assert COLOUR.search(oomph("jobs", "list", FORCE_COLOR="1").out)
    assert not COLOUR.search(oomph("jobs", "list", FORCE_COLOR="1", NO_COLOR="1").out)


def test_many_jobs_are_retried_behind_a_bar_and_few_are_not(url: str, insert: Insert, db: Connection) -> None:
    dead = [str(insert(status="dead")) for _ in range(25)]
    with terminal("jobs", "retry", "--actor", "ada", "--reason", "", *dead, DATABASE_URL=url) as many:
        assert many.end() == 0
        assert "/25" in many.raw
        assert many.text.count("is queued again") == 25
    db.execute("UPDATE background_jobs SET status = 'dead'")
    with terminal("jobs", "retry", "--actor", "ada", "--reason", "", *dead[:2], DATABASE_URL=url) as few:
        assert few.end() == 0
        assert "retrying" not in few.raw


def test_a_terminal_sees_that_a_migration_works(bare_url: str) -> None:
    with terminal("migrate", DATABASE_URL=bare_url) as migrating:
        assert migrating.end() == 0
        assert "migrating" in migrating.raw
        assert "applied 0001_initial" in migrating.text
