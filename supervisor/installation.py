"""Which installation this is, and where its page is: what a person with several of them must know first. Pure."""

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

MAX_NAME_LENGTH = 40
# What stands as it is in the subject of a mail, in the name of a cookie, and in a title.
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_LENGTH - 1}}}")


@dataclass(frozen=True, slots=True)
class Installation:
    """Its name and the address of its page; either may be empty."""

    name: str = ""
    page_url: str = ""

    @property
    def notices_url(self) -> str:
        """The page's list of notices; empty without a page."""
        return self._below("/notices")

    def kind_url(self, kind: str) -> str:
        """The page of a kind, which may have any name."""
        return self._below(f"/kind?name={quote(kind, safe='')}")

    def job_url(self, job_id: int) -> str:
        """The page of a job."""
        return self._below(f"/jobs/{job_id}")

    def _below(self, path: str) -> str:
        return self.page_url.rstrip("/") + path if self.page_url else ""


def check_name(variable: str, name: str) -> None:
    """Raise `ValueError` unless `name` is empty or a short word."""
    if name and not _NAME.fullmatch(name):
        raise ValueError(
            f"{variable}={name!r}: a short name such as production is allowed: up to {MAX_NAME_LENGTH} letters, "
            "digits, dots, hyphens and underscores, first a letter or digit"
        )


def check_page_url(variable: str, url: str) -> None:
    """Raise `ValueError`, which does not quote it, unless `url` is empty or the address that links can begin with."""
    if not url:
        return
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_plain = "@" not in parts.netloc and not parts.query and not parts.fragment
    except ValueError:
        is_whole = is_plain = False
    if not (is_whole and is_plain) or not url.isascii() or not url.isprintable() or set(url) & set(' <>"?#`'):
        raise ValueError(f"{variable} must read like https://host/path, in ASCII, without a password, `?` and `#`")
