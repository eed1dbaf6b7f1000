"""The site: made without a warning, and what it shows comes from itself alone."""

import re
import subprocess
from pathlib import Path

import pytest

from scripts import reference, settings_table
from tests.docs.pages import DOCS, ELSEWHERE, ROOT
from tests.jobs.lab import Connection


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([ROOT / "scripts" / "docs", folder], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    return folder


def test_every_page_is_made(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).exists(), page


@pytest.mark.parametrize("page", ELSEWHERE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_that_lies_elsewhere_is_shown_too(site: Path, page: Path) -> None:
    included = f"```{{include}} ../../{page.relative_to(ROOT)}\n"
    (shown,) = (each for each in DOCS.rglob("*.md") if included in each.read_text())
    title = page.read_text().partition("\n")[0].removeprefix("# ")
    assert f"<h1>{title}<" in (site / shown.relative_to(DOCS).with_suffix(".html")).read_text()


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    """Links may lead away; a script, a style, a font or a picture may not."""
    loaded = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)\s*=\s*["']?(?:https?:)?//[^>]*>""")
    for page in site.rglob("*.html"):
        assert not loaded.findall(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"]?https?:", style.read_text()), style


@pytest.mark.parametrize("page", reference.PAGES)
def test_the_reference_is_what_the_code_says(page: str) -> None:
    text = (DOCS / "reference" / page).read_text()
    assert reference.written(page, text) == text, "run .venv/bin/python -m scripts.reference"


def test_the_settings_of_the_reference_are_the_settings() -> None:
    text = (DOCS / "reference" / "settings.md").read_text()
    assert settings_table.written(text) == text, "run .venv/bin/python -m scripts.settings_table"


def test_the_columns_of_the_reference_are_the_columns(db: Connection) -> None:
    """Each with its type, a domain by what it is made of; in any order."""
    text = (DOCS / "reference" / "tables.md").read_text()
    written = {
        (table, *column)
        for table, rows in re.findall(r"^## (background_\w+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
        for column in re.findall(r"^\| `(\w+)` \| (.*?) \|", rows, re.MULTILINE)
    }
    there = db.execute(
        "SELECT relname, attname, format_type(CASE typtype WHEN 'd' THEN typbasetype ELSE atttypid END, NULL)"
        "  FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid JOIN pg_type ON pg_type.oid = atttypid"
        " WHERE relname = ANY (%s) AND attnum > 0 AND NOT attisdropped",
        [sorted({table for table, *_ in written})],
    ).fetchall()
    assert set(there) == written, "docs/reference/tables.md lacks a column, or has one too many"
