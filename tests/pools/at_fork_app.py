"""The same app, beside a library that registers at-fork handlers, by the only thing that tells it: a symbol's name."""

import mmap
import tempfile

from tests.pools.forks_app import app

library = tempfile.NamedTemporaryFile(prefix="libhandlers", suffix=".so")  # noqa: SIM115  (mapped as long as this lives)
library.write(b"\0__register_atfork\0")
library.flush()
mapped = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)

__all__ = ["app"]
