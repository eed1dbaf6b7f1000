"""What commands print: tables and facts for people, JSON for programs.

Text that comes from jobs is shown without control characters, so that no output of theirs can steer a terminal.
"""

import dataclasses
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

R = TypeVar("R")

FLEXIBLE_MIN_CHARS = 12  # narrower says nothing
FLEXIBLE_MAX_CHARS = 300  # where no terminal sets a width: the whole text is in --json
UNBOUNDED = 100_000
GAP = 2
NARROWEST = 40  # of a fact's text, on whatever terminal


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A column of a table. Only a flexible one is ever cut, to one line that fits the terminal.

    With `of`, the name of a row, what had to be cut for the terminal stands whole below the table, under that name.
    `style` is rich's name of a style for a row's cell, such as `red`; it shows on a terminal only.
    """

    title: str
    cell: Callable[[R], object]
    right: bool = False
    flexible: bool = False
    style: Callable[[R], str] = lambda _: ""
    of: Callable[[R], object] | None = None


def print_table(columns: Sequence[Column[R]], rows: Iterable[R], *, empty: str) -> None:
    """Print one line a row, as wide as the terminal; in a pipe as wide as the text. Colours only on a terminal.

    A terminal that has no room for the columns that are never cut shows each row as a paragraph, a line a cell.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    kept = list(rows)
    if not kept:
        typer.echo(empty, err=True)
        return
    cells = [[Text(_cell(column, row), column.style(row)) for column in columns] for row in kept]
    widths = [
        max(cell_len(title), *(text.cell_len for text in texts))
        for title, *texts in zip([column.title for column in columns], *cells, strict=True)
    ]
    room = _width() - sum(width + GAP for column, width in zip(columns, widths, strict=True) if not column.flexible)
    if sys.stdout.isatty() and room < (FLEXIBLE_MIN_CHARS if any(column.flexible for column in columns) else -GAP):
        _print_paragraphs([column.title for column in columns], cells)
        return
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=min(width, max(room, FLEXIBLE_MIN_CHARS)) if column.flexible else width,
        )
    for line in cells:
        table.add_row(*line)
    _print_styled(table)
    for column, width in zip(columns, widths, strict=True):
        if column.of is not None and width > max(room, FLEXIBLE_MIN_CHARS):
            _print_cut(column, kept, max(room, FLEXIBLE_MIN_CHARS))


def _print_paragraphs(titles: Sequence[str], cells: "Iterable[Sequence[Text]]") -> None:
    from rich.text import Text

    margin = max(map(len, titles)) + GAP
    room = max(_width() - margin, FLEXIBLE_MIN_CHARS)
    for number, texts in enumerate(cells):
        if number:
            typer.echo()
        for title, text in zip(titles, texts, strict=True):
            for place, part in enumerate(
                textwrap.wrap(text.plain, room, break_long_words=False, break_on_hyphens=False)
            ):
                head = Text(("" if place else title).ljust(margin), "bold")
                _print_styled(head.append(part, text.style))


def _print_styled(value: "RenderableType") -> None:
    """Print something of rich's without ever wrapping it, in colours where the output has any."""
    from rich.console import Console

    # Wide enough for every column: a terminal that is narrower wraps the line, and no id is cut.
    console = Console(width=UNBOUNDED, highlight=False)
    with console.capture() as captured:
        console.print(value)
    for printed in captured.get().splitlines():
        typer.echo(
            printed.rstrip(), color=True
        )  # what it holds of them is rich's decision: NO_COLOR, FORCE_COLOR, TERM


def _print_cut(column: Column[R], rows: Iterable[R], width: int) -> None:
    from rich.cells import cell_len

    assert column.of is not None
    cut = [row for row in rows if cell_len(_cell(column, row)) > width]
    typer.echo()
    for row in cut:
        typer.echo(f"{shown(column.of(row))}: {shown(column.cell(row))}")


def print_facts(facts: Iterable[tuple[str, object]], *, indent: str = "") -> None:
    """Print `name  value` lines; a value that is None is left out.

    Further lines of a text stand below its first; on a terminal, long lines are broken between words.
    """
    told = [(name, shown(value)) for name, value in facts if value is not None]
    width = len(indent) + max((len(name) for name, _ in told), default=0) + GAP
    room = max(_width() - width, NARROWEST)
    for name, text in told:
        head = f"{indent}{name}"
        for line in text.splitlines() or [""]:
            for part in textwrap.wrap(line, room, replace_whitespace=False) or [""]:
                typer.echo(f"{head.ljust(width)}{part}".rstrip())
                head = ""


def print_json(value: object) -> None:
    """Print rows or a row: moments as ISO 8601 in UTC, spans as seconds."""
    typer.echo(json.dumps(_plain_value(value), indent=2, default=_encoded))


def shown(value: object) -> str:
    """A value as a person reads it; empty for None."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        case timedelta():
            return span(value)
        case float():
            return f"{value:,.1f}"
        case dict() | list():
            return printable(json.dumps(value, ensure_ascii=False))
        case str():
            return printable(value)
        case _:
            return str(value)


def span(length: timedelta) -> str:
    """A length of time in its two largest units: `1 h 30 min`."""
    seconds = length.total_seconds()
    if 0 < abs(seconds) < 1:
        return f"{seconds * 1000:,.0f} ms"
    rest, parts = int(abs(seconds)), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return ("-" if seconds < 0 else "") + (" ".join(parts[:2]) or "0 s")


def printable(text: str) -> str:
    """`text` with nothing in it that a terminal would obey; line breaks stay."""
    return "\n".join(
        "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line.expandtabs(4))
        for line in text.splitlines()
    )


def first_line(text: str) -> str:
    """The first line that is not empty, with a mark where more follows."""
    lines = [line.strip() for line in text.strip().splitlines()] or [""]
    return lines[0] + (" \N{HORIZONTAL ELLIPSIS}" if len(lines) > 1 else "")


def _cell(column: Column[R], row: R) -> str:
    text = first_line(shown(column.cell(row)))
    if column.flexible and len(text) > FLEXIBLE_MAX_CHARS:
        return text[:FLEXIBLE_MAX_CHARS] + "\N{HORIZONTAL ELLIPSIS}"
    return text


def _width() -> int:
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size().columns
    return UNBOUNDED


def _plain_value(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain_value(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _encoded(value: Any) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case _:
            raise TypeError(f"{value!r} has no form in JSON")
