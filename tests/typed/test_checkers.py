"""The public interface is typed: strict checkers accept right use, and find each mistake on its line."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import jobs

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
BIN = Path(sys.executable).parent


def mypy(file: Path, scratch: Path) -> set[int]:
    """The numbers of the lines that mypy finds errors on, with the settings that a user's project might have."""
    done = subprocess.run(
        [BIN / "mypy", "--strict", "--config-file", "", "--cache-dir", scratch / "cache", "--no-error-summary", file],
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert all(line.startswith(f"{file}:") for line in done.stdout.splitlines()), done.stdout
    return {int(found[1]) for found in re.finditer(r":(\d+): error:", done.stdout)}


def pyright(file: Path, scratch: Path) -> set[int]:
    """The same of pyright, as its build without downloads packages it."""
    settings = {"typeCheckingMode": "strict", "include": [str(file)], "reportUnusedCallResult": False}
    (scratch / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [BIN / "basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", scratch],
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {problem["range"]["start"]["line"] + 1 for problem in found if problem["severity"] == "error"}


Checker = Callable[[Path, Path], set[int]]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_use_is_accepted_and_each_mistake_is_found(checker: Checker, tmp_path: Path) -> None:
    assert checker(FOLDER / "service.py", tmp_path) == set()
    mistakes = (FOLDER / "mistakes.py").read_text().splitlines()
    marked = {number for number, line in enumerate(mistakes, start=1) if line.endswith("# wrong")}
    assert checker(FOLDER / "mistakes.py", tmp_path) == marked


def test_every_public_name_is_used_there() -> None:
    used = (FOLDER / "service.py").read_text()
    assert [name for name in jobs.__all__ if not re.search(rf"\b{name}[,.(\[:)]", used)] == []
