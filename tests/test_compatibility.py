"""What is public is what the documentation says is public."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "reference" / "compatibility.md").read_text()
CHANGELOG = (Path(__file__).parent.parent / "CHANGELOG.md").read_text()
WRITTEN = re.search(r"<!-- names.*?-->\n(.*?)<!-- end of names -->", PAGE, re.DOTALL)


def written() -> dict[str, list[str]]:
    """The public names of each module, as the page lists them."""
    assert WRITTEN is not None
    entries = re.findall(r"^- `([\w.]+)`: (.*?)(?=^- |\Z)", WRITTEN[1], re.DOTALL | re.MULTILINE)
    return {module: re.findall(r"`(\w+)`", names) for module, names in entries}


@pytest.mark.parametrize("module", ["jobs", "jobs.documents", "jobs.alembic", "supervisor.page", "supervisor.testing"])
def test_the_names_that_are_written_are_the_public_names(module: str) -> None:
    public = importlib.import_module(module)
    assert written()[module] == sorted(public.__all__)
    assert all(hasattr(public, name) for name in public.__all__)


def test_a_public_name_says_what_it_is_for() -> None:
    for module, names in written().items():
        for name in names:
            found = getattr(importlib.import_module(module), name)
            assert (found.__doc__ or "").strip(), f"{module}.{name} has no docstring"


def test_the_changelog_has_the_version_that_is_built() -> None:
    pyproject = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.*)"$', pyproject, re.MULTILINE)
    assert version is not None
    assert re.search(rf"^## {re.escape(version[1])}\b", CHANGELOG, re.MULTILINE)
