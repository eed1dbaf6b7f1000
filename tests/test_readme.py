"""What the README says is so."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from scripts import settings_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
OOMPH = str(Path(sys.executable).parent / "oomph")


def test_the_table_of_settings_is_the_settings() -> None:
    assert settings_table.written(README) == README, "run .venv/bin/python scripts/settings_table.py"


def test_the_example_runs_as_it_stands(url: str, tmp_path: Path) -> None:
    found = re.search(r"```python\n# work\.py\n(.*?)```", README, re.DOTALL)
    assert found is not None
    assert len([line for line in found[1].splitlines() if line.strip()]) <= 20
    (tmp_path / "work.py").write_text(found[1])
    environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "work.py"], cwd=tmp_path, env=environment, check=True)
    subprocess.run([OOMPH, "enqueue", "greet", '{"name": "Grace"}', "--pool", "agent"], env=environment, check=True)
    done = subprocess.run(
        [OOMPH, "worker", "--app", "work:app", "--drain"],
        cwd=tmp_path,
        env={**environment, "WORKER_INGEST_CONCURRENCY": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"Hello Ada, attempt 1", "Hello Grace, attempt 1"} <= set(done.stdout.splitlines())


def test_documents_and_own_handlers_are_one_app_as_it_says(tmp_path: Path) -> None:
    for name in ("work", "both"):
        found = re.search(rf"```python\n# {name}\.py\n(.*?)```", README, re.DOTALL)
        assert found is not None
        (tmp_path / f"{name}.py").write_text(found[1])
    look = "from both import app; print(*app().handlers)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", look], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert {"ingest-document", "greet"} <= set(done.stdout.split())


def test_documents_are_ingested_as_it_says(url: str, tmp_path: Path) -> None:
    """With nothing set but the database: the worker and whoever submits stand in the same folder."""
    (tmp_path / "note.md").write_text("# Fences\n\nA claim number is part of the fence.\n")
    unset = {"OBJECT_STORE_URL", "WORKER_APP", "EMBEDDING_URL"}
    environment = {name: value for name, value in os.environ.items() if name not in unset} | {"DATABASE_URL": url}
    log = (tmp_path / "log").open("wb")
    worker = subprocess.Popen(
        [OOMPH, "worker", "--app", "jobs.documents.app:app"], cwd=tmp_path, env=environment, stdout=log, stderr=log
    )
    try:
        done = subprocess.run(
            [OOMPH, "ingest", "--json", "note.md"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "log").read_text()
        found = re.search(r"```python\n# find\.py\n(.*?)```", README, re.DOTALL)
        assert found is not None
        (tmp_path / "find.py").write_text(found[1])
        done = subprocess.run(
            [sys.executable, "find.py", "claim", "number"],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "note.md | None | Fences | # Fences A claim number is part of the fence." in done.stdout
        assert done.stdout.endswith("Found by words only: no vector of the question was given.\n")
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
        log.close()


def test_the_demo_is_true() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "demo", "--json"], capture_output=True, text=True, timeout=110, check=False
    )
    told = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert told["ok"] is True
    assert len(told["checks"]) == 8
