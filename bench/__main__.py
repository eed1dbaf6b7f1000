"""Measures Oomph, with --peers also its peers, scenario by scenario, and says what was demanded and what was reached.

Exit status 0 only if everything that ran reached what is demanded of it. docs/bench.md tells what each scenario does.
"""

import argparse
import os
import platform
import signal
import sys
import traceback
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Row
from bench.ground import Ground
from bench.scenarios import MODULES, scenario
from bench.session import Session

RUNS = 5
TABLE_WIDTH = 200  # no line is folded where the output is a file


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell started it in the background
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # and nothing is left running
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        with Ground() as ground:
            session = Session(
                ground,
                arguments.out.resolve(),
                runs=1 if arguments.quick else arguments.runs,
                quick=arguments.quick,
                peers=arguments.peers,
                versions={"python": platform.python_version(), "cores": str(len(os.sched_getaffinity(0)))},
            )
            for name in arguments.only:
                _run(session, name)
    except KeyboardInterrupt:
        print("interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    _tell(session.rows)
    print(f"the runs and the pictures are in {arguments.out}")
    return 0 if all(row.passed is not False for row in session.rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--peers", action="store_true", help="measure the peers too, and judge against them")
    parser.add_argument("--only", type=_names, default=list(MODULES), metavar="P1,P3", help="these scenarios (all)")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each measurement ({RUNS})")
    parser.add_argument("--quick", action="store_true", help="one small run, to try the bench; its figures mean little")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), metavar="DIR", help="for runs and pictures")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs must be positive")
    return arguments


def _names(text: str) -> list[str]:
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    if not names or (unknown := [name for name in names if name not in MODULES]):
        raise argparse.ArgumentTypeError(f"{text}: {', '.join(unknown or ['nothing'])} is none of {', '.join(MODULES)}")
    return names


def _run(session: Session, name: str) -> None:
    session.begin(name)
    try:
        scenario(name)(session)
    except Exception as error:  # noqa: BLE001  (the other scenarios go on; this one has failed, and says why)
        traceback.print_exc()
        session.tell(Row(name, "error", None, error=f"{type(error).__name__}: {error}"))


def _tell(rows: list[Row]) -> None:
    table = Table(
        "", "what", "Oomph, median [min..max]", "against", "demanded", "reached", "", box=None, pad_edge=False
    )
    for row in rows:
        ours = "" if row.ours is None else f"{row.ours} ({row.ours.label})"
        theirs = "" if row.theirs is None else f"{row.theirs} ({row.theirs.label})"
        demand, reached = "", ""
        if row.demand is not None and row.ours is not None:
            demand, reached = str(row.demand), f"{row.demand.reached(row.ours, row.theirs):.3g}"
        verdict = {True: "[green]pass[/]", False: "[bold red]FAIL[/]", None: ""}[row.passed]
        table.add_row(row.scenario, row.what, row.error or ours, theirs, demand, reached, verdict)
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
