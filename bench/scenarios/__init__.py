"""The scenarios by their name, in the order in which they run."""

from collections.abc import Callable
from importlib import import_module

from bench.session import Session

MODULES = {
    "P1": "p01_drain",
    "P2": "p02_enqueue",
    "P3": "p03_pickup",
    "P4": "p04_births",
    "P5": "p05_backlog",
    "P6": "p06_snapshot",
    "P7": "p07_workers",
    "P8": "p08_idle",
    "P9": "p09_many_children",
    "P10": "p10_fleet",
}


def scenario(name: str) -> Callable[[Session], None]:
    """Runs it: tells the session its rows, records its runs, draws its pictures."""
    run: Callable[[Session], None] = import_module(f"bench.scenarios.{MODULES[name]}").run
    return run
