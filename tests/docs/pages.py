"""Reads the pages of the site as a person does who types what stands there: from the top, in one folder.

A page of an example, `examples/*/README.md`, is read in a copy of that folder, and its port 8000 is one that is free.

What a fenced block does is told by its language, and by a comment `<!-- test: ... -->` on the line before it:

python      a file, where it begins with `# name.py`; else a script that runs. All of a page are type-checked.
console     each line that begins with `$ ` runs in bash, and must succeed; other lines are what it prints, with `...`
            for anything. `until WORDS`: it goes on running, as in a terminal of its own, once its output has WORDS.
            `eventually`: it is run until it prints what stands there. `fails`: it does not succeed.
sql         runs in the page's database, and is rolled back.
text        is nothing that runs.

`skip: why` keeps a block from being run, and the tests print why.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from supervisor.testing.waiting import wait_for
from tests.examples.site import as_url, free_port

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages that lie beside what they tell of, and are included by one of `docs/`.
ELSEWHERE = (ROOT / "deploy" / "README.md", *sorted((ROOT / "examples").glob("*/README.md")))
BIN = Path(sys.executable).parent
RUNNABLE = {"python", "console", "sql"}
COMMAND_SECONDS = 60
EVENTUALLY_SECONDS = 30.0

_FENCE = re.compile(
    r"^(?:<!-- test: (?P<test>.*?) -->\n)?(?P<indent> *)```(?P<language>[\w{}-]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, what stands in it, what the comment before it asks for, and its line."""

    language: str
    text: str
    test: str
    line: int

    @property
    def skipped(self) -> str | None:
        """Why it is not run, if so."""
        return self.test.removeprefix("skip: ") if self.test.startswith("skip: ") else None

    @property
    def file(self) -> str | None:
        """The name of the file that it is, if so."""
        found = re.match(r"# ([\w/]+\.py)\n", self.text)
        return found[1] if found else None


def pages() -> list[Path]:
    """Every page of the site."""
    return [*sorted(DOCS.rglob("*.md")), *ELSEWHERE]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    for found in _FENCE.finditer(text):
        yield Block(
            found["language"], found["text"], found["test"] or "", text.count("\n", 0, found.start("language")) + 1
        )


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what it prints. A backslash continues a command."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = next(number for number, line in enumerate(lines, start=1) if not line.endswith("\\"))
        yield "\n".join(lines[:length]), "\n".join(lines[length:])


def printed(expected: str, output: str) -> bool:
    """Whether the output has the expected lines; `...` is anything, and trailing spaces do not matter."""
    wanted = [re.escape(line.rstrip()).replace(r"\.\.\.", ".*?") for line in expected.splitlines()]
    lines = "\n".join(line.rstrip() for line in output.splitlines())
    return re.search("^" + "\n".join(wanted) + "$", lines, re.DOTALL | re.MULTILINE) is not None


class Reader:
    """One person at one page: a folder, a database, the variables that were exported, the terminals left open."""

    def __init__(self, folder: Path, url: str, page: Path) -> None:
        self.folder = folder
        self.url = url
        ours = ("WORKER_", "OOMPH_", "DOCUMENT_", "OTEL_", "PG")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**kept, "DATABASE_URL": url, "PATH": path, "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
        if any("--embedded" in block.text for block in blocks(page)):  # it brings its own, and names it
            del self.environment["DATABASE_URL"]
        self.environment |= {"WORKER_INGEST_MEMORY_MB": "256", "WORKER_INGEST_CONCURRENCY": "1"}
        self._port: int | None = None
        if page.parent.parent == ROOT / "examples":
            shutil.copytree(page.parent, folder, dirs_exist_ok=True)
            self._port = free_port()
            self.environment |= {"DATABASE_URL": as_url(url), "PYTHONUNBUFFERED": "1"}  # lines come, as in a terminal
        self._given = set(folder.glob("*.py"))
        self._terminals: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._typed = ""  # what changes the shell itself: exports, changes of the folder

    def read(self, block: Block) -> None:
        """Do what the block says. Raises `AssertionError` with the output where that does not come out."""
        if block.language == "python":
            self._write(block)
        elif block.language == "sql":
            with psycopg.connect(self.url) as db:
                db.execute(block.text.encode())
                db.rollback()
        else:
            for command, expected in commands(block.text):
                self._type(command, expected, block.test)

    def files(self) -> list[Path]:
        """What the page had written."""
        return sorted(set(self.folder.glob("*.py")) - self._given)

    def leave(self) -> None:
        """End what still runs."""
        stuck = []
        for process, log in reversed(self._terminals):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                stuck.append(log.read_text())
        assert not stuck, f"did not end within 30 s of SIGTERM: {stuck}"

    def _write(self, block: Block) -> None:
        file = self.folder / (block.file or f"line_{block.line}.py")
        file.write_text(block.text)
        if block.file is None:
            self._type(f"python {file.name}", "", "")

    def _type(self, command: str, expected: str, test: str) -> None:
        if self._port is not None:
            command = re.sub(r"\b8000\b", str(self._port), command)
        if command.startswith(("export ", "cd ")):
            if command.endswith("=..."):
                command = command.replace("...", shlex.quote(self._told_url()))
            self._typed += command + "\n"
            return
        if test.startswith("until "):
            self._open_terminal(command, test.removeprefix("until "))
            return
        if test == "eventually":
            wait_for(lambda: printed(expected, self._run(command)[1]), f"{command}: {expected}", EVENTUALLY_SECONDS)
            return
        status, output = self._run(command)
        assert (status != 0) == (test == "fails"), f"$ {command}\n{output}\nexit status {status}"
        assert not expected or printed(expected, output), f"$ {command}\n{output}\nbut the page says\n{expected}"

    def _run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", self._typed + command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def _open_terminal(self, command: str, words: str) -> None:
        log = self.folder / f"terminal-{len(self._terminals)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                ["bash", "-c", f"{self._typed}exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        self._terminals.append((process, log))

        def shows() -> bool:
            text = log.read_text()
            assert process.poll() is None, f"$ {command}\n{text}"
            return words in text

        wait_for(shows, f"{words!r} of $ {command}", COMMAND_SECONDS)

    def _told_url(self) -> str:
        """The address that a worker with a PostgreSQL of its own has printed."""
        found = re.search(r"^DATABASE_URL=(.*)$", self._terminals[-1][1].read_text(), re.MULTILINE)
        assert found is not None
        return found[1]
