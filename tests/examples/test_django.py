"""The example of a Django site: run as its README says, and its tables made by Django's own migrate."""

from pathlib import Path

import psycopg

from jobs.migrate import migrate
from tests.examples.site import ROOT, Site, environment, free_port, serving
from tests.jobs.test_migrate import empty

__all__ = ["empty"]

FORM = "application/x-www-form-urlencoded"


def test_a_note_and_its_job_commit_together_and_a_refused_one_leaves_no_job(empty: str, tmp_path: Path) -> None:
    site = Site(ROOT / "examples" / "django", environment(empty), free_port())
    site.run("python", "manage.py", "migrate")
    assert migrate(empty) == []  # nothing is missing
    assert "No changes detected" in site.run("python", "manage.py", "makemigrations", "--check", "--dry-run")
    serve = ["python", "manage.py", "runserver", "--noreload", str(site.port)]
    with serving(site, tmp_path / "log", *serve), psycopg.connect(empty, autocommit=True) as db:
        status, note = site.ask("/notes", b"slug=first&text=three+small+words", FORM)
        assert status == 201
        assert site.ask("/notes", b"slug=first&text=again", FORM)[0] == 409
        assert db.execute("SELECT payload FROM background_jobs").fetchall() == [({"note_id": note["id"]},)]
        site.run("oomph", "worker", "--app", "handlers:production", "--drain", "--pools", "system")
        assert site.ask(f"/notes/{note['id']}") == (200, {"slug": "first", "words": 3})
        assert db.execute("SELECT status FROM background_jobs").fetchall() == [("succeeded",)]
