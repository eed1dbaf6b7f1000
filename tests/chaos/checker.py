"""Proves DESIGN's invariants 1 to 9 from a history. Pure: a history in, sentences out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.chaos import checks_of_jobs, checks_of_owners, checks_of_processes, checks_of_time
from tests.chaos.history import History

Check = Callable[[History], Iterator[str]]

INVARIANTS: dict[int, tuple[str, Check]] = {
    1: ("nothing is lost", checks_of_jobs.nothing_is_lost),
    2: ("one owner", checks_of_owners.one_owner),
    3: ("charged once", checks_of_jobs.charged_once),
    4: ("unreachable database = lost lease", checks_of_owners.no_work_without_a_lease),
    5: ("one at a time per key", checks_of_time.one_at_a_time),
    6: ("a paused kind starts nothing", checks_of_time.a_pause_holds),
    7: ("an occurrence fires once", checks_of_time.occurrences_fire_once),
    8: ("no leftovers", checks_of_processes.no_leftovers),
    9: ("never half alive", checks_of_processes.never_half_alive),
}


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: int
    text: str

    def __str__(self) -> str:
        return f"invariant {self.invariant} ({INVARIANTS[self.invariant][0]}): {self.text}"


def check(history: History) -> list[Violation]:
    """Every violation that the history shows."""
    return [Violation(number, text) for number, (_, run) in INVARIANTS.items() for text in run(history)]
