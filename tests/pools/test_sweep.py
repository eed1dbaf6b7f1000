"""What a SIGKILLed supervisor leaves behind, and how the next one tells it from what belongs to a live one."""

# ruff: noqa: ASYNC240

import asyncio
import json
import os
import resource
import select
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.outcome import Succeeded
from pools import process
from pools.identity import Marks, Owner, mark_of, owner_is_gone
from pools.ingest import IngestPool
from pools.leftovers import children_reader, stats, sweep_processes
from pools.options import IngestOptions
from pools.scratch import ScratchFolders
from tests.pools.handlers_app import app
from tests.pools.kitchen import SPEC, is_dead, open_kitchen, text_of, until


def supervisor(recipe: str, text: Path, scratch: Path, *, before: str = "") -> "subprocess.Popen[str]":
    """A supervisor of its own, with one job in it; prints its template's pid."""
    script = textwrap.dedent(f"""
        import asyncio
        from pools.ingest import IngestPool
        from pools.options import IngestOptions
        from tests.pools.handlers_app import app
        from tests.pools.kitchen import SPEC, Kitchen

        async def main():
            pool = IngestPool(SPEC, app, memory_mb=100, slots=8, options=IngestOptions(scratch_path={str(scratch)!r}))
            await pool.start()
            {before or "pass"}
            print(pool._spawner.pid, flush=True)
            kitchen = Kitchen(pool)
            await asyncio.gather(*(pool.run(kitchen.order({recipe!r}, "{text}" + str(n))) for n in range(3)))

        asyncio.run(main())
    """)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def end(killed: "subprocess.Popen[str]") -> None:
    killed.kill()
    killed.wait()
    assert killed.stdout is not None
    killed.stdout.close()


@pytest.mark.alone  # every worker that starts on this host sweeps
async def test_helpers_and_folders_of_a_killed_supervisor_are_swept_by_the_next_one(tmp_path: Path) -> None:
    """Scenarios 18 and 19, this side of the database: SIGKILL to the supervisor, with children and daemons running."""
    ready = tmp_path / "ready"
    killed = supervisor("daemon_and_wait", ready, tmp_path)
    try:
        await until(lambda: all(text_of(tmp_path / f"ready{n}") for n in range(3)), 10)
        daemons = [text_of(tmp_path / f"ready{n}") for n in range(3)]
        end(killed)
        await asyncio.sleep(0.2)
        # They left session and parent, closed nothing and carry no environment: only the mark is left.
        assert not any(is_dead(daemon) for daemon in daemons)
        assert len(list(tmp_path.glob("oomph-*/*"))) == 3
        async with open_kitchen(scratch_path=str(tmp_path)) as kitchen:
            assert all(is_dead(daemon) for daemon in daemons)
            assert list(tmp_path.glob("oomph-*/*")) == []
            assert (await kitchen.cook("ok")).outcome == Succeeded(None)
    finally:
        killed.kill()


def test_workers_that_start_together_sweep_without_being_in_each_others_way(tmp_path: Path) -> None:
    left = [tmp_path / replace(Owner.this_process(), start=start).name for start in range(200)]
    for folder in left:
        (folder / "job-1" / "inside").mkdir(parents=True)
    sweepers = [ScratchFolders(str(tmp_path), Owner.this_process()) for _ in range(4)]
    with ThreadPoolExecutor(len(sweepers)) as threads:
        swept = sum(threads.map(ScratchFolders.sweep, sweepers))
    assert swept >= len(left)  # some see the same folder go
    assert list(tmp_path.iterdir()) == []


async def test_what_belongs_to_another_live_supervisor_is_never_touched(tmp_path: Path) -> None:
    other = supervisor("daemon_and_wait", tmp_path / "ready", tmp_path)
    try:
        await until(lambda: all(text_of(tmp_path / f"ready{n}") for n in range(3)), 10)
        assert other.stdout is not None
        template = int(other.stdout.readline())
        pool = IngestPool(SPEC, app, memory_mb=100, slots=1, options=IngestOptions(scratch_path=str(tmp_path)))
        await pool.start()
        await pool.stop()
        for number in range(3):
            assert not is_dead(text_of(tmp_path / f"ready{number}"))
        assert not is_dead(template)
        assert len(list(tmp_path.glob("oomph-*/*"))) == 3
    finally:
        end(other)
        sweep_processes()


async def test_children_die_with_their_supervisor_within_a_second(tmp_path: Path) -> None:
    """Scenario 18: no leader outlives it, also one that ignores signals."""
    ready = tmp_path / "ready"
    killed = supervisor("says_ready", ready, tmp_path)
    await until(lambda: all(text_of(tmp_path / f"ready{n}") for n in range(3)), 10)
    children = [text_of(tmp_path / f"ready{n}").split()[0] for n in range(3)]
    assert killed.stdout is not None
    template = killed.stdout.readline().strip()
    started = time.monotonic()
    end(killed)
    await until(lambda: all(map(is_dead, [template, *children])), 1)
    assert time.monotonic() - started < 1.5
    sweep_processes()


def test_a_process_that_asked_for_it_dies_with_its_parent() -> None:
    """Scenario 18, the kernel's part of it: nobody sweeps a process without a mark."""
    armed = "import os, time; from pools.process import die_with_parent; die_with_parent(os.getppid())"
    script = f"{armed}; print(os.getpid(), flush=True); time.sleep(600)"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    pidfd = os.pidfd_open(pid)
    try:
        end(parent)
        dead, _, _ = select.select([pidfd], [], [], 1)
        assert dead
    finally:
        process.send(pidfd, signal.SIGKILL)
        os.close(pidfd)
        with suppress(ChildProcessError):  # it is ours where an earlier test made this process a subreaper
            os.waitpid(pid, 0)


async def test_a_child_whose_supervisor_died_before_its_gate_never_runs(tmp_path: Path) -> None:
    """Scenario 20: SIGKILL to the supervisor while the template forks."""
    # The next template, as the first one has made a child already; it stalls when its child is born and not yet told.
    stall = (
        "import os, signal; from tests.pools.kitchen import until; "
        "pool._spawner._environment['WORKER_FAILPOINTS'] = 'spawned:stall=60'; "
        "os.kill(pool._spawner.pid, signal.SIGKILL); await until(lambda: not pool.template_up)"
    )
    killed = supervisor("says_ready", tmp_path / "ready", tmp_path, before=stall)

    def leaders() -> list[int]:
        return [stat.pid for stat in stats(children_reader()(killed.pid)) if stat.session == stat.pid]

    try:
        assert killed.stdout is not None
        killed.stdout.readline()  # from here on a child is one of a job's
        await until(lambda: leaders() != [], 10)
        (child,) = leaders()
        assert not is_dead(child)
        killed.kill()
        killed.wait()
        await until(lambda: is_dead(child), 2)
        assert not list(tmp_path.glob("ready*"))
    finally:
        end(killed)
        sweep_processes(killed.pid)


def test_the_owner_of_a_mark_is_known_to_be_gone_only_when_it_is() -> None:
    marks = Marks()
    first, second = marks.take(), marks.take()
    assert len({first, second, marks.template}) == 3
    assert max(first, second) < marks.template
    assert not any(map(owner_is_gone, (first, second, marks.template)))
    for nobodys in (0, 5, 2**40, first ^ 1, first ^ (1 << 20), 2**63 - 1):
        assert not owner_is_gone(nobodys)
    short = subprocess.run(
        [sys.executable, "-c", "from pools.identity import Marks; print(Marks().take())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert owner_is_gone(int(short.stdout))


def test_a_mark_is_not_given_again_while_its_job_runs() -> None:
    marks = Marks()
    kept = marks.take()
    for _ in range(3 * (1 << 18) // 2):
        mark = marks.take()
        assert mark != kept
        marks.give_back(mark)


def test_names_are_told_from_those_of_other_hosts_boots_and_namespaces() -> None:
    me = Owner.this_process()
    assert Owner.of_name(me.name) == me
    assert not me.is_gone
    assert replace(me, start=1).is_gone
    assert replace(me, boot="00000000").is_gone
    assert not replace(me, start=1, namespace=1).is_gone
    assert not replace(me, start=1, host="elsewhere").is_gone
    assert not replace(me, boot="00000000", host="elsewhere").is_gone
    for name in ("oomph-x", "oomph", me.name + "x", "something-else"):
        assert Owner.of_name(name) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop the right to raise limits here")
def test_a_worker_inside_a_job_uses_marks_below_its_own() -> None:
    script = (
        "import os, resource, json; from pools.identity import Marks, owner_is_gone\n"
        "resource.setrlimit(resource.RLIMIT_RSS, (1 << 50, 1 << 50)); os.setuid(65534)\n"
        "marks = Marks(); taken = [marks.take() for _ in range(3)]\n"
        "print(json.dumps([marks.are_owned, marks.template, *taken]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    are_owned, template, *taken = json.loads(done.stdout)
    assert not are_owned
    assert (1 << 50) > template > max(taken)
    assert len(set(taken)) == 3
    assert not any(map(owner_is_gone, [template, *taken]))


@pytest.mark.alone  # any worker that starts on this host could sweep it first
def test_a_process_that_carries_the_mark_of_a_dead_supervisor_is_swept() -> None:
    """Scenario 19, the sweep itself: wherever the process hangs, and whatever else it does."""
    made = "from pools.identity import Marks; print(Marks().take())"
    done = subprocess.run([sys.executable, "-c", made], capture_output=True, text=True, check=True)
    mark = int(done.stdout)
    left = subprocess.Popen(["sleep", "600"], preexec_fn=lambda: process.carry_mark(mark))
    try:
        assert left.pid in sweep_processes().dead
        assert left.wait(1) == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()


def test_a_strangers_process_is_not_swept_whatever_its_limit_says() -> None:
    def limit() -> None:
        resource.setrlimit(process.MARK, (1 << 40, 1 << 40))

    stranger = subprocess.Popen(["sleep", "600"], preexec_fn=limit)
    try:
        assert mark_of(stranger.pid) == 1 << 40
        assert stranger.pid not in sweep_processes().dead
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_long_list_of_children_is_read_to_its_end() -> None:
    """Of any list in /proc, one read gives a page at most: some 680 pids."""
    ours = [subprocess.Popen(["sleep", "600"]) for _ in range(900)]
    try:
        assert {process.pid for process in ours} <= set(children_reader()(os.getpid()))
    finally:
        for process in ours:
            process.kill()
        for process in ours:
            process.wait()
