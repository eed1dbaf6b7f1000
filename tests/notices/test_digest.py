"""Many notices are few messages, and none is forgotten."""

from supervisor.testing import Kit, wait_for
from tests.notices.conftest import APP, OWNERS, add_notice, stop_all, wait_sent
from tests.notices.post_office import PostOffice


def test_while_many_come_within_the_window_one_mail_says_how_many(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    for _ in range(2):
        oomph_kit.start(APP, **mail | {"WORKER_NOTICE_DIGEST_SECONDS": "4"})
    add_notice(oomph_kit.db, "the first")
    wait_for(lambda: len(office.mails) == 2, "the first, at once")
    add_notice(oomph_kit.db, "one of many", count=300)
    wait_sent(oomph_kit, notices=301)
    stop_all(oomph_kit)
    for owner in OWNERS:
        first, digest = office.to(owner)
        assert first["Subject"] == "[oomph] the first"
        assert digest["Subject"] == "[oomph] 300 notices, first: one of many"
        text = digest.get_content()
        assert "There are 300 notices." in text
        assert "And 280 more." in text
        assert "`oomph notices read --all`" in text
        assert text.count("one of many") == 20


def test_what_is_older_than_a_day_is_no_news(oomph_kit: Kit, office: PostOffice, mail: dict[str, str]) -> None:
    add_notice(oomph_kit.db, "of yesterday")
    oomph_kit.db.execute("UPDATE background_notices SET at = at - interval '25 hours'")
    add_notice(oomph_kit.db, "of today")
    oomph_kit.start(APP, **mail)
    wait_sent(oomph_kit, notices=1)
    stop_all(oomph_kit)
    assert {told["Subject"] for _, told in office.mails} == {"[oomph] of today"}
