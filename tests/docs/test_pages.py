"""Every code block of the documentation runs, and its Python pleases a strict type checker."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import BIN, ROOT, RUNNABLE, Reader, blocks, commands, pages, printed

PAGES = [str(page.relative_to(ROOT)) for page in pages()]
WITH_CODE = [page for page in PAGES if any(b.language in RUNNABLE and not b.skipped for b in blocks(ROOT / page))]


@pytest.fixture(scope="session")
def type_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


@pytest.fixture
def desk() -> Iterator[Path]:
    """A folder that an embedded server may enter, which runs as another user where the tests run as root."""
    folder = Path(tempfile.mkdtemp(prefix="oomph-docs-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


# Each takes seconds, for workers and commands that start.
IN_EVERY_RUN = {"docs/tutorial.md"}
READ = [page if page in IN_EVERY_RUN else pytest.param(page, marks=pytest.mark.whole) for page in WITH_CODE]


@pytest.mark.parametrize("page", READ)
def test_what_a_page_says_can_be_typed(page: str, url: str, desk: Path, type_cache: Path) -> None:
    reader = Reader(desk, url, ROOT / page)
    try:
        for block in blocks(ROOT / page):
            if block.language in RUNNABLE and block.skipped is None:
                reader.read(block)
    finally:
        reader.leave()
    if reader.files():
        done = subprocess.run(
            [BIN / "mypy", "--strict", "--config-file", "", "--cache-dir", type_cache, *reader.files()],
            cwd=desk,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("where", "why"),
    [(f"{page}:{block.line}", block.skipped) for page in PAGES for block in blocks(ROOT / page) if block.skipped],
)
def test_what_is_not_run_says_why(where: str, why: str) -> None:
    """So that nobody takes the pages for more than they are."""
    pytest.skip(f"{where} is not run: {why}")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_only_blocks_that_somebody_reads(page: str) -> None:
    text = (ROOT / page).read_text()
    for block in blocks(ROOT / page):
        assert block.language in RUNNABLE | {"text"} or block.language.startswith("{"), f"{page}:{block.line}"
        assert re.fullmatch(r"|fails|eventually|(skip: |until ).+", block.test), f"{page}:{block.line}: {block.test}"
    assert text.count("<!-- test:") == sum(bool(block.test) for block in blocks(ROOT / page)), "a comment stands alone"
    fenced = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"^\n {4}\S", fenced, re.MULTILINE), f"{page} has an indented block, which nothing runs"


def test_a_console_is_read_as_it_looks() -> None:
    text = "$ one \\\n    two\nprinted ...\n$ three\n"
    assert list(commands(text)) == [("one \\\n    two", "printed ..."), ("three", "")]
    assert printed("a ... c", "x\na b c  \ny")
    assert not printed("a ... c", "a b d")
    assert printed("a\n...\nd", "a\nb\nc\nd")
