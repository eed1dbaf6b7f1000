"""The documentation tells the mutations of `scripts/mutations`, and each of them still fits the code."""

import ast
from pathlib import Path

import pytest

from scripts import mutations
from scripts.mutations_table import MUTATIONS, Mutation

ROOT = Path(__file__).parent.parent


def functions_of(path: Path) -> set[str]:
    """The names of all functions of one file."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_table_in_the_documentation_is_the_table_of_the_script() -> None:
    text = mutations.DOCS.read_text()
    assert mutations.START in text
    assert mutations.written(text) == text, "run scripts/mutations --docs"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_fits_the_code_and_names_tests_that_exist(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    assert mutation.applied(text) != text
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert name.partition("[")[0] in functions_of(ROOT / path), test


def test_a_text_that_is_not_there_exactly_once_is_refused() -> None:
    mutation = Mutation("of a test", "nowhere.sql", "one", "two", ())
    for text in ("", "one one"):
        with pytest.raises(ValueError, match="times in nowhere"):
            mutation.applied(text)
