"""What the README says is so."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
OOMPH = str(Path(sys.executable).parent / "oomph")


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


def test_every_page_that_it_names_is_there() -> None:
    named = re.findall(r"\]\(([\w./-]+)\)", README)
    assert len(named) > 20
    assert [page for page in named if not (ROOT / page).is_file()] == []


def test_the_demo_is_true() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "demo", "--json"], capture_output=True, text=True, timeout=110, check=False
    )
    told = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert told["ok"] is True
    assert len(told["checks"]) == 8
