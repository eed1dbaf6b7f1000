import pytest

from jobs.reports import list_notices
from tests.commands.conftest import Connection, Oomph

NOTICE = "INSERT INTO background_notices (severity, subject, body) VALUES (%s, %s, 'why') RETURNING id"


@pytest.fixture
def three(db: Connection) -> list[int]:
    rows = [db.execute(NOTICE, [*given]).fetchone() for given in (("info", "a"), ("warning", "b"), ("critical", "c"))]
    return [int(str(row[0])) for row in rows if row is not None]


def test_notices_are_listed_newest_first_and_say_how_far_their_mails_got(
    oomph: Oomph, db: Connection, three: list[int]
) -> None:
    db.execute(
        "INSERT INTO background_notice_deliveries (notice_id, channel, recipient, job_id, sent_at) "
        "VALUES (%(id)s, 'mail', 'ada@example.org', 1, now()), (%(id)s, 'mail', 'ben@example.org', 2, NULL)",
        {"id": three[2]},
    )
    listed = oomph("notices", "list", "--json").json
    assert [row["id"] for row in listed] == three[::-1]
    assert [each["state"] for each in listed[0]["deliveries"]] == ["sent", "failed"]
    assert listed[2]["deliveries"] == []
    table = oomph("notices", "list").out.splitlines()
    assert table[0].split() == ["ID", "AT", "(UTC)", "SEVERITY", "READ", "SENT", "SUBJECT"]
    assert "critical" in table[1]
    assert "1 of 2, 1 failed" in table[1]
    assert [row["id"] for row in oomph("notices", "list", "--before", str(three[1]), "--json").json] == three[:1]


def test_notices_are_marked_as_read_one_by_one_and_all_at_once(oomph: Oomph, three: list[int]) -> None:
    assert oomph("notices", "read", str(three[0])).out == "marked as read: 1\n"
    assert oomph("notices", "read", str(three[0]), "--json").json == {"marked": 0}
    assert [row["id"] for row in oomph("notices", "list", "--unread", "--json").json] == three[:0:-1]
    assert oomph("notices", "read", "--all").out == "marked as read: 2\n"
    assert oomph("notices", "list", "--unread").err == "no unread notices\n"


def test_a_notice_that_does_not_exist_is_refused_and_nothing_is_marked(oomph: Oomph, three: list[int]) -> None:
    assert "notice 99 does not exist" in oomph("notices", "read", str(three[0]), "99").refused()
    assert len(oomph("notices", "list", "--unread", "--json").json) == 3


@pytest.mark.parametrize("arguments", [[], ["1", "--all"], ["x"]])
def test_read_wants_to_know_which(oomph: Oomph, arguments: list[str]) -> None:
    oomph("notices", "read", *arguments).misused()


def test_no_notices_are_good_news(oomph: Oomph, db: Connection) -> None:
    assert oomph("notices", "list").err == "no notices: nothing went wrong so far\n"
    assert list_notices(db) == []


def test_a_hostile_subject_steers_no_terminal(oomph: Oomph, db: Connection) -> None:
    db.execute(NOTICE, ["critical", "\x1b[2Jred\x07"])
    assert "\x1b" not in oomph("notices", "list").out
