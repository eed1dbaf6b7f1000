"""Not every worker has a mail server, and deploys roll."""

from pathlib import Path

from supervisor.testing import Kit, WorkerProcess, wait_for
from tests.notices.conftest import APP, OWNERS, add_notice, mail_settings, stop_all, wait_sent
from tests.notices.post_office import PostOffice, free_port

BURIED = (
    "UPDATE background_jobs SET status = 'dead', finished_at = now(), error = '{\"type\": \"UnknownKind\"}' "
    "WHERE kind = 'send-notice' AND status = 'queued' RETURNING id"
)


def test_workers_without_a_mail_server_leave_the_jobs_to_the_one_that_has_it(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    """Nor do they bury them as of an unknown kind while that one is away."""
    away = oomph_kit.start(APP, **mail_settings(free_port()) | {"WORKER_RETRY_DELAY_SECONDS": "1"})
    plain = oomph_kit.start(APP, WORKER_POOLS="system")
    add_notice(oomph_kit.db)
    away.wait_log("did not take the mail|failed")
    assert away.stop() == 0
    add_notice(oomph_kit.db, "of an unknown kind")
    oomph_kit.db.execute(
        "INSERT INTO background_jobs (kind, pool) VALUES ('nobody-knows', 'system')"
    )  # when this is dead, whatever is to be buried was
    plain.wait_log("no live worker knows the kind nobody-knows")
    queued = oomph_kit.db.execute("SELECT DISTINCT status FROM background_jobs WHERE kind = 'send-notice'").fetchall()
    assert queued == [("queued",)]
    oomph_kit.start(APP, **mail)
    wait_sent(oomph_kit, notices=3)  # the last one is of the kind that nobody knows
    stop_all(oomph_kit)
    for owner in OWNERS:
        assert len(office.to(owner)) == 2


def test_a_job_that_an_older_release_buried_is_made_anew(
    oomph_kit: Kit, office: PostOffice, mail: dict[str, str]
) -> None:
    old = oomph_kit.start(APP, **mail_settings(free_port()) | {"WORKER_RETRY_DELAY_SECONDS": "300"})
    add_notice(oomph_kit.db)
    buried: list[tuple[object, ...]] = []
    wait_for(lambda: buried.extend(oomph_kit.db.execute(BURIED).fetchall()) or len(buried) >= 2, "both are buried")
    assert old.stop() == 0
    oomph_kit.start(APP, **mail)
    wait_sent(oomph_kit, notices=1)
    stop_all(oomph_kit)
    for owner in OWNERS:
        assert len(office.to(owner)) == 1


def test_a_worker_that_serves_no_system_jobs_says_that_it_sends_nothing(oomph_kit: Kit, mail: dict[str, str]) -> None:
    worker = oomph_kit.start(APP, **mail | {"WORKER_POOLS": "agent"})
    assert "sends no notices, because its WORKER_POOLS lack system" in worker.text()


def test_an_app_with_a_kind_of_the_same_name_is_refused(oomph_kit: Kit, tmp_path: Path, mail: dict[str, str]) -> None:
    oomph_kit.start("tests.notices.app:own_kind", WORKER_POOLS="system")  # which is no trouble without the settings
    refused = WorkerProcess(oomph_kit.url, "tests.notices.app:own_kind", tmp_path / "refused.log", mail)
    assert refused.wait() == 1
    assert "called like one of Oomph's own" in refused.text()
