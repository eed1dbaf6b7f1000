"""The tree explains itself, and keeps to its own rules."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {"jobs": {"jobs"}, "pools": {"pools", "jobs"}, "supervisor": {"supervisor", "pools", "jobs"}}
# The modules of PyPI's package `supervisor`: both can live in one environment.
TAKEN = {
    "childutils",
    "compat",
    "confecho",
    "datatypes",
    "dispatchers",
    "events",
    "http",
    "http_client",
    "loggers",
    "options",
    "pidproxy",
    "poller",
    "process",
    "rpcinterface",
    "socket_manager",
    "states",
    "supervisorctl",
    "supervisord",
    "templating",
    "web",
    "xmlrpc",
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_run_downwards_only(package: str) -> None:
    ours = set(MAY_IMPORT)
    for path in modules(package):
        wrong = {name for name in imported(path) if name.partition(".")[0] in ours - MAY_IMPORT[package]}
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_no_module_of_supervisor_has_the_name_of_one_of_pypis_package() -> None:
    assert not TAKEN & {path.stem for path in (ROOT / "supervisor").iterdir()}
    assert (ROOT / "supervisor" / "__init__.py").read_text() == ""


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_sql_lives_in_sql_files(package: str) -> None:
    """What touches a table stands in a file of its own; only settings of a session may stand in code."""
    migrations = ROOT / "jobs" / "migrate.py"  # runs files of statements, and keeps the record of which
    kit = ROOT / "supervisor" / "testing"  # looks at tables as a test does
    for path in modules(package):
        if path == migrations or kit in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = " ".join(node.value.split()).upper()
                assert not text.startswith(("INSERT INTO ", "UPDATE BACKGROUND", "DELETE FROM ")), path
                assert not (text.startswith("SELECT ") and " FROM BACKGROUND_" in text), path


def test_every_statement_is_used_and_says_what_it_is_for() -> None:
    code = "\n".join(path.read_text() for package in MAY_IMPORT for path in modules(package))
    for path in sorted((ROOT / "jobs" / "sql").glob("*.sql")):
        assert f'"{path.stem}"' in code, f"{path.name} is used nowhere"


def test_the_locks_name_no_address() -> None:
    for path in ROOT.glob("requirements*.lock"):
        assert "://" not in path.read_text(), path


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Also not by imports in functions, or for types: to understand one of them would take all."""
    paths = {module_name(path): path for package in MAY_IMPORT for path in modules(package)}
    used = {module: set(imported_modules(path)) & paths.keys() - {module} for module, path in paths.items()}
    TopologicalSorter(used).prepare()  # raises an error that names those in a circle


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            are_modules = [(ROOT / name.replace(".", "/")).with_suffix(".py").exists() for name in submodules]
            yield from (name for name, is_module in zip(submodules, are_modules, strict=True) if is_module)
            if not all(are_modules):
                yield node.module


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("folder", ["pools", "supervisor/claiming", "supervisor/monitor", "supervisor/notices"])
def test_the_map_of_a_folder_names_all_of_its_modules(folder: str) -> None:
    told = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text())) or ""
    missing = [path.name for path in (ROOT / folder).glob("*.py") if path.stem != "__init__" and path.name not in told]
    assert not missing
