"""The user that jobs run as, where the supervisor is root and may choose."""

import os
import pwd

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
