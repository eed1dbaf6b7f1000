"""Takes one safeguard away at a time, and shows that a named test turns red each time.

    copy the working tree -> all named tests are green in the copy
                          -> for each mutation: change the copy, run its test, change the copy back

The table is `scripts/mutations_table.py`. Every run is bounded in time. Whatever it leaves running becomes a child of
this process and is ended, and everything that it writes lies in one temporary folder, which is removed.

No mutation may make the code signal more processes than it should: this runs on hosts where others work.
"""

import argparse
import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import jobs
import pools
import supervisor
from pools.leftovers import children_reader
from pools.process import adopt_orphans
from scripts.mutations_table import MUTATIONS, Mutation
from supervisor.embedded import EmbeddedServer

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "chaos.md"
START, END = "<!-- mutations, written by scripts/mutations --docs -->\n", "<!-- end of mutations -->\n"

TEST_SECONDS = 30  # for one test: three times what the slowest of them takes on a busy machine
ALL_SECONDS = 300  # for all of them, unmutated, in one run
STOP_SECONDS = 15  # for a run that is over its time to take down what it started
END_SECONDS = 2  # for what a run left behind to end by SIGTERM; a server removes its shared memory by then

# What a test says that failed because the mutated text does not run at all. That proves nothing.
BROKEN = re.compile(
    r"SyntaxError|IndentationError|ImportError|ModuleNotFound|NameError|Undefined\w+|Ambiguous\w+|Datatype"
)
TIMEOUT = "from pytest-timeout"


def pytest_configure(config: Any) -> None:
    """In the runs, which load this as a plugin: the packages that are imported are those of the copy."""
    for package in (jobs, pools, supervisor):
        assert Path(str(package.__file__)).is_relative_to(config.rootpath), f"{package} is not in {config.rootpath}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest."""

    status: int | None  # None: it was over its time
    output: str

    @property
    def reasons(self) -> list[str]:
        """What each failure said, in a line."""
        return re.findall(r"^(?:FAILED|ERROR) tests/.*? - (.+)$", self.output, re.MULTILINE)

    @property
    def why(self) -> str:
        """What the first failure said, or the last word of the run."""
        return [*self.reasons, self.output.strip().rpartition("\n")[2]][0]

    @property
    def is_green(self) -> bool:
        return self.status == 0

    def is_red(self, mutation: Mutation) -> bool:
        """It failed, and not because it could not run; a test that hangs has failed only where that was foretold."""
        told = "\n".join(self.reasons)
        return self.status == 1 and not BROKEN.search(told) and (mutation.hangs or TIMEOUT not in told)


class Copy:
    """A copy of the working tree, in which tests run with this interpreter."""

    def __init__(self, folder: Path, server: str) -> None:
        self.root = folder / "oomph"
        self._scratch = folder / "tmp"
        self._scratch.mkdir()
        self._spared = set(children_reader()(os.getpid()))
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        # Bytecode that is checked by its source's hash: by size and second, it could stand for a mutated module.
        compileall.compile_dir(self.root, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        self._environment = os.environ | {
            "PYTHONPATH": str(self.root),  # comes before the path of the editable installation
            "PYTHONDONTWRITEBYTECODE": "1",
            "OOMPH_TEST_SERVER": server,
            "TMPDIR": str(self._scratch),
            "COLUMNS": "250",
        }

    def run(self, tests: list[str], seconds: float) -> Run:
        """Run these tests; afterwards no process of the run is left."""
        options = f"-q --tb=short -p no:cacheprovider -p scripts.mutations -o timeout={TEST_SECONDS}".split()
        running = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self.root,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        status: int | None = None
        try:
            output, _ = running.communicate(timeout=seconds)
            status = running.returncode
        except subprocess.TimeoutExpired:
            output = self._stop(running)
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
            end_what_is_left(self._spared)
        return Run(status, output)

    def _stop(self, running: "subprocess.Popen[str]") -> str:
        """Let a run that is over its time take down what it started; what it said until then."""
        running.send_signal(signal.SIGINT)
        try:
            return running.communicate(timeout=STOP_SECONDS)[0]
        except subprocess.TimeoutExpired:
            running.kill()
            end_what_is_left(self._spared)  # they may hold its output
            return running.communicate()[0]

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        path = self.root / mutation.file
        text = path.read_text()
        path.write_text(mutation.applied(text))
        yield
        path.write_text(text)


def end_what_is_left(spared: set[int]) -> None:
    """End and reap all children of this process, and theirs, which become ours, but those that are `spared`."""
    started = time.monotonic()
    while left := set(children_reader()(os.getpid())) - spared:
        waited = time.monotonic() - started
        assert waited < 5 * END_SECONDS, f"processes {left} survive SIGKILL"
        for pid in left:
            os.kill(pid, signal.SIGTERM if waited < END_SECONDS else signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)


def check(chosen: list[Mutation]) -> bool:
    """Run all of it and print the table as it grows. Returns whether everything was as it must be."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # by way of every clean-up below
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oomph-mutations-")))
        folder.chmod(0o755)  # for root, the server runs as another user
        # One for all runs: to make a new one takes as long as most of the tests.
        server = EmbeddedServer(folder / "server", durable=False, settings={"max_connections": "300"})
        copy = Copy(folder, stack.enter_context(server))
        tests = sorted({test for mutation in chosen for test in mutation.tests})
        unmutated = copy.run(tests, ALL_SECONDS)
        print(f"{'green' if unmutated.is_green else 'RED':12} nothing is taken away: {len(tests)} tests", flush=True)
        if not unmutated.is_green:
            print(unmutated.output)
            return False
        failures = 0
        for mutation in chosen:
            with copy.mutated(mutation):
                for test in mutation.tests:
                    run = copy.run([test], 2 * TEST_SECONDS)
                    red = run.is_red(mutation)
                    failures += not red
                    told = "red" if red else "STILL GREEN" if run.is_green else "DOES NOT RUN"
                    print(f"{told:12} {mutation.name}\n{'':12} {test}\n{'':12} {run.why}", flush=True)
                    if told == "DOES NOT RUN":
                        print(run.output)
    print(f"{len(chosen)} mutations, {failures} without a red test, {time.monotonic() - started:.0f} s")
    return not failures


def table() -> str:
    """The mutations as a Markdown table."""
    rows = ["| what is taken away | where | the test that turns red |", "|---|---|---|"]
    for mutation in MUTATIONS:
        tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in mutation.tests)
        rows.append(f"| {mutation.name} | `{mutation.file}` | {tests} |")
    return "\n".join(rows) + "\n"


def written(text: str) -> str:
    """`text` with the table between its two marks."""
    before, _, rest = text.partition(START)
    return before + START + table() + END + rest.partition(END)[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutations", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only mutations whose name or file contains one of these"
    )
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/chaos.md and run nothing")
    given = parser.parse_args()
    if given.list:
        print(table(), end="")
        return 0
    if given.docs:
        DOCS.write_text(written(DOCS.read_text()))
        return 0
    words = given.words or [""]
    chosen = [each for each in MUTATIONS if any(word in f"{each.name} {each.file}" for word in words)]
    if not chosen:
        parser.error(f"no mutation is called like {' or '.join(words)}")
    return 0 if check(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
