"""Folders that a job fills: what is counted of them, and that neither counting nor removing is led out of them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pools.folders import MAX_DEPTH
from pools.identity import Owner
from pools.process import NotSupported
from pools.scratch import Scratch, ScratchFolders
from tests.pools.kitchen import let_others_pass, open_kitchen

MIB = 1 << 20
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")

# A folder that is a link to `victim` half of the time, and is made anew where it is removed.
EXCHANGES = """
import ctypes, sys
libc, victim = ctypes.CDLL(None), sys.argv[1].encode()
print(flush=True)
while True:
    libc.mkdir(b"scratch", 0o777)
    libc.mkdir(b"scratch/folder", 0o777)
    libc.symlink(victim, b"scratch/link")
    for _ in range(20):
        libc.renameat2(-100, b"scratch/folder", -100, b"scratch/link", 2)
"""


def test_a_process_that_exchanges_folders_for_links_does_not_lead_the_removal_out(tmp_path: Path) -> None:
    victim, scratch = tmp_path / "victim", Scratch(tmp_path / "scratch")
    victim.mkdir(0o500)
    arguments = [sys.executable, "-c", EXCHANGES, str(victim)]
    with subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE) as survivor:
        assert survivor.stdout is not None
        survivor.stdout.readline()
        until = time.monotonic() + 3
        while time.monotonic() < until and victim.stat().st_mode & 0o777 == 0o500:
            scratch.remove(0.2)
            scratch.excess(1, 0)
        survivor.kill()
    assert victim.stat().st_mode & 0o777 == 0o500
    assert scratch.remove(5)
    assert victim.exists()


def test_a_file_with_many_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 2 * MIB)
    for number in range(40):
        (tmp_path / f"name-{number}").hardlink_to(tmp_path / "file")
    scratch = Scratch(tmp_path)
    assert scratch.excess(5, 0) == ""
    assert scratch.excess(1, 0) == "its scratch folder held 2 MB of 1 MB"
    assert scratch.excess(5, 4) == "its scratch folder held 6 MB of 5 MB"


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1])
def test_folders_are_counted_to_a_depth_and_more_of_them_are_too_much(tmp_path: Path, levels: int) -> None:
    scratch = Scratch(tmp_path / "scratch")
    scratch.path.mkdir()
    folder = os.open(scratch.path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 100, dir_fd=folder)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    with os.fdopen(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder), "wb") as file:
        file.write(b"x" * 5 * MIB)
    os.close(folder)
    told = scratch.excess(4, 0)
    assert "of 4 MB" in told if levels == MAX_DEPTH else "folders inside each other" in told
    assert scratch.remove(5)


def test_a_folder_that_its_owner_may_not_read_is_counted_and_removed(tmp_path: Path) -> None:
    top = tmp_path / "scratch"
    scratch = Scratch(top)
    (top / "closed" / "closed").mkdir(parents=True)
    (top / "closed" / "closed" / "file").write_bytes(b"x" * 2 * MIB)
    for folder in (top / "closed" / "closed", top / "closed", top, tmp_path):
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, -1)
        folder.chmod(0o700 if folder == tmp_path else 0)
    let_others_pass(tmp_path)
    if (pid := os.fork()) == 0:  # root may read whatever it wants
        code = 1
        try:
            if os.geteuid() == 0:
                os.setresuid(NOBODY, NOBODY, NOBODY)
            code = 0 if scratch.excess(1, 0) and scratch.remove(5) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not top.exists()


def folders(tmp_path: Path) -> ScratchFolders:
    return ScratchFolders(str(tmp_path), Owner.this_process())


def test_a_folder_of_our_own_is_used_again(tmp_path: Path) -> None:
    folders(tmp_path).prepare()
    assert folders(tmp_path).make("job", None).path.parent == folders(tmp_path).folder


@pytest.mark.parametrize("squat", ["open to all", "a link", pytest.param("of another user", marks=as_root)])
async def test_a_folder_that_somebody_else_has_made_under_our_name_is_refused(tmp_path: Path, squat: str) -> None:
    ours = folders(tmp_path)
    if squat == "a link":
        ours.folder.symlink_to(tmp_path)
    else:
        ours.folder.mkdir()
        ours.folder.chmod(0o777 if squat == "open to all" else 0o755)
    if squat == "of another user":
        os.chown(ours.folder, NOBODY, -1)
    with pytest.raises(NotSupported, match="no scratch folder can be made"):
        async with open_kitchen(scratch_path=str(tmp_path)):
            pass
    with pytest.raises(OSError, match="oomph-"):
        ours.make("job", None)
    assert [*ours.folder.iterdir()] in ([], [ours.folder / ours.folder.name])
    ours.folder.unlink() if squat == "a link" else ours.folder.rmdir()
    assert ours.make("job", None).path.exists()  # after a clean-up of temporary files


@pytest.mark.parametrize(("mode", "is_exposed"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_a_parent_in_which_anybody_may_rename_our_folder_is_known(tmp_path: Path, mode: int, is_exposed: bool) -> None:
    tmp_path.chmod(mode)
    assert folders(tmp_path).is_exposed is is_exposed
