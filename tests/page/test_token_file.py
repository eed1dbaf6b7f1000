"""The token file of a page that serves already: what changes in it counts, and what breaks it harms nobody."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.requests import Request

from supervisor.page import Actor, JobsPage, Role, TokenError, read_token_file
from supervisor.page.token_file import LOOK_SECONDS, MAX_FILE_BYTES, TokenFile, why_open
from supervisor.testing.waiting import wait_for
from tests.page.serving import OWNER_TOKEN, TOKENS, VIEWER_TOKEN, Browser, served

NEW_TOKEN = "new-token-of-the-tests-0123456789"
REQUEST = Request({"type": "http", "headers": [], "client": ("192.0.2.1", 1)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "tokens"
    made.touch(0o600)
    made.write_text(TOKENS)
    return made


class Hand:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def tokens(path: Path, clock: Hand) -> TokenFile:
    return TokenFile(path, clock)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_token_that_is_taken_out_ends_its_sessions_while_the_page_serves(url: str, path: Path) -> None:
    page = JobsPage(url, authenticate=read_token_file(path))
    with served(page) as address, Browser(address) as owner, Browser(address) as viewer:
        assert owner.sign_in(OWNER_TOKEN).status_code == 200
        assert viewer.sign_in(VIEWER_TOKEN).status_code == 200
        path.write_text(f"owner ada {NEW_TOKEN}\nviewer ben {VIEWER_TOKEN}\n")
        wait_for(lambda: owner.get("/").status_code == 401, "the session's end", 10)
        assert viewer.get("/").status_code == 200
        assert owner.sign_in(OWNER_TOKEN).status_code == 401
        assert owner.sign_in(NEW_TOKEN).status_code == 200


def test_a_file_that_is_put_in_its_place_counts_and_a_role_is_what_it_says_now(
    path: Path, tokens: TokenFile, clock: Hand
) -> None:
    """As a secret of Kubernetes changes: by another file of that name."""
    other = path.with_name("other")
    other.write_text(TOKENS.replace("viewer ben", "owner  ben"))
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.rename(path)
    clock.now += LOOK_SECONDS
    assert tokens.actor_of_token(VIEWER_TOKEN, REQUEST) == Actor("ben", Role.OWNER)


def test_the_file_is_not_looked_at_for_every_request(path: Path, tokens: TokenFile, clock: Hand) -> None:
    path.write_text(f"owner ada {NEW_TOKEN}\n")
    clock.now += LOOK_SECONDS / 2
    assert tokens.actor_of_token(NEW_TOKEN, REQUEST) is None
    clock.now += LOOK_SECONDS / 2
    assert tokens.actor_of_token(NEW_TOKEN, REQUEST) == Actor("ada", Role.OWNER)
    assert tokens.actor_of_token(OWNER_TOKEN, REQUEST) is None


def gone(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_text("")


def misspelt(path: Path) -> None:
    path.write_text(TOKENS + "somebody\n")


def no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def too_much(path: Path) -> None:
    path.write_text(TOKENS + "#" * MAX_FILE_BYTES)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("breaks", [gone, empty, misspelt, no_text, too_much, a_pipe])
def test_a_file_that_is_broken_changes_nothing_and_is_told_once_until_it_is_mended(
    path: Path, tokens: TokenFile, clock: Hand, caplog: pytest.LogCaptureFixture, breaks: Callable[[Path], None]
) -> None:
    breaks(path)
    for _ in range(3):
        clock.now += LOOK_SECONDS
        assert tokens.actor_of_token(OWNER_TOKEN, REQUEST) == Actor("ada", Role.OWNER)
    (told,) = warnings(caplog)
    assert str(path) in told
    assert "the tokens that were read last are known until that is mended" in told
    path.unlink(missing_ok=True)
    path.write_text(f"owner ada {NEW_TOKEN}\n")
    clock.now += LOOK_SECONDS
    assert tokens.actor_of_token(NEW_TOKEN, REQUEST) == Actor("ada", Role.OWNER)
    path.unlink()
    clock.now += LOOK_SECONDS
    assert tokens.actor_of_token(NEW_TOKEN, REQUEST) == Actor("ada", Role.OWNER)
    assert len(warnings(caplog)) == 2


def test_a_pipe_is_read_once(clock: Hand) -> None:
    """As `--token-file <(...)` of a shell gives one."""
    reading, writing = os.pipe()
    os.write(writing, TOKENS.encode())
    os.close(writing)
    tokens = TokenFile(Path(f"/dev/fd/{reading}"), clock)
    os.close(reading)
    clock.now += LOOK_SECONDS
    assert tokens.actor_of_token(OWNER_TOKEN, REQUEST) == Actor("ada", Role.OWNER)


def test_a_file_that_cannot_be_used_is_refused_at_the_start(path: Path) -> None:
    too_much(path)
    with pytest.raises(TokenError, match="has more than"):
        read_token_file(path)


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_who_lets_others_read_the_file_is_warned(
    path: Path, caplog: pytest.LogCaptureFixture, mode: int, warns: bool
) -> None:
    path.chmod(mode)
    read_token_file(path)
    assert [f"(its mode is {mode:04o})" in told for told in warnings(caplog)] == [True] * warns


def test_a_group_that_root_gave_the_file_to_is_meant(path: Path) -> None:
    """As a unit's group, or that of a pod, reads what is not its own."""
    path.chmod(0o640)
    mine = path.stat()
    others = os.stat_result([*mine[:4], mine.st_uid + 1, *mine[5:10]])
    assert why_open(path, mine) is not None
    assert why_open(path, others) is None
