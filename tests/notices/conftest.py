from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from supervisor.testing import Kit, wait_for
from tests.notices.post_office import Certificates, Hook, PostOffice, open_hook, open_post_office

APP = "tests.notices.app:app"
OWNERS = ("ada@example.org", "ben@example.org")


@pytest.fixture
def office() -> PostOffice:
    return PostOffice()


@pytest.fixture
def mail(office: PostOffice) -> Iterator[dict[str, str]]:
    """The settings of a worker that hands its mail in at `office`, which speaks plainly and only to this host."""
    with open_post_office(office) as port:
        yield mail_settings(port)


@pytest.fixture
def hook() -> Iterator[Hook]:
    with open_hook() as opened:
        yield opened


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def mail_settings(port: int, *, digest: float = 0) -> dict[str, str]:
    return {
        "WORKER_OWNERS": ", ".join(OWNERS),
        "SMTP_URL": f"smtp://localhost:{port}",
        "WORKER_NOTICE_DIGEST_SECONDS": str(digest),
        "WORKER_POOLS": "agent,system",
    }


def add_notice(
    db: psycopg.Connection[tuple[object, ...]],
    subject: str = "it burns",
    body: str = "at the back",
    count: int = 1,
    event: str | None = None,
) -> None:
    """Notices as any part of the system writes them."""
    db.execute(
        "INSERT INTO background_notices (event, severity, subject, body) "
        "SELECT coalesce(%s, 'test:' || gen_random_uuid()), 'critical', %s, %s FROM generate_series(1, %s)",
        [event, subject, body, count],
    )


def wait_sent(kit: Kit, notices: int, recipients: int = len(OWNERS), seconds: float = 30) -> None:
    """Wait until so many notices were sent to so many, each once by what the table says, and no job is left."""

    def look() -> bool:
        sent = kit.db.execute(
            "SELECT count(*), count(DISTINCT notice_id), count(sent_at) FROM background_notice_deliveries"
        ).fetchone()
        left = kit.db.execute(
            "SELECT count(*) FROM background_jobs WHERE kind IN ('send-notice', 'call-webhook') "
            "AND status IN ('queued', 'running')"
        ).fetchone()
        return sent == (notices * recipients, notices, notices * recipients) and left == (0,)

    wait_for(look, f"{notices} notices sent to {recipients}", seconds)


def stop_all(kit: Kit) -> None:
    """End every worker in order: what it had begun is done then, and nothing new comes."""
    for worker in kit.workers:
        if worker.process.poll() is None:
            assert worker.stop() == 0, worker.obituary()


def logs_of(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in folder.glob("*.log"))
