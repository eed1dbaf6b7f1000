"""Whom the server runs as: ourselves, unless we are root, as which PostgreSQL refuses to run."""

import os
import pwd
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from supervisor.embedded.errors import EmbeddedServerError

# Nothing of the caller's environment: PGPORT, PGOPTIONS and the like would change the server.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    @classmethod
    def for_folders(cls, *folders: Path) -> "Account":
        """For root the first owner of `folders` who is not root, or else the user postgres or nobody."""
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        for owner in (folder.stat() for folder in folders if folder.exists()):
            if owner.st_uid != 0:
                return cls(owner.st_uid, owner.st_gid)
        for name in ("postgres", "nobody"):
            with suppress(KeyError):
                entry = pwd.getpwnam(name)
                return cls(entry.pw_uid, entry.pw_gid)
        raise EmbeddedServerError(
            "PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as; "
            "start oomph as an ordinary user"
        )

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        as_user: dict[str, Any] = {"user": self.uid, "group": self.gid, "extra_groups": []} if os.geteuid() == 0 else {}
        return subprocess.run(command, cwd="/", env=ENVIRONMENT, capture_output=True, text=True, check=False, **as_user)

    def reaches(self, path: Path) -> bool:
        return self.run("test", "-x", path).returncode == 0

    def require_reach(self, folder: Path) -> None:
        if self.reaches(folder):
            return
        closed = next(parent for parent in reversed([folder, *folder.parents]) if not self.reaches(parent))
        raise EmbeddedServerError(
            f"{folder} cannot hold an embedded server: PostgreSQL refuses to run as root, and user {self.uid}, as whom "
            f"it would run, may not enter {closed}. Name a folder that all may enter, such as one below /var/lib, or "
            "start oomph as an ordinary user who owns the folder"
        )

    def make_private(self, folder: Path) -> None:
        """Make a folder that only this user (and root) may enter; refuses one that somebody else has put there."""
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            os.chown(folder, self.uid, self.gid, follow_symlinks=False)
        found = folder.lstat()
        if not S_ISDIR(found.st_mode) or found.st_uid != self.uid or found.st_mode & 0o077:
            raise EmbeddedServerError(
                f"{folder} must be a folder of user {self.uid} with mode 700, for a server that trusts whoever can "
                "enter it; remove it or name another"
            )
