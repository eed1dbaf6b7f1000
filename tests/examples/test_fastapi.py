"""The example of a FastAPI service: run as its README says."""

import json
from pathlib import Path

import pytest

from tests.examples.site import ROOT, Site, as_url, environment, free_port, serving
from tests.jobs.lab import Connection


@pytest.fixture
def site(url: str) -> Site:
    return Site(ROOT / "examples" / "fastapi", environment(as_url(url)), free_port())


def test_an_account_and_its_welcome_commit_together_and_a_refused_one_leaves_no_job(
    site: Site, db: Connection, tmp_path: Path
) -> None:
    with serving(site, tmp_path / "log", "uvicorn", "service:api", "--port", str(site.port)):
        status, account = site.ask("/accounts", json.dumps({"email": "ada@example.org"}).encode())
        assert (status, account["welcomed"]) == (201, False)
        status, answer = site.ask("/accounts", json.dumps({"email": "ada@example.org"}).encode())
        assert (status, answer["detail"]) == (409, "ada@example.org has an account already")
        assert db.execute("SELECT payload ->> 'account_id' FROM background_jobs").fetchall() == [(account["id"],)]
        log = site.run("oomph", "worker", "--app", "handlers:production", "--drain", "--pools", "system")
        assert "Welcome, ada@example.org!" in log
        assert site.ask(f"/accounts/{account['id']}") == (200, {**account, "welcomed": True})
    assert db.execute("SELECT status FROM background_jobs").fetchall() == [("succeeded",)]
