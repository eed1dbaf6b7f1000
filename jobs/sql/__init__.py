"""The statements, one a file, read by name. Parameters are written `%(name)s`, as psycopg takes them."""

from functools import cache
from importlib.resources import files
from typing import LiteralString


@cache
def statement(name: str) -> LiteralString:
    """The text of `<name>.sql`. It is part of the package, so it is as trusted as a literal."""
    return (files(__name__) / f"{name}.sql").read_text(encoding="utf-8")
