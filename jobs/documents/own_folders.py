"""Folders that a walk over a user's folders leaves out, because what is in them is Oomph's own."""

import os
from collections.abc import Collection
from pathlib import Path

STORE = "it is the object store"
SERVER = "it holds the files of a PostgreSQL server"
EMBEDDED = frozenset({"users", "turn"})  # the lock files of an embedded server, beside its folder `data`


def own_folder(path: str, folders: Collection[str], names: Collection[str], store: Path | None) -> str | None:
    """Why the folder `path`, with these folders and files in it, is left out; None where it is the user's.

    `store` is the folder of the object store, if it is one.
    """
    if store is not None and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(store)):
        return STORE
    if "PG_VERSION" in names or (EMBEDDED.issubset(names) and "data" in folders):
        return SERVER
    return None
