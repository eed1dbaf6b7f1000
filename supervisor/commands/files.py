"""Which files a command line means: named files, and what is in named folders."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import typer

from supervisor.commands.options import refuse
from supervisor.commands.output import printable


class Skipped(Exception):
    """A file is left out; the message says why."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """`shown` is its path as it can be printed: a name on a disk may hold any bytes."""

    path: Path

    @property
    def shown(self) -> str:
        return shown(self.path)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Its content. Raises `Skipped` for one that is no file any more, and `OSError`."""
        # Without waiting: what was a file when it was found may be a pipe by now.
        with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Skipped("it is no regular file")
            yield file


def find_files(
    paths: Iterable[Path], max_bytes: int, store: Path | None = None
) -> tuple[list[FoundFile], list[tuple[str, str]]]:
    """The files that `paths` name, sorted and each once, and those that are skipped with the reason.

    In folders, hidden files and folders are left out silently, and links to folders are not followed. A folder that
    holds Oomph's own files, such as the object store in `store`, is left out with a note on stderr. Wrong usage for a
    path that does not exist.
    """
    found: dict[Path, FoundFile] = {}
    skipped: list[tuple[str, str]] = []
    for path in paths:
        if not os.path.lexists(path):
            refuse("PATH", f"{shown(path)} does not exist")
        for file in _walk(path, skipped, store) if path.is_dir() else [path]:
            try:
                state = file.stat()
            except OSError as error:
                skipped.append((shown(file), error.strerror or str(error)))
                continue
            if not stat.S_ISREG(state.st_mode):
                skipped.append((shown(file), "it is no regular file"))
            elif state.st_size > max_bytes:
                skipped.append((shown(file), f"it has over {max_bytes >> 20} MB"))
            else:
                found.setdefault(file.absolute(), FoundFile(file))
    return sorted(found.values(), key=lambda file: file.path), skipped


def shown(path: Path) -> str:
    return printable(os.fsencode(path).decode("utf-8", "replace")).replace("\n", "\N{REPLACEMENT CHARACTER}")


def _walk(folder: Path, skipped: list[tuple[str, str]], store: Path | None) -> Iterator[Path]:
    from jobs.documents.own_folders import own_folder

    def cannot_enter(error: OSError) -> None:
        skipped.append((shown(Path(error.filename)), error.strerror or str(error)))

    for inner, folders, names in os.walk(folder, onerror=cannot_enter):
        if why := own_folder(inner, folders, names, store):
            typer.echo(f"{shown(Path(inner))} is left out: {why}", err=True)
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(inner, name) for name in sorted(names) if not name.startswith("."))
