"""One call of the bench: what was asked for, what was found, and where it is written."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure, Row
from bench.ground import Ground
from bench.processes import Stuck
from bench.systems.base import System

SCENARIO_SECONDS = 2_400.0  # every wait has its own bound; this one ends a scenario whose waits all come close to it


@dataclass
class Session:
    """Passed to every scenario."""

    ground: Ground
    out: Path
    runs: int
    quick: bool
    peers: bool
    versions: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    scenario: str = ""
    _started_at: float = field(default_factory=time.monotonic)
    _until: float = 0.0

    def begin(self, scenario: str) -> None:
        self.scenario = scenario
        self._until = time.monotonic() + SCENARIO_SECONDS
        (self.out / f"{scenario}.jsonl").unlink(missing_ok=True)

    def say(self, text: str) -> None:
        """Progress, on stderr."""
        minutes, seconds = divmod(int(time.monotonic() - self._started_at), 60)
        print(f"{minutes:3d}:{seconds:02d} {self.scenario} {text}", file=sys.stderr, flush=True)

    def small(self, full: int, quick: int) -> int:
        """How many: `quick` for trying the bench."""
        return quick if self.quick else full

    def record(self, name: str, settings: Mapping[str, str], run: int, figures: Mapping[str, object]) -> None:
        """One run, as a line of JSON."""
        line = {
            "scenario": self.scenario,
            "system": name,
            "run": run,
            "figures": figures,
            "settings": settings,
            "quick": self.quick,
            "versions": {**self.ground.versions, **self.versions},
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        with (self.out / f"{self.scenario}.jsonl").open("a") as sink:
            sink.write(json.dumps(line) + "\n")

    def tell(self, row: Row) -> None:
        """A line of the table."""
        self.rows.append(row)

    def picture(self, name: str) -> Path:
        return self.out / f"{self.scenario}-{name}.png"

    def check_time(self) -> None:
        """Raises `Stuck` where the scenario has taken all its time."""
        if time.monotonic() > self._until:
            raise Stuck(f"the scenario is not over after {SCENARIO_SECONDS:g} s")


@dataclass(frozen=True, slots=True)
class Subject:
    """What takes a turn in every run: `measure` returns its figures by name."""

    name: str
    measure: Callable[[], Mapping[str, object]]
    settings: Mapping[str, str] = field(default_factory=dict)


def of_system(system: System, measure: Callable[[], Mapping[str, object]], session: Session) -> Subject:
    """A subject named and versioned as the system is."""
    session.versions.update(system.versions())
    return Subject(system.name, measure, system.settings)


Taken = dict[str, list[Mapping[str, object]]]


def take_turns(session: Session, subjects: Sequence[Subject], runs: int | None = None) -> Taken:
    """Measure all subjects in every run, each second run in the opposite order. The figures by name, a run each."""
    taken: Taken = {subject.name: [] for subject in subjects}
    for run in range(1, (runs or session.runs) + 1):
        for subject in subjects if run % 2 else reversed(subjects):
            session.check_time()
            figures = subject.measure()
            taken[subject.name].append(figures)
            session.record(subject.name, subject.settings, run, figures)
            shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items() if isinstance(value, float))
            session.say(f"run {run}: {subject.name}: {shown}")
    return taken


def figure(taken: Taken, name: str, what: str) -> Figure:
    """One figure of one subject over its runs."""
    values = [run[what] for run in taken[name]]
    assert all(isinstance(value, int | float) for value in values)
    return Figure(name, values)  # type: ignore[arg-type]
