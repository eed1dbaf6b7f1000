"""Reindexing: the same id, and the index of before serves until the new one is READY, or for good where that fails."""

import signal

import pytest

from jobs import cancel
from jobs.documents.errors import DocumentError
from jobs.documents.keys import edition_of, original_key
from jobs.documents.reindex import reindex, settled_documents
from jobs.documents.submit import Submission
from jobs.documents.task import Source
from jobs.failpoints import Failpoint
from supervisor.testing.waiting import wait_for
from tests.documents.conftest import Library
from tests.documents.test_ingest import expected_chunks
from tests.documents.test_life import CONTENT, stopped_child


def again(library: Library, given: Submission, source: Source = Source.PARSE) -> Submission:
    with library.db.transaction():
        job_id = reindex(library.db, given.document_id, source)
    return Submission(given.document_id, job_id, "PENDING", is_new=False, is_queued=True)


def ready(library: Library) -> Submission:
    given = library.submit("a.pdf", CONTENT)
    (row,) = library.settled(given)
    assert row.status == "READY"
    return given


@pytest.mark.parametrize("source", Source)
def test_a_reindexed_document_has_the_same_id_and_the_same_chunks(library: Library, source: Source) -> None:
    library.start()
    given = ready(library)
    row, before, stored = library.document(given.document_id), library.chunks(given.document_id), library.stored()
    library.db.execute("UPDATE background_document_chunks SET text = 'stale'")
    new = again(library, given, source)
    (after,) = library.settled(new)
    assert (after.status, after.message, after.job_id) == ("READY", None, new.job_id)
    assert library.chunks(given.document_id) == before == expected_chunks("a.pdf", CONTENT, given.document_id)
    assert (after.pages, after.title, after.chunks, after.assets) == (row.pages, row.title, row.chunks, row.assets)
    wait_for(lambda: not library.cleaning(), "everything cleaned up")
    assert library.stored() == library.own_objects(given.document_id)
    assert len(library.stored()) == len(stored)
    assert (library.stored() == stored) is (source is Source.SNAPSHOT), "what is parsed anew is stored anew"


def test_from_a_snapshot_nothing_is_parsed(library: Library) -> None:
    library.start()
    given = ready(library)
    before = library.chunks(given.document_id)
    library.objects.remove([original_key(given.document_id)])
    (row,) = library.settled(again(library, given, Source.SNAPSHOT))
    assert row.status == "READY"
    assert library.chunks(given.document_id) == before


def test_the_index_of_before_serves_until_the_new_one_is_ready(library: Library) -> None:
    with library.worker():
        given = ready(library)
    before = library.chunks(given.document_id)
    new = again(library, given)
    assert library.document(given.document_id).status == "PENDING"
    assert library.found("Jacquard") == {given.document_id}
    with library.worker(WORKER_FAILPOINTS=f"{Failpoint.DOCUMENT_WRITTEN}:stop") as worker:
        child = wait_for(lambda: stopped_child(worker, new), "a child that has written but not committed")
        assert child is not None
        assert library.document(given.document_id).status == "INDEXING"
        assert library.found("Jacquard") == {given.document_id}
        assert library.chunks(given.document_id) == before
        with pytest.raises(DocumentError, match="works on it already"):
            again(library, given)
        child.send_signal(signal.SIGCONT)
        (row,) = library.settled(new)
    assert row.status == "READY"


def test_where_the_new_one_comes_to_nothing_the_index_of_before_serves_and_says_so(library: Library) -> None:
    library.start()
    given = ready(library)
    before, stored = library.chunks(given.document_id), library.stored()
    library.objects.put(original_key(given.document_id), b"another file")
    (row,) = library.settled(again(library, given))
    assert library.job(row.job_id)[0] == "dead"
    assert row.status == "READY"
    assert row.message is not None
    assert row.message.endswith("is not what was submitted. Its earlier index still serves.")
    assert library.found("Jacquard") == {given.document_id}
    assert library.chunks(given.document_id) == before
    wait_for(lambda: not library.cleaning(), "everything cleaned up")
    assert library.stored() == stored


def test_a_reindex_that_is_cancelled_leaves_a_ready_document(library: Library) -> None:
    with library.worker():
        given = ready(library)
    new = again(library, given)
    cancel(library.db, new.job_id, actor="ada")  # type: ignore[arg-type]
    row = library.document(given.document_id)
    assert (row.status, row.message) == ("READY", "The job was cancelled by ada. Its earlier index still serves.")


def test_a_killed_reindex_is_tried_again_and_nothing_of_it_stays(library: Library) -> None:
    with library.worker():
        given = ready(library)
    new = again(library, given)
    with library.worker(
        WORKER_FAILPOINTS=f"{Failpoint.DOCUMENT_SNAPSHOT}:stop", WORKER_RETRY_DELAY_SECONDS="1"
    ) as worker:
        child = wait_for(lambda: stopped_child(worker, new), "a child that has stored a new snapshot")
        assert child is not None
        child.kill()
        wait_for(lambda: library.verdicts(new.job_id), "its verdict")
        worker.stop()
    library.start()
    (row,) = library.settled(new)
    assert row.status == "READY"
    wait_for(lambda: not library.cleaning(), "everything cleaned up")
    job_id, claim = library.job(new.job_id, "id, claim")
    assert library.stored() == library.expected_objects(given.document_id, edition_of(job_id, claim))


def test_what_cannot_be_reindexed_is_said_so(library: Library) -> None:
    given = library.submit("a.txt", b"words")
    with pytest.raises(DocumentError, match=f"is PENDING: job {given.job_id} works on it already"):
        again(library, given)
    library.db.execute("UPDATE background_jobs SET status = 'dead' WHERE id = %s", [given.job_id])
    with pytest.raises(DocumentError, match="has no snapshot yet"):
        again(library, given, Source.SNAPSHOT)
    assert again(library, given).is_queued, "one that failed is tried from its original"
    missing = Submission(given.document_id.__class__(int=1), None, "", is_new=False, is_queued=False)
    with pytest.raises(DocumentError, match="does not exist"):
        again(library, missing)


def test_all_are_walked_over_but_those_that_are_worked_on(library: Library) -> None:
    given = [library.submit(f"{number}.txt", b"%d" % number, collection) for number, collection in enumerate("aaabb")]
    for each in given[1:]:
        library.db.execute("UPDATE background_jobs SET status = 'succeeded' WHERE id = %s", [each.job_id])
    ids = [each.document_id for each in given]
    assert set(settled_documents(library.db, page=2)) == set(ids[1:])
    assert set(settled_documents(library.db, "a", page=2)) == set(ids[1:3])
