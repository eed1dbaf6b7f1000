"""A supervisor that is PID 1 of its own pid namespace, as in a container without an init."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

ORPHANS = 1000

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="only root with `unshare` can make a pid namespace here",
)


def run_as_pid_1(body: str) -> dict[str, object]:
    script = textwrap.dedent("""
        import asyncio, json, os, signal, subprocess, time
        from pathlib import Path
        from pools import watch
        from pools.ingest import IngestPool
        from pools.procfs import parse_stat
        from tests.pools.handlers_app import app
        from tests.pools.kitchen import SPEC, Kitchen

        def states():
            found = []
            for name in os.listdir("/proc"):
                if name.isdigit():
                    try:
                        found.append(parse_stat(Path(f"/proc/{name}/stat").read_text()).state)
                    except OSError:
                        pass
            return found

        async def main():
            pool = IngestPool(SPEC, app, memory_mb=100, slots=10)
            await pool.start()
            kitchen = Kitchen(pool)
            told = {"pid": os.getpid()}
        %s
            await pool.stop()
            told["left"] = len(states())
            print(json.dumps(told))

        asyncio.run(main())
    """) % textwrap.indent(textwrap.dedent(body), " " * 4)
    done = subprocess.run(
        ["unshare", "-pf", "--mount-proc", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_thousand_orphans_leave_no_zombie_and_no_status_is_stolen() -> None:
    """Scenario 28: orphans of jobs, a zombie of a shell, and a status that somebody here still wants."""
    told = run_as_pid_1(f"""
        watch.FOREIGN_ZOMBIE_SECONDS = 1.5
        subprocess.run(["sh", "-c", "(sleep 0.1; exit 5) & exit 0"], check=True)
        reports = await asyncio.gather(*(kitchen.cook("orphans", "{ORPHANS // 10}") for _ in range(10)))
        told["verdicts"] = sorted({{report.outcome.verdict for report in reports}})
        ours = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
        told["status"] = await ours.wait()
        until = time.monotonic() + 6
        while "Z" in states() and time.monotonic() < until:
            await asyncio.sleep(0.05)
        told["zombies"] = states().count("Z")
    """)
    assert told == {"pid": 1, "verdicts": ["succeeded"], "status": 7, "zombies": 0, "left": 1}
