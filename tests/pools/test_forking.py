"""How a child comes to be the supervisor's: by one fork, and by two where one is not safe."""

import json
import mmap
import os
import platform
from pathlib import Path

import pytest

from jobs.outcome import Died, Verdict
from pools.forking import _with_handlers
from tests.pools.kitchen import Kitchen, open_kitchen, result_of

ONCE, TWICE = "tests.pools.forks_app:app", "tests.pools.at_fork_app:app"
needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or platform.machine() != "x86_64",
    reason="looks into glibc on x86-64, and one fork suffices only with glibc",
)


def why_twice(kitchen: Kitchen) -> str:
    ready = kitchen.pool._spawner.ready
    assert ready is not None
    return ready.forks_twice


@needs_glibc
async def test_one_fork_suffices_unless_a_library_has_handlers_that_it_would_not_run() -> None:
    async with open_kitchen(spec=ONCE) as kitchen:
        assert why_twice(kitchen) == ""
    async with open_kitchen(spec=TWICE) as kitchen:
        assert "libhandlers" in why_twice(kitchen)


def test_handlers_are_found_in_whatever_holds_code_by_whatever_name(tmp_path: Path) -> None:
    """A program that is one file with all its libraries, or a library that was not called one."""
    engine, data = tmp_path / "engine", tmp_path / "data"
    for path, access in ((engine, mmap.PROT_READ | mmap.PROT_EXEC), (data, mmap.PROT_READ)):
        path.write_bytes(b"\0__register_atfork\0")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=access):
            assert (path.name in list(_with_handlers())) is (path is engine)


@needs_glibc
@pytest.mark.parametrize("spec", [ONCE, TWICE])
async def test_a_child_is_a_process_like_any_other_that_forked(spec: str) -> None:
    """glibc, the interpreter and the kernel agree on who it is, and it can start threads and processes of its own."""
    async with open_kitchen(spec=spec) as kitchen:
        told = [json.loads(result_of(await kitchen.cook("look"))) for _ in range(2)]
    for facts in told:
        assert facts["parent"] == os.getpid()
        assert facts["thread"] == facts["noted"] == facts["pid"]
        assert facts["robust"]
        assert facts["in main"]
        assert facts["hooks"] == "child"
        assert facts["threads ran"] == 1
        assert facts["program"] == "ran\n"
        assert facts["forked"] == 0
    assert told[0]["pid"] != told[1]["pid"]
    assert told[0]["random"] != told[1]["random"]


@needs_glibc
async def test_an_abort_in_a_child_hits_the_child() -> None:
    """abort() signals the thread whose id glibc has noted: with a stale note it would be the template."""
    async with open_kitchen() as kitchen:
        template = kitchen.pool._spawner.pid
        report = await kitchen.cook("abort")
        assert isinstance(report.outcome, Died)
        assert report.outcome.verdict is Verdict.CRASHED
        assert kitchen.pool._spawner.pid == template
