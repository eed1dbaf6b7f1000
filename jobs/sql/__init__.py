"""The statements, one a file, read by name. Parameters are written `%(name)s`, as psycopg takes them."""

from functools import cache
from pkgutil import get_data  # `importlib.resources` imports more than an idle worker should keep
from typing import LiteralString


@cache
def statement(name: str) -> LiteralString:
    """The text of `<name>.sql`. It is part of the package, so it is as trusted as a literal."""
    text = get_data(__name__, f"{name}.sql")
    assert text is not None, "of a package whose files nobody can read"
    return text.decode()
