"""A real kill by the kernel's OOM killer, in a private memory cgroup of 200 MB that holds a supervisor of its own."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.procfs import memory_cgroup_folder

LIMIT_BYTES = 200 << 20


@pytest.fixture
def cgroup() -> Iterator[Path]:
    found = memory_cgroup_folder(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    if found is None:
        pytest.skip("no memory cgroup is mounted here")
    version, folder = found
    path = Path(folder, f"oomph-test-{os.getpid()}")
    limits = ["memory.max", "memory.swap.max"] if version == 2 else ["memory.limit_in_bytes"]
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a memory cgroup here: {error}")
    try:
        try:
            (path / limits[0]).write_text(str(LIMIT_BYTES))
            for name in limits[1:]:
                (path / name).write_text("0")
        except OSError as error:
            pytest.skip(f"cannot limit a memory cgroup here: {error}")
        yield path
    finally:
        path.rmdir()


@pytest.mark.parametrize(
    ("recipe", "verdict", "certainty"),
    [
        ("eat_bytes", "oom_killed", "certain"),
        ("helper_eats", "oom_killed", "likely"),
        ("self_kill", "killed", "certain"),
    ],
)
def test_the_kernels_own_kill_is_told_from_any_other(cgroup: Path, recipe: str, verdict: str, certainty: str) -> None:
    """Scenarios 3, 4 and 40: the kernel kills a child or its helper, or an operator does; a neighbour sees nothing."""
    order = {"self_kill": '"signal_itself", "SIGKILL"'}.get(recipe, repr(recipe))
    script = textwrap.dedent(f"""
        import asyncio, json, os
        from pathlib import Path
        Path({str(cgroup)!r}, "cgroup.procs").write_text(str(os.getpid()))
        from pools.ingest import IngestPool
        from tests.pools.handlers_app import app
        from tests.pools.kitchen import SPEC, Kitchen

        async def main():
            pool = IngestPool(SPEC, app, memory_mb=2000, slots=2)
            await pool.start()
            report, survivor = await asyncio.gather(Kitchen(pool).cook({order}), Kitchen(pool).cook("moment_later"))
            await pool.stop()
            print(json.dumps([report.outcome.verdict, dict(report.evidence), survivor.outcome.verdict]))

        asyncio.run(main())
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    found, evidence, survivor = json.loads(done.stdout.splitlines()[-1])
    assert (found, evidence["certainty"]) == (verdict, certainty), evidence
    assert survivor == "succeeded"
