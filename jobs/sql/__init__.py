"""The statements, one a file, read by name. Parameters are written `%(name)s`, as psycopg takes them."""

from functools import cache
from pathlib import Path
from typing import LiteralString

_FOLDER = Path(__file__).parent


@cache
def statement(name: str) -> LiteralString:
    """The text of `<name>.sql`. It is part of the package, so it is as trusted as a literal."""
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")
