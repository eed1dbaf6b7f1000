"""Finds the user's `App` from a spec such as `app.background.handlers:production`."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from jobs.app import App

_OURS = ("jobs", "pools", "supervisor")  # the packages of Oomph: a user's module of such a name can never be reached
_ROOT = Path(__file__).resolve().parent.parent


class AppError(Exception):
    """The app cannot be loaded. The message is one paragraph for the person who wrote the spec."""


def load_app(spec: str) -> App:
    """Import `module:attribute`, where the attribute is an `App` or a callable without arguments that returns one.

    The working folder goes to the end of `sys.path`, so that nothing in it shadows a package. Raises `AppError`.
    """
    module_name, colon, attribute = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise AppError(
            f"WORKER_APP={spec!r} is not of the form module:attribute, such as app.background.handlers:production."
        )
    folder = _put_working_folder_last()
    _refuse_our_own_names(spec, module_name, folder)
    found = _attribute(import_module(module_name, f"WORKER_APP={spec}"), attribute, spec)
    if not isinstance(found, App) and callable(found):
        try:
            found = found()
        except AppError:  # it says itself what is wrong
            raise
        except Exception as error:
            raise AppError(f"WORKER_APP={spec}: calling {attribute}() raised {_last_frame(error)}") from error
    if not isinstance(found, App):
        raise AppError(
            f"WORKER_APP={spec} is {_article(found)}; it must be a jobs.App, or a callable without arguments "
            "that returns one."
        )
    return found


def import_module(name: str, asked_by: str) -> ModuleType:
    """Import `name`; raise `AppError` with the place where the import failed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise AppError(
                f"{asked_by}: there is no module {error.name}. It was looked for in the installed packages and in "
                f"the working folder {Path.cwd()}; start the worker in the folder that holds it, or install it."
            ) from error
        raise AppError(f"{asked_by}: importing {name} raised {_last_frame(error)}") from error
    except (Exception, SystemExit) as error:
        raise AppError(f"{asked_by}: importing {name} raised {_last_frame(error)}") from error


def _put_working_folder_last() -> Path:
    folder = Path.cwd()
    for entry in ("", str(folder)):
        # Where Oomph itself runs from its checkout, the folder is the only way to its packages and stays first.
        while entry in sys.path and folder != _ROOT:
            sys.path.remove(entry)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return folder


def _refuse_our_own_names(spec: str, module_name: str, folder: Path) -> None:
    top = module_name.partition(".")[0]
    if top not in _OURS:
        return
    theirs = next((path for path in (folder / f"{top}.py", folder / top) if path.exists()), None)
    if theirs is not None and theirs.resolve() != _ROOT / top:
        raise AppError(
            f"WORKER_APP={spec} names {theirs}, but {top} is a package of Oomph, which is imported in its place. "
            f"Rename yours, for example to my_{theirs.name}, and set WORKER_APP=my_{spec}."
        )
    try:
        exists = importlib.util.find_spec(module_name) is not None
    except ModuleNotFoundError:
        exists = False
    if not exists or module_name == top:
        raise AppError(
            f"WORKER_APP={spec} names a module of Oomph itself: {top} is one of its packages ({', '.join(_OURS)}). "
            "Name the module that makes your App; if it is called like that, rename it."
        )


def _attribute(module: ModuleType, attribute: str, spec: str) -> object:
    found: object = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            apps = [name for name, value in vars(module).items() if isinstance(value, App)]
            hint = f" It does have {', '.join(apps)}." if apps else ""
            raise AppError(
                f"WORKER_APP={spec}: {module.__name__} ({module.__file__}) has no attribute {attribute}.{hint}"
            ) from error
    return found


def _last_frame(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    else:
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    return f"{type(error).__name__} at {where}: {error}"


def _article(found: object) -> str:
    name = type(found).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
