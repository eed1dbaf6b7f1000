"""What `scripts/_environment` does with a .venv that is there already."""

import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "_environment").write_bytes((SCRIPTS / "_environment").read_bytes())
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "mine").touch()
    return tmp_path


def make_way(checkout: Path) -> str:
    command = ["bash", "-euc", '. "$0/scripts/_environment"; _oomph_make_way', str(checkout)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 0, ended.stderr
    assert not (checkout / ".venv").exists()
    return ended.stderr


def test_an_environment_that_somebody_made_by_hand_is_moved_aside_and_not_removed(checkout: Path) -> None:
    told = make_way(checkout)
    (aside,) = checkout.glob(".venv.aside-*")
    assert (aside / "mine").exists()
    assert f"{checkout}/.venv was not made by these scripts: it is {aside} now" in told


@pytest.mark.parametrize("stamp", ["oomph-made.stamp", "oomph-packages.stamp", "oomph-project.stamp"])
def test_one_of_our_own_that_is_of_no_more_use_is_removed(checkout: Path, stamp: str) -> None:
    (checkout / ".venv" / stamp).touch()
    assert "rebuilding" in make_way(checkout)
    assert list(checkout.glob(".venv*")) == []


def test_where_there_is_none_nothing_happens(checkout: Path) -> None:
    (checkout / ".venv" / "mine").unlink()
    (checkout / ".venv").rmdir()
    assert make_way(checkout) == ""
