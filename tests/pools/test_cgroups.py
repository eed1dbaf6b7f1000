"""One leaf per child. Real cgroups where this is root and version 2 is mounted, whatever that can limit."""

# ruff: noqa: ASYNC220, ASYNC240

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.outcome import Succeeded, Verdict
from pools import cgroups
from pools.cgroups import Leaf, Leaves, why_not_ours
from pools.execution import Intent
from pools.identity import Owner
from pools.procfs import cgroup2_folder, slurp
from supervisor.testing.waiting import wait_for
from tests.pools.kitchen import is_dead, open_kitchen, result_of, text_of, until


def mounted() -> Path | None:
    found = cgroup2_folder("0::/\n", slurp("/proc/self/mountinfo"))
    return None if found is None else Path(found)


@pytest.fixture
def parent() -> Iterator[Path]:
    root = mounted()
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("no cgroup v2 that this user may write to is mounted here")
    folder = root / f"oomph-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    Leaf(folder).kill()
    assert cgroups.remove_tree(folder)


def test_a_leaf_holds_kills_and_goes(parent: Path) -> None:
    leaves, told = Leaves.prepare(str(parent), Owner.this_process())
    assert leaves is not None
    assert str(parent) in told
    leaf = leaves.make("1a", 20)
    leaf.limit_memory(100)
    helper = subprocess.Popen(
        ["sh", "-c", "read go; setsid sleep 600 & setsid sleep 600 & wait"], stdin=subprocess.PIPE, text=True
    )
    leaf.add(helper.pid)
    assert helper.stdin is not None
    helper.stdin.write("go\n")
    helper.stdin.close()
    members = wait_for(
        lambda: len(found := (leaf.folder / "cgroup.procs").read_text().split()) >= 3 and found, "3 in it"
    )
    assert str(helper.pid) in members
    (leaf.folder / "below").mkdir()  # a job that is root may make its own
    leaf.kill()
    helper.wait()
    wait_for(lambda: all(map(is_dead, members)), "all of them are dead")
    assert leaf.remove()
    assert not leaf.folder.exists()
    if not leaves.controllers:
        assert "for clean-up only" in told
        assert leaf.oom_kills() is None
        assert leaf.peak_mb() is None
    leaves.close()
    assert not leaves.folder.exists()


async def test_a_child_lives_in_its_leaf_and_both_are_gone_after_the_verdict(parent: Path, tmp_path: Path) -> None:
    async with open_kitchen(cgroup=str(parent)) as kitchen:
        execution = kitchen.order("daemon_and_wait", str(tmp_path / "ready"))
        running = asyncio.create_task(kitchen.pool.run(execution))
        await until(lambda: text_of(tmp_path / "ready") != "")
        (leaf,) = parent.glob("oomph-*/job-*")
        assert text_of(tmp_path / "ready") in (leaf / "cgroup.procs").read_text().split()
        execution.stop(Intent.CANCEL)
        assert (await running).outcome.verdict is Verdict.CANCELLED
        assert is_dead(text_of(tmp_path / "ready"))
        assert not leaf.exists()
        assert (await kitchen.cook("ok")).outcome == Succeeded(None)
    assert list(parent.glob("oomph-*")) == []


async def test_a_leaf_is_swept_with_all_its_processes_once_its_supervisor_is_gone(parent: Path) -> None:
    """A process that gave up mark and session is still in its leaf."""
    gone = replace(Owner.this_process(), start=1)
    folder = parent / gone.name / "job-1"
    folder.mkdir(parents=True)
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Leaf(folder).add(left.pid)
    neighbour = parent / Owner.this_process().name / "job-1"
    neighbour.mkdir(parents=True)
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    Leaf(neighbour).add(other.pid)
    async with open_kitchen(cgroup=str(parent)):
        assert left.wait(5) == -9
        assert not folder.parent.exists()
        assert other.poll() is None
    other.kill()
    other.wait()


def test_a_worker_in_a_delegated_cgroup_moves_aside_and_gives_each_child_a_leaf(parent: Path) -> None:
    try:
        os.setxattr(parent, "trusted.delegate", b"1")  # as systemd marks what it delegates
    except OSError as error:
        pytest.skip(f"cgroups carry no such mark here: {error.strerror}")
    script = textwrap.dedent(f"""
        import asyncio, json, os
        from pathlib import Path
        Path({str(parent)!r}, "cgroup.procs").write_text(str(os.getpid()))
        from pools.ingest import IngestPool
        from tests.pools.handlers_app import app
        from tests.pools.kitchen import SPEC, Kitchen, result_of

        async def main():
            pool = IngestPool(SPEC, app, memory_mb=100, slots=1)
            await pool.start()
            leaf = result_of(await Kitchen(pool).cook("reads", "/proc/self/cgroup"))
            await pool.stop()
            print(json.dumps([Path("/proc/self/cgroup").read_text(), leaf]))

        asyncio.run(main())
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    worker, leaf = (text.splitlines()[-1] for text in json.loads(done.stdout.splitlines()[-1]))
    assert worker.startswith(f"0::/{parent.name}/oomph-")
    assert worker.endswith("/worker")
    assert "/job-" in leaf
    (left,) = parent.glob("oomph-*")  # the worker ended inside it
    assert (left / "cgroup.procs").read_text() == ""
    assert Owner.of_name(left.name) is not None
    assert cgroups.sweep(str(parent)) == 1
    assert list(parent.glob("oomph-*")) == []


def test_a_folder_that_is_no_cgroup_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(cgroups.CgroupError, match="no cgroup v2"):
        Leaves.prepare(str(tmp_path), Owner.this_process())


def test_what_was_not_delegated_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "root cgroup" in (why_not_ours(tmp_path) or "")
    for name in ("cgroup.type", "cgroup.procs"):
        (tmp_path / name).touch()
    monkeypatch.setattr(cgroups, "slurp", lambda _: "0::/system.slice/oomph.service\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "with systemd, set Delegate=memory pids" in (why_not_ours(tmp_path) or "")
    monkeypatch.setattr(cgroups, "_xattr", lambda _, name: b"1" if name == "user.delegate" else None)
    assert why_not_ours(tmp_path) is None
    monkeypatch.setattr(cgroups, "_xattr", lambda *_: None)
    monkeypatch.setattr(cgroups, "slurp", lambda _: "4:memory:/\n0::/\n")  # the root of a container
    assert why_not_ours(tmp_path) is None


def test_the_limits_are_written_and_the_figures_read_where_the_kernel_has_them(tmp_path: Path) -> None:
    """The files of a kernel with both controllers, as plain files: no such kernel can be counted on here."""
    leaf = Leaves(tmp_path, ("memory", "pids")).make("8", 9)
    assert (leaf.folder / "pids.max").read_text() == "9"
    leaf.limit_memory(5)
    assert not (leaf.folder / "memory.max").exists()  # no such controller, so nothing may be made
    for name in ("memory.max", "memory.oom.group"):
        (leaf.folder / name).touch()
    leaf.limit_memory(5)
    assert (leaf.folder / "memory.max").read_text() == str(5 << 20)
    assert (leaf.folder / "memory.oom.group").read_text() == "1"
    assert not (leaf.folder / "memory.swap.max").exists()  # a kernel without swap accounting has none
    assert leaf.oom_kills() is None
    (leaf.folder / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n")
    (leaf.folder / "memory.peak").write_text("104857600\n")
    assert leaf.oom_kills() == 3
    assert leaf.peak_mb() == 100


@pytest.mark.parametrize(
    ("cgroup", "mounts", "found"),
    [
        ("4:memory:/x\n0::/\n", "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 c rw\n", "/sys/fs/cgroup/unified"),
        ("0::/a.slice/b\n", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/a.slice/b"),
        ("4:memory:/x\n", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", None),
        ("0::/\n", "36 32 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", None),
    ],
)  # fmt: skip
def test_the_hierarchy_of_version_2_is_found_also_beside_version_1(cgroup: str, mounts: str, found: str | None) -> None:
    folder = cgroup2_folder(cgroup, mounts)
    assert (None if folder is None else str(folder)) == found


async def test_a_result_of_a_job_in_a_leaf_names_its_peak_only_where_the_kernel_counts(parent: Path) -> None:
    async with open_kitchen(cgroup=str(parent)) as kitchen:
        assert result_of(await kitchen.cook("result", "a")) == "a"
        report = await kitchen.cook("raises")
        leaves = kitchen.pool._house.leaves
        assert leaves is not None
        assert ("cgroup_peak_mb" in report.evidence) == ("memory" in leaves.controllers)
