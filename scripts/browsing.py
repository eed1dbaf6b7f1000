"""What the page's tests and pictures share: `oomph page` as a process, and the system's Chromium to look at it with."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

START_SECONDS = 30.0
END_SECONDS = 15.0
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--font-render-hinting=none", "--hide-scrollbars"),
]


def launch_chromium(playwright: "Playwright") -> "Browser":
    """The browser that `scripts/test --browser` has found: none is downloaded."""
    return playwright.chromium.launch(
        executable_path=os.environ["OOMPH_BROWSER"], args=FLAGS, ignore_default_args=["--headless"]
    )


@contextmanager
def running_page(database_url: str, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """`oomph page` on a free port; its address, without a slash at its end."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("WORKER_", "OOMPH_", "PG"))}
    oomph = Path(sys.executable).with_name("oomph")
    with log.open("w+") as sink:
        running = subprocess.Popen(
            [oomph, "page", "--port", "0", "--database", database_url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            env={**own, **(environment or {})},
            text=True,
        )
        try:
            assert running.stdout is not None
            line = running.stdout.readline()  # which ends with the process, if nothing is said
            if not (found := re.search(r"http://\S+", line)):
                raise RuntimeError(f"oomph page did not start: {line}{log.read_text()}")
            yield found[0].rstrip("/")
        finally:
            running.terminate()
            try:
                running.wait(END_SECONDS)
            finally:
                running.kill()
                running.stdout and running.stdout.close()
