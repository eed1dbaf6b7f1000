"""What a worker's owner wants to know of its template, and of no single one. Plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TemplateDown:
    """So many templates in a row did not come up, or did not live."""

    failures: int
    why: str


@dataclass(frozen=True, slots=True)
class TemplateUp:
    """After such a row, one serves again, and has proved it."""


TemplateChange = TemplateDown | TemplateUp


def ignore(_: TemplateChange) -> None:
    """For who does not want to know."""
