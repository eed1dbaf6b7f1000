"""Tokens that stand in a file, which is read again when it has changed."""

import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from supervisor.page.access import Actor
from supervisor.page.tokens import TokenError, Tokens, tokens_in

LOOK_SECONDS = 1.0  # between two looks at whether the file has changed, however many ask
MAX_FILE_BYTES = 128 << 10  # as many tokens as there may be, with their names, have less

log = logging.getLogger("oomph.page")


class TokenFile(Tokens):
    """The tokens of the file `path`. Whoever asks has it looked at first, if the last look is a second ago.

    A file that is gone, or does not read as one of tokens, changes nothing: what was read last is known until it is
    mended. What is no regular file, such as a pipe, is read once. Raises `TokenError`, but only when it is made.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        found = _look_at(path)
        self._is_followed = stat.S_ISREG(found.st_mode)
        self._seen = _marks(found)
        self._looked_at = clock()
        self._warned = False
        super().__init__(_read(path))
        if self._is_followed and (why := why_open(path, found)):
            log.warning("%s", why)

    def look_again(self) -> None:
        """Read the file again where it has changed."""
        now = self._clock()
        if not self._is_followed or now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            found = _look_at(self._path)  # before it is read: what is written meanwhile is another change
            if _marks(found) == self._seen and not self._warned:
                return
            if not stat.S_ISREG(found.st_mode):  # to open a pipe may take for ever
                raise TokenError(f"the token file {self._path} is no regular file any more")
            known = _read(self._path)
        except TokenError as error:
            if not self._warned:
                log.warning("%s; the tokens that were read last are known until that is mended", error)
            self._warned = True
            return
        self._seen, self._warned = _marks(found), False
        self.know(known)
        log.info("the token file %s was read again: %d tokens", self._path, len(known))


def read_token_file(path: Path) -> Tokens:
    """The tokens of a file; it is read again when it has changed. Raises `TokenError`."""
    return TokenFile(path)


def why_open(path: Path, found: os.stat_result) -> str | None:
    """Why others than who may know the tokens can read them; None where nobody can.

    A group may, where the file is somebody else's: as root gives a service's group a file that the service only reads.
    """
    by_group = found.st_mode & stat.S_IRGRP and found.st_uid == os.geteuid()
    if not by_group and not found.st_mode & stat.S_IROTH:
        return None
    return (
        f"the token file {path} can be read by others (its mode is {stat.S_IMODE(found.st_mode):04o}), who may then do "
        f"what anybody in it may: chmod 600 {path}, and make new tokens if others have accounts here"
    )


def _look_at(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error


def _marks(found: os.stat_result) -> tuple[int, ...]:
    """What changes with a file."""
    return found.st_mtime_ns, found.st_dev, found.st_ino, found.st_size


def _read(path: Path) -> list[tuple[Actor, str]]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    if len(content) > MAX_FILE_BYTES:
        raise TokenError(f"the token file {path} has more than {MAX_FILE_BYTES} bytes")
    return tokens_in(text, str(path))


def _unreadable(path: Path, error: Exception) -> TokenError:
    return TokenError(f"the token file {path} cannot be read: {error}")
