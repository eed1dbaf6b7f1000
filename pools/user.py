"""The user that jobs run as, where the supervisor is root and may choose."""

import os
import pwd
import subprocess
from collections.abc import Iterable
from pathlib import Path

from pools.frames import UserFrame
from pools.process import NotSupported


def resolve_user(wanted: str) -> UserFrame | None:
    """The user called `wanted`, a name or `uid:gid`; None where none is. Raises `NotSupported`."""
    if not wanted:
        return None
    told = f"WORKER_INGEST_USER={wanted}"
    if os.geteuid() != 0:
        raise NotSupported(f"{told}: only a worker that runs as root can run its jobs as another user")
    uid, colon, gid = wanted.partition(":")
    if colon:
        if not (uid.isdigit() and gid.isdigit()):
            raise NotSupported(f"{told}: use a name, or uid:gid with two numbers")
        user = UserFrame(uid=int(uid), gid=int(gid), groups=[], name=uid)
    else:
        try:
            entry = pwd.getpwnam(wanted)
        except KeyError:
            raise NotSupported(f"{told}: this system has no such user") from None
        groups = os.getgrouplist(wanted, entry.pw_gid)
        user = UserFrame(uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, name=wanted)
    if user.uid == 0 or user.gid == 0 or 0 in user.groups:
        raise NotSupported(f"{told}: that is root, or in root's group, which would protect nothing")
    return user


def closed_to(user: UserFrame, folders: Iterable[Path]) -> list[Path]:
    """The folders that this user may not read, each told by the first one on its way that is closed. Blocks."""
    closed = [_first_closed(user, folder) for folder in folders]
    return list(dict.fromkeys(folder for folder in closed if folder is not None))


def _first_closed(user: UserFrame, folder: Path) -> Path | None:
    if _may(user, "-r", folder) and _may(user, "-x", folder):
        return None
    return next((parent for parent in reversed(folder.parents) if not _may(user, "-x", parent)), folder)


def _may(user: UserFrame, how: str, path: Path) -> bool:
    # By the kernel's own word for that user: modes and groups are not all that decides.
    done = subprocess.run(
        ["test", how, path],
        cwd="/",
        user=user.uid,
        group=user.gid,
        extra_groups=user.groups,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.returncode == 0
