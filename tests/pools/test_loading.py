"""`load_app` from the folder of a user, and what it says where it cannot."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.app import App
from jobs.loading import AppError, load_app


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


GOOD = "from jobs import App\napp = App([])\ndef production():\n    return app\nnumber = 5\ndef broken():\n    1 / 0\n"


@pytest.mark.parametrize("spec", ["user_app:app", "user_app:production", "inner.deep:app"])
def test_an_app_or_what_makes_one_is_loaded_from_the_working_folder(folder: Path, spec: str) -> None:
    (folder / "user_app.py").write_text(GOOD)
    (folder / "inner").mkdir()
    (folder / "inner" / "deep.py").write_text(GOOD)
    assert isinstance(load_app(spec), App)
    assert sys.path[-1] == str(folder)


def test_the_working_folder_is_put_last_even_if_it_stood_first(folder: Path) -> None:
    (folder / "user_app2.py").write_text(GOOD)
    sys.path[:0] = ["", str(folder)]
    load_app("user_app2:app")
    assert "" not in sys.path
    assert sys.path.index(str(folder)) == len(sys.path) - 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("user_app3", ["module:attribute"]),
        ("user app:app", ["module:attribute"]),
        ("nowhere:app", ["no module nowhere", "working folder"]),
        ("user_app3:missing", ["no attribute missing", "user_app3.py", "app"]),
        ("user_app3:number", ["an int", "jobs.App"]),
        ("user_app3:broken", ["ZeroDivisionError", "user_app3.py:7"]),
        ("raises:app", ["ValueError", "raises.py:2", "not today"]),
        ("syntax:app", ["SyntaxError", "syntax.py:1"]),
        ("needs:app", ["ModuleNotFoundError", "needs.py:1", "unheard_of"]),
        ("jobs:app", ["jobs.py", "Rename", "my_jobs:app"]),
        ("supervisor.mine:app", ["supervisor", "rename"]),
    ],
)
def test_what_cannot_be_loaded_is_explained(folder: Path, spec: str, words: list[str]) -> None:
    (folder / "user_app3.py").write_text(GOOD)
    (folder / "raises.py").write_text("x = 1\nraise ValueError('not today')\n")
    (folder / "syntax.py").write_text("def\n")
    (folder / "needs.py").write_text("import unheard_of\n")
    (folder / "jobs.py").write_text(GOOD)
    with pytest.raises(AppError) as error:
        load_app(spec)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)
