"""Notices by e-mail: real workers, a real mail server."""

import os
import signal
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

from supervisor.testing import Kit, wait_for
from tests.notices.app import DEADLY, Work
from tests.notices.conftest import APP, OWNERS, add_notice, logs_of, mail_settings, stop_all, wait_sent
from tests.notices.post_office import PASSWORD, USER, Certificates, PostOffice, free_port, open_post_office

SIGNED_IN = f"{quote(USER)}:{quote(PASSWORD, safe='')}@localhost"


def test_a_pause_that_three_workers_see_is_one_mail_to_each_owner(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    pools = {"WORKER_POOLS": "agent,ingest,system", "WORKER_INGEST_CONCURRENCY": "1"}
    for _ in range(3):
        oomph_kit.start(APP, **mail | pools)
    for _ in range(8):
        oomph_kit.enqueue(DEADLY, Work())
    wait_sent(oomph_kit, notices=1)
    stop_all(oomph_kit)
    assert sorted(recipient for recipient, _ in office.mails) == sorted(OWNERS)
    told = office.to(OWNERS[0])[0]
    assert told["Subject"] == "[oomph] deadly is paused: its jobs killed their process 5 times in a row"
    assert told["To"] == OWNERS[0]
    assert told["Auto-Submitted"] == "auto-generated"
    assert told.get_content_type() == "text/plain"
    assert "5 kills in a row" in told.get_content()
    assert "`oomph kinds resume deadly --actor NAME` lets it run again; with --probe" in told.get_content()
    assert told["Message-ID"] != office.to(OWNERS[1])[0]["Message-ID"]


def test_a_mail_server_that_is_away_gets_each_mail_once_when_it_is_back(oomph_kit: Kit, office: PostOffice) -> None:
    port = free_port()
    oomph_kit.start(APP, **mail_settings(port))
    add_notice(oomph_kit.db)
    wait_for(
        lambda: oomph_kit.db.execute("SELECT FROM background_attempts WHERE verdict = 'failed'").fetchone() == (),
        "a try in vain",
    )
    add_notice(oomph_kit.db, "and again")  # waits for the one before: whoever comes back is not flooded
    with open_post_office(office, port=port):
        wait_sent(oomph_kit, notices=2)
        stop_all(oomph_kit)
    for owner in OWNERS:
        assert [mail["Subject"] for mail in office.to(owner)] == ["[oomph] it burns", "[oomph] and again"]


def test_a_worker_that_is_killed_before_the_mail_is_taken_leaves_it_to_another(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    """The server has the text and its refusal is on the way: nothing was taken, so each owner gets it once."""
    first = oomph_kit.start(APP, **mail)
    killed = threading.Lock()

    def reply() -> str:
        if killed.acquire(blocking=False):
            office.mails.clear()
            os.kill(first.pid, signal.SIGKILL)
            return "451 not now"
        if first.process.poll() is None:  # its other mail
            office.mails.clear()
            return "451 not now"
        return "250 OK"

    office.reply = reply
    add_notice(oomph_kit.db)
    first.wait()
    oomph_kit.start(APP, **mail)
    # The lost worker is a notice too.
    wait_sent(oomph_kit, notices=2)
    stop_all(oomph_kit)
    for owner in OWNERS:
        subjects = [mail["Subject"] for mail in office.to(owner)]
        assert sum("it burns" in subject for subject in subjects) == 1, subjects
        assert sum("is lost with" in subject for subject in subjects) == 1, subjects


def test_a_mail_that_was_taken_by_a_server_that_could_not_say_so_comes_again_under_its_id(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    first = oomph_kit.start(APP, **mail | {"WORKER_OWNERS": OWNERS[0]})

    def reply() -> str:
        if first.process.poll() is None:
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
        return "250 OK"

    office.reply = reply
    add_notice(oomph_kit.db)
    first.wait()
    oomph_kit.start(APP, **mail | {"WORKER_OWNERS": OWNERS[0]})
    wait_sent(oomph_kit, notices=2, recipients=1)
    stop_all(oomph_kit)
    ids = [mail["Message-ID"] for mail in office.to(OWNERS[0]) if mail["Subject"] == "[oomph] it burns"]
    assert len(ids) == 2
    assert len(set(ids)) == 1


@pytest.mark.filterwarnings("ignore:Requiring AUTH")  # aiosmtpd sees no TLS in what was TLS from its first byte
@pytest.mark.parametrize("way", ["smtps", "starttls"])
def test_a_certificate_that_nobody_vouches_for_is_refused_unless_a_setting_trusts_it(
    oomph_kit: Kit, office: PostOffice, certificates: Certificates, tmp_path: Path, way: str
) -> None:
    context = {"tls" if way == "smtps" else "starttls": certificates.context}
    with open_post_office(office, **context) as port:
        url = f"smtps://{SIGNED_IN}:{port}" if way == "smtps" else f"smtp://{SIGNED_IN}:{port}?starttls"
        settings = mail_settings(port) | {"SMTP_URL": url}
        doubtful = oomph_kit.start(APP, **settings)
        add_notice(oomph_kit.db)
        wait_for(lambda: "certificate verify failed" in doubtful.text(), "a refusal")
        assert doubtful.stop() == 0
        assert office.mails == []
        oomph_kit.start(APP, **settings | {"SMTP_CA_FILE": str(certificates.file)})
        wait_sent(oomph_kit, notices=1)
        stop_all(oomph_kit)
    assert len(office.mails) == 2
    assert office.encrypted == [True, True]
    assert office.mails[0][1]["From"] == USER
    assert PASSWORD not in logs_of(tmp_path)


def test_a_wrong_password_is_in_no_log_and_no_error(
    oomph_kit: Kit, office: PostOffice, certificates: Certificates, tmp_path: Path
) -> None:
    with open_post_office(office, starttls=certificates.context) as port:
        wrong = {"SMTP_URL": f"smtp://{quote(USER)}:hunter2hunter2@localhost:{port}?starttls"}
        oomph_kit.start(APP, **mail_settings(port) | wrong | {"SMTP_CA_FILE": str(certificates.file)})
        add_notice(oomph_kit.db)
        wait_for(
            lambda: (
                oomph_kit.db.execute(
                    "SELECT FROM background_attempts WHERE error ->> 'message' LIKE '%Authentication%'"
                ).fetchone()
                == ()
            ),
            "a refusal",
        )
        stop_all(oomph_kit)
    everything = oomph_kit.db.execute(
        "SELECT jsonb_agg(to_jsonb(a))::text || jsonb_agg(to_jsonb(j))::text "
        "FROM background_attempts AS a JOIN background_jobs AS j ON j.id = a.job_id"
    ).fetchone()
    assert "hunter2hunter2" not in f"{everything}{logs_of(tmp_path)}"
    assert office.mails == []


def test_an_owner_whom_the_server_does_not_know_costs_the_others_nothing(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    office.refuse = OWNERS[0]
    oomph_kit.start(APP, **mail)
    add_notice(oomph_kit.db)
    wait_for(
        lambda: (
            oomph_kit.db.execute(
                "SELECT status, attempt FROM background_jobs WHERE kind = 'send-notice' ORDER BY status"
            ).fetchall()
            == [("dead", 1), ("succeeded", 1)]
        ),
        "one refused, one sent",
    )
    stop_all(oomph_kit)
    assert [recipient for recipient, _ in office.mails] == [OWNERS[1]]


def test_hostile_names_and_messages_are_one_plain_mail(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    subject = "kind\r\nBcc: mallory@example.org\r\n\r\n<script> ünïcode \u202e " + "x" * 5_000
    body = "line\r\n.\r\nQUIT\r\n\x1b[31mred \x07 日本語 " + "y" * 20_000
    oomph_kit.start(APP, **mail)
    add_notice(oomph_kit.db, subject, body)
    wait_sent(oomph_kit, notices=1)
    stop_all(oomph_kit)
    assert sorted(recipient for recipient, _ in office.mails) == sorted(OWNERS)
    told = office.to(OWNERS[0])[0]
    assert told["Bcc"] is None
    assert told["Subject"].startswith("[oomph] kind Bcc: mallory@example.org <script> ünïcode")
    assert len(told["Subject"]) <= 150
    text = told.get_content()
    assert "日本語" in text
    assert "\nQUIT" in text.replace("\r\n", "\n")
    assert not {char for char in text if not char.isprintable()} - {"\n", "\r"}
    assert len(text) < 10_000
