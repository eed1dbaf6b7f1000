"""What a service pays for `import jobs`: the import it needs to enqueue must stay small for good."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parent.parent.parent

# Every module at the top level outside the standard library that `import jobs` may load. A driver comes with the
# connection that the service already holds.
ALLOWED = {"jobs", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
DRIVERS = {"psycopg", "psycopg_binary"}

LOOK = """
import sys
before = set(sys.modules)  # what the interpreter's own start brings, such as .pth files
{statement}
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names)))
"""


def loaded_by(statement: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(statement=statement)], capture_output=True, text=True, check=True, timeout=60
    )
    return {name for name in done.stdout.split() if not name.startswith(("_sysconfigdata", "_cython", "cython"))}


def test_importing_jobs_loads_pydantic_and_nothing_else() -> None:
    assert loaded_by("import jobs") == ALLOWED


def test_enqueueing_on_psycopg_loads_no_pool_and_no_other_library(url: str) -> None:
    enqueue = f"""
import psycopg
from jobs import Payload, Pool, Task, enqueue
with psycopg.connect({url!r}) as connection:
    assert enqueue(connection, Task(kind="note", payload_type=Payload, pool=Pool.SYSTEM), Payload()) == 1
"""
    assert loaded_by(enqueue) == ALLOWED | DRIVERS


def test_importing_jobs_loads_neither_the_pools_nor_the_supervisor() -> None:
    assert not loaded_by("import jobs") & {
        "pools",
        "supervisor",
        "psycopg_pool",
        "psutil",
        "sqlalchemy",
        "setproctitle",
    }


def test_importing_jobs_loads_no_event_loop() -> None:
    """A service that enqueues without one, and a child of `ingest`, would hold 2 MiB for nothing."""
    look = "import sys, jobs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert not {"asyncio", "ssl"} & set(done.stdout.split())


def test_the_statements_and_migrations_are_found_in_a_zip(tmp_path: Path) -> None:
    """As a service may carry its own code to where it runs."""
    with ZipFile(tmp_path / "code.zip", "w") as archive:
        for path in sorted((ROOT / "jobs").rglob("*")):
            if path.suffix in (".py", ".sql"):
                archive.write(path, path.relative_to(ROOT))
    look = (
        "import jobs; from jobs.sql import statement; from jobs.migrations import NEWEST, migrations; "
        "print('.zip' in jobs.__file__, 'INSERT' in statement('enqueue'), len(migrations()) == NEWEST)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "code.zip")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", look], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True"] * 3
