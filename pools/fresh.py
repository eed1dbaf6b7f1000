"""A child of the start method `exec`: a fresh interpreter that loads the app itself, then waits at its gate.

Enclosed before the app is loaded, so whatever that starts (threads, sockets) is enclosed as well. Its memory limit is
relative to what it has at its gate, as that of a forked child is.
"""

import os
import socket
import sys
import traceback
from typing import NoReturn

from setproctitle import setproctitle

from jobs.app import App
from jobs.loading import import_module, load_app
from pools.child import serve, warm_up


def main(arguments: list[str]) -> NoReturn:
    """Run as `python -m pools.fresh SPEC JOB_FD`."""
    spec, job_fd = arguments[0], int(arguments[1])
    os.set_inheritable(job_fd, False)
    # The scratch folder becomes the working folder; the app is looked for where the worker was started.
    folder = os.getcwd()  # noqa: PTH109
    code = 1
    try:
        setproctitle(f"oomph: child for {spec}")
        with socket.socket(fileno=job_fd) as connection:
            code = serve(connection, lambda: _load(spec, folder), announce=True)
    except BaseException:  # noqa: BLE001  (as in a forked child, nothing runs after the last frame)
        traceback.print_exc()
    finally:
        os._exit(code)


def _load(spec: str, folder: str) -> App:
    scratch = os.getcwd()  # noqa: PTH109
    os.chdir(folder)
    try:
        app = load_app(spec)
        for name in app.preload:
            import_module(name, f"preload of {name}")
        warm_up()
    finally:
        os.chdir(scratch)
    return app


if __name__ == "__main__":
    main(sys.argv[1:])
