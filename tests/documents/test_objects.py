"""The object store: a folder and a server with the interface of S3 do the same."""

import hashlib
import os
import pwd
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.documents.objects import ObjectMissing, Objects, StoreError
from scripts import samples
from supervisor.testing.waiting import wait_for
from tests.documents.conftest import Library
from tests.documents.s3 import s3_server


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    if request.param == "folder":
        yield Objects((tmp_path / "objects").as_uri())
        return
    with s3_server(tmp_path / "s3.log") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield Objects()


def test_what_is_put_is_there_until_it_is_removed(objects: Objects, tmp_path: Path) -> None:
    big = bytes(range(256)) * 50_000  # several parts of an upload
    (tmp_path / "big").write_bytes(big)
    objects.put("a/one", b"first")
    objects.put("a/one", b"second")
    objects.put("a/b/big", tmp_path / "big")
    objects.put("ab/other", b"")
    assert objects.get("a/one") == b"second"
    assert (objects.size("a/b/big"), objects.size("a/none")) == (len(big), None)
    assert objects.fetch("a/b/big", tmp_path / "back") == hashlib.sha256(big).hexdigest()
    assert (tmp_path / "back").read_bytes() == big
    assert sorted(each.key for each in objects.below("a")) == ["a/b/big", "a/one"]
    assert all(abs(each.modified - datetime.now(UTC)) < timedelta(minutes=5) for each in objects.below("a"))
    assert objects.remove(["a/one", "a/none", "a/b/big"]) == 3
    assert list(objects.below("a")) == []
    assert objects.get("ab/other") == b""


def test_what_is_not_there_is_said_so(objects: Objects, tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing, match="there is no object none"):
        objects.get("none")
    with pytest.raises(ObjectMissing):
        objects.fetch("none", tmp_path / "none")
    assert list(objects.below("none")) == []
    assert objects.remove([]) == 0


def test_a_store_that_does_not_answer_is_named_and_its_key_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with s3_server(tmp_path / "s3.log") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OBJECT_STORE_URL", "s3://no-such-bucket")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
        with pytest.raises(StoreError, match="the object store s3://no-such-bucket did not take a") as caught:
            Objects().put("a", b"words")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"AWS_ALLOW_HTTP": "false"}, "needs AWS_ALLOW_HTTP=true"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_what_a_bucket_lacks_is_said_by_the_variables(
    given: dict[str, str], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in (reached | given).items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreError, match=hint):
        Objects("s3://papers").put("a", b"words")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_folder_of_another_user_is_told_from_a_disk_that_fails(tmp_path: Path) -> None:
    objects = Objects((tmp_path / "objects").as_uri())
    objects.put("documents/original", b"words")
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        with pytest.raises(StoreError, match=r"Permission denied.*must be one user, or share a group"):
            objects.put("documents/snapshot", b"words")
    finally:
        os.seteuid(0)


def test_documents_live_in_s3_as_in_a_folder(library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3.log") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        library.store_url = environment["OBJECT_STORE_URL"]
        library.start(**environment)
        given = library.submit("a.pdf", samples.pdf([["Looms", "They weave flowers."]]))
        (row,) = library.settled(given)
        assert (row.status, row.message) == ("READY", None)
        assert library.stored() == library.own_objects(row.id)
        library.delete(row.id)
        wait_for(lambda: not library.stored(), "all objects removed")
