"""A hundred thousand documents: what walks over all of them or waits for them asks for some at a time."""

import threading
from collections.abc import Callable
from uuid import UUID, uuid4

import psycopg
import pytest

from jobs.documents import reports
from supervisor.commands.ingest import FileReport, _print_reports
from supervisor.commands.waiting import LOOK_AT, wait_for_documents
from tests.documents.conftest import Library

MANY = 5 * LOOK_AT


def waiting_documents(library: Library) -> list[UUID]:
    rows = library.db.execute(
        "INSERT INTO background_documents (filename, size, sha256) "
        "SELECT 'a.txt', 1, encode(sha256(int8send(number)), 'hex') FROM generate_series(1, %s) AS number "
        "RETURNING id",
        [MANY],
    ).fetchall()
    return [row[0] for row in rows]


@pytest.mark.parametrize("order", [sorted, reversed], ids=["first to last", "last to first"])
def test_who_waits_for_many_documents_asks_of_some_at_a_time(
    library: Library, monkeypatch: pytest.MonkeyPatch, order: Callable[[list[UUID]], list[UUID]]
) -> None:
    asked: list[int] = []

    def counted(db: object, ids: list[UUID]) -> object:
        asked.append(len(ids))
        return show_documents(db, ids)

    show_documents = reports.show_documents
    monkeypatch.setattr(reports, "show_documents", counted)
    ids = sorted(waiting_documents(library))

    def settle() -> None:
        for document_id in order(ids):
            other.execute("UPDATE background_documents SET status = 'READY' WHERE id = %s", [document_id])

    with psycopg.connect(library.url, autocommit=True) as other:
        thread = threading.Thread(target=settle)
        thread.start()
        assert wait_for_documents(library.db, ids, "") is None
        thread.join()
    assert max(asked) <= 2 * LOOK_AT


def test_of_very_many_only_those_that_went_wrong_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    given = [FileReport(f"{number}.txt", "READY", uuid4()) for number in range(MANY)]
    _print_reports([*given, FileReport("bad.txt", "FAILED", uuid4(), message="damaged")], as_json=False)
    shown, counted = capsys.readouterr()
    assert "bad.txt" in shown
    assert len(shown.splitlines()) == 2
    assert counted == f"1 FAILED, {MANY} READY\n"
